//! Consistency checks of the database, for tests, the status page and `/admin/audit`.

use std::{collections::BTreeMap, path::Path};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::file::{self, OpenError};

/// A message and a query for each rule. In a consistent database, no query returns a row.
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
        "the seat count of a route differs from that of its live bookings",
        "SELECT r.from_key || ' - ' || r.to_key FROM routes r WHERE r.seats_taken != (SELECT coalesce(sum(number), 0)
         FROM bookings b WHERE b.route_id = r.id AND state IN('PENDING','CONFIRMED'))",
    ),
    (
        "a route has a taken seat beyond its total",
        "SELECT r.from_key || ' - ' || r.to_key FROM routes r JOIN seats s ON s.route_id = r.id WHERE s.seat >= r.seats_total",
    ),
    (
        "a booking holds a wrong number of seats",
        "SELECT b.id FROM bookings b WHERE (SELECT count(*) FROM seats s WHERE s.booking_id = b.id)
         != iif(state IN('PENDING','CONFIRMED'), number, 0)",
    ),
    (
        "a booking has not exactly one journal entry of its creation",
        "SELECT b.id FROM bookings b WHERE (SELECT count(*) FROM journal j WHERE j.booking_id = b.id AND event LIKE 'BOOKED %') != 1",
    ),
    (
        "the version of a booking differs from its number of journal entries",
        "SELECT b.id FROM bookings b WHERE version != (SELECT count(*) FROM journal j WHERE j.booking_id = b.id)",
    ),
];

/// The result of an audit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Audit {
    /// Number of bookings by state.
    pub bookings: BTreeMap<String, u64>,
    /// Seats that live bookings hold.
    pub seats_taken: u64,
    /// Entries in the journal.
    pub journal: u64,
    /// Violated rules, each with the row at fault; empty in a healthy database.
    pub violations: Vec<String>,
}

/// Audits a database file. A server may use the file at the same time.
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
