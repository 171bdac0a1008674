//! Whether the books agree with themselves: for tests, and for people who wonder.

use std::{collections::BTreeMap, path::Path};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::file::{self, OpenError};

/// What must never have a row, and how to say so when it has.
const RULES: &[(&str, &str)] = &[
    (
        "a reference has more than one live booking",
        "SELECT reference FROM bookings WHERE state IN('PENDING','CONFIRMED') GROUP BY reference HAVING count(*) > 1",
    ),
    (
        "a closed reference has a live booking",
        "SELECT reference FROM bookings JOIN tombstones USING(reference) WHERE state IN('PENDING','CONFIRMED')",
    ),
    (
        "a route counts other seats than its live bookings have",
        "SELECT r.from_key || ' - ' || r.to_key FROM routes r WHERE r.seats_taken != (SELECT coalesce(sum(number), 0)
         FROM bookings b WHERE b.route_id = r.id AND state IN('PENDING','CONFIRMED'))",
    ),
    (
        "a route has taken seats that it does not have",
        "SELECT r.from_key || ' - ' || r.to_key FROM routes r JOIN seats s ON s.route_id = r.id WHERE s.seat >= r.seats_total",
    ),
    (
        "a booking holds another number of seats than it should",
        "SELECT b.id FROM bookings b WHERE (SELECT count(*) FROM seats s WHERE s.booking_id = b.id)
         != iif(state IN('PENDING','CONFIRMED'), number, 0)",
    ),
    (
        "a booking was not noted when it was made",
        "SELECT b.id FROM bookings b WHERE (SELECT count(*) FROM journal j WHERE j.booking_id = b.id AND event LIKE 'BOOKED %') != 1",
    ),
    (
        "a booking has another version than the journal has entries",
        "SELECT b.id FROM bookings b WHERE version != (SELECT count(*) FROM journal j WHERE j.booking_id = b.id)",
    ),
];

/// What an audit found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Audit {
    /// Bookings of each state.
    pub bookings: BTreeMap<String, u64>,
    /// Seats that live bookings hold.
    pub seats_taken: u64,
    /// Entries in the journal.
    pub journal: u64,
    /// What is wrong; empty in a healthy database.
    pub violations: Vec<String>,
}

/// Audits a database file, also while a server uses it.
pub fn audit(path: &Path) -> Result<Audit, OpenError> {
    let mut connection = file::for_reading(path)?;
    let snapshot = connection.transaction()?;
    Ok(of(&snapshot)?)
}

pub(crate) fn of(connection: &Connection) -> rusqlite::Result<Audit> {
    let mut audit = Audit {
        seats_taken: connection.query_row("SELECT count(*) FROM seats", [], |row| row.get(0))?,
        journal: connection.query_row("SELECT count(*) FROM journal", [], |row| row.get(0))?,
        ..Audit::default()
    };
    let mut states = connection.prepare("SELECT state, count(*) FROM bookings GROUP BY state")?;
    audit.bookings = states.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    for (rule, query) in RULES {
        let mut statement = connection.prepare(query)?;
        for what in statement.query_map([], |row| row.get::<_, String>(0))? {
            audit.violations.push(format!("{rule}: {}", what?));
        }
    }
    Ok(audit)
}
