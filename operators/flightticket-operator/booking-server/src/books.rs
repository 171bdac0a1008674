//! The tables (the "books"): the queries, and the writes that carry out what [`crate::ledger`] decides.

use jiff::{Timestamp, civil::Date};
use rusqlite::{Connection, OptionalExtension as _, Row, params, types::Type};

use crate::{
    booking::{Booking, Cabin, Contact, MOST_SEATS, Order, Reference, RouteKey, Seat, State},
    ledger::{Availability, Change},
};

type Result<T> = rusqlite::Result<T>;

/// Access to the tables, within a transaction or a snapshot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Books<'a>(pub(crate) &'a Connection);

const BOOKING: &str = "SELECT id, reference, from_name, to_name, number, travel_date, cabin, state, code, version,
    contact_namespace, contact_name, message, confirm_at, departed, created_at, updated_at, seq FROM bookings";

impl Books<'_> {
    /// Reads the facts that the decision about an order depends on.
    pub(crate) fn availability(self, reference: &Reference, route: &RouteKey) -> Result<Availability> {
        let seats = self.seats(route)?;
        let free = if seats.is_some() { self.free(route)? } else { Vec::new() };
        Ok(Availability {
            is_buried: self.is_buried(reference)?,
            current: self.current(reference)?,
            seats,
            usual_seats: self.seats(&route.any_day())?,
            free,
        })
    }

    pub(crate) fn is_buried(self, reference: &Reference) -> Result<bool> {
        self.0.prepare_cached("SELECT 1 FROM tombstones WHERE reference = ?1")?.exists([reference.as_str()])
    }

    /// The booking that has the reference. Rejected bookings do not count: they have freed their reference.
    pub(crate) fn current(self, reference: &Reference) -> Result<Option<Booking>> {
        let sql = format!("{BOOKING} WHERE reference = ?1 AND state IN('PENDING','CONFIRMED','CANCELLED')");
        self.one(&sql, reference.as_str())
    }

    /// The latest booking under the reference, but a rejected one only if there is no other: it may be later than one that the
    /// reference has got by an adoption.
    pub(crate) fn latest(self, reference: &Reference) -> Result<Option<Booking>> {
        let sql = format!("{BOOKING} WHERE reference = ?1 ORDER BY state = 'REJECTED', seq DESC LIMIT 1");
        self.one(&sql, reference.as_str())
    }

    pub(crate) fn booking(self, id: &str) -> Result<Option<Booking>> {
        self.one(&format!("{BOOKING} WHERE id = ?1"), id)
    }

    fn one(self, sql: &str, key: &str) -> Result<Option<Booking>> {
        let found = self.0.prepare_cached(sql)?.query_row([key], booking).optional()?;
        found.map(|booking| self.with_seats(booking)).transpose()
    }

    /// The number of seats of a route; `None` if the route is not open yet.
    pub(crate) fn seats(self, route: &RouteKey) -> Result<Option<u32>> {
        let sql = "SELECT seats_total FROM routes WHERE from_key = ?1 AND to_key = ?2 AND travel_date = ?3";
        self.0
            .prepare_cached(sql)?
            .query_row(params![route.from, route.to, day(route.date)], |row| row.get(0))
            .optional()
    }

    /// The first free seats of an open route, at most [`MOST_SEATS`].
    pub(crate) fn free(self, route: &RouteKey) -> Result<Vec<Seat>> {
        let Some((id, total)) = self.route(route)? else { return Ok(Vec::new()) };
        let mut statement = self.0.prepare_cached("SELECT seat FROM seats WHERE route_id = ?1 ORDER BY seat")?;
        let mut taken = statement.query([id])?;
        let mut next_taken = next_seat(&mut taken)?;
        let mut free = Vec::new();
        for seat in 0..total {
            if free.len() == usize::from(MOST_SEATS) {
                break;
            }
            if next_taken == Some(seat) {
                next_taken = next_seat(&mut taken)?;
            } else {
                free.push(Seat(seat));
            }
        }
        Ok(free)
    }

    fn route(self, route: &RouteKey) -> Result<Option<(i64, u32)>> {
        let sql = "SELECT id, seats_total FROM routes WHERE from_key = ?1 AND to_key = ?2 AND travel_date = ?3";
        let key = params![route.from, route.to, day(route.date)];
        self.0.prepare_cached(sql)?.query_row(key, |row| Ok((row.get(0)?, row.get(1)?))).optional()
    }

    /// The pending booking that is due first: its time and its id.
    pub(crate) fn next_to_confirm(self) -> Result<Option<(Timestamp, String)>> {
        let sql = "SELECT confirm_at, id FROM bookings WHERE state = 'PENDING' AND confirm_at IS NOT NULL ORDER BY confirm_at LIMIT 1";
        self.0.prepare_cached(sql)?.query_row([], |row| Ok((time(row, 0)?, row.get(1)?))).optional()
    }

    /// The bookings with a sequence number above `after`, oldest first, each with its sequence number.
    pub(crate) fn list(self, filter: &Filter, after: i64, limit: u32) -> Result<Vec<(i64, Booking)>> {
        self.query("seq > ?6", "ASC", filter, after, limit)
    }

    /// The bookings with a sequence number below `before`, newest first, each with its sequence number.
    pub(crate) fn newest(self, filter: &Filter, before: i64, limit: u32) -> Result<Vec<(i64, Booking)>> {
        self.query("seq < ?6", "DESC", filter, before, limit)
    }

    fn query(self, range: &str, order: &str, filter: &Filter, seq: i64, limit: u32) -> Result<Vec<(i64, Booking)>> {
        let sql = format!(
            "{BOOKING} WHERE (?1 IS NULL OR reference = ?1) AND (?2 IS NULL OR state = ?2)
             AND (?3 IS NULL OR route_id IN (SELECT id FROM routes WHERE from_key = ?3))
             AND (?4 IS NULL OR route_id IN (SELECT id FROM routes WHERE to_key = ?4))
             AND {range} ORDER BY seq {order} LIMIT ?5"
        );
        let reference = filter.reference.as_ref().map(Reference::as_str);
        let values = params![reference, filter.state.map(State::name), filter.from, filter.to, limit, seq];
        let mut statement = self.0.prepare_cached(&sql)?;
        let rows = statement.query_map(values, |row| Ok((row.get(17)?, booking(row)?)))?;
        rows.map(|row| row.and_then(|(seq, booking)| Ok((seq, self.with_seats(booking)?)))).collect()
    }

    fn with_seats(self, mut booking: Booking) -> Result<Booking> {
        let mut statement = self.0.prepare_cached("SELECT seat FROM seats WHERE booking_id = ?1 ORDER BY seat")?;
        booking.seats = statement.query_map([&booking.id], |row| row.get(0).map(Seat))?.collect::<Result<_>>()?;
        Ok(booking)
    }

    /// Sets the number of seats of a route, and opens the route if needed. Returns false, without a change, if a seat beyond the
    /// new number is taken.
    pub(crate) fn set_seats(self, route: &RouteKey, seats: u32) -> Result<bool> {
        // The number of taken seats is not enough: after cancellations, a seat with a high number may still be taken.
        let sql = "SELECT coalesce(max(seat) + 1, 0) FROM seats WHERE route_id = ?1";
        if let Some((id, _)) = self.route(route)? {
            let highest: u32 = self.0.query_row(sql, [id], |row| row.get(0))?;
            if highest > seats {
                return Ok(false);
            }
        }
        self.open(route, seats)?;
        Ok(true)
    }

    fn open(self, route: &RouteKey, seats: u32) -> Result<()> {
        let sql = "INSERT INTO routes(from_key, to_key, travel_date, seats_total) VALUES(?1, ?2, ?3, ?4)
             ON CONFLICT(from_key, to_key, travel_date) DO UPDATE SET seats_total = excluded.seats_total";
        self.0.prepare_cached(sql)?.execute(params![route.from, route.to, day(route.date), seats]).map(drop)
    }

    /// The twelve routes with the largest share of taken seats.
    pub(crate) fn fullest(self) -> Result<Vec<Taken>> {
        let sql = "SELECT from_key, to_key, travel_date, seats_taken, seats_total FROM routes WHERE seats_taken > 0
             ORDER BY seats_taken * 1.0 / seats_total DESC, seats_taken DESC, from_key, to_key LIMIT 12";
        let mut statement = self.0.prepare_cached(sql)?;
        let rows = statement.query_map([], |row| {
            Ok(Taken { from: row.get(0)?, to: row.get(1)?, day: row.get(2)?, held: row.get(3)?, total: row.get(4)? })
        })?;
        rows.collect()
    }

    /// The first 1000 entries of the journal with a sequence number above `after`.
    pub(crate) fn journal(self, reference: Option<&Reference>, after: i64) -> Result<Vec<Entry>> {
        let sql = "SELECT seq, at, booking_id, reference, event FROM journal
             WHERE seq > ?2 AND (?1 IS NULL OR reference = ?1) ORDER BY seq LIMIT 1000";
        let mut statement = self.0.prepare_cached(sql)?;
        let rows = statement.query_map(params![reference.map(Reference::as_str), after], |row| {
            let at = time(row, 1)?.to_string();
            Ok(Entry { seq: row.get(0)?, at, booking_id: row.get(2)?, reference: row.get(3)?, event: row.get(4)? })
        })?;
        rows.collect()
    }

    /// Writes the changes that the ledger has decided on.
    pub(crate) fn apply(self, changes: &[Change], now: Timestamp) -> Result<()> {
        for change in changes {
            match change {
                Change::Open(route, seats) => self.open(route, *seats)?,
                Change::Insert(booking) => {
                    self.insert(booking)?;
                    self.note(now, Some(&booking.id), &booking.order.reference, &format!("BOOKED {}", seats(booking)))?;
                }
                Change::Update(event, booking) => {
                    self.update(booking)?;
                    let event = format!("{} {}", event.name(), seats(booking));
                    self.note(now, Some(&booking.id), &booking.order.reference, event.trim_end())?;
                }
                Change::Bury(reference) => {
                    let sql = "INSERT INTO tombstones(reference, created_at) VALUES(?1, ?2)";
                    self.0.prepare_cached(sql)?.execute(params![reference.as_str(), now.as_millisecond()])?;
                    self.note(now, None, reference, "CLOSED")?;
                }
            }
        }
        Ok(())
    }

    fn insert(self, booking: &Booking) -> Result<()> {
        let order = &booking.order;
        let (route, _) = self.route(&booking.route())?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        let sql =
            "INSERT INTO bookings(id, reference, route_id, from_name, to_name, number, travel_date, cabin, state, code,
             version, contact_namespace, contact_name, message, confirm_at, departed, created_at, updated_at)
             VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";
        self.0.prepare_cached(sql)?.execute(params![
            booking.id,
            order.reference.as_str(),
            route,
            order.from,
            order.to,
            order.number,
            day(order.date),
            order.cabin.name(),
            booking.state.name(),
            booking.confirmation,
            booking.version,
            order.contact.as_ref().map(|contact| &contact.namespace),
            order.contact.as_ref().map(|contact| &contact.name),
            booking.message,
            booking.confirm_at.map(Timestamp::as_millisecond),
            booking.departed,
            booking.created_at.as_millisecond(),
            booking.updated_at.as_millisecond(),
        ])?;
        self.hold(route, booking)
    }

    /// Writes the mutable columns of a booking, and replaces its seats.
    fn update(self, booking: &Booking) -> Result<()> {
        let sql = "UPDATE bookings SET reference = ?2, number = ?3, state = ?4, code = ?5, version = ?6, message = ?7,
             confirm_at = ?8, departed = ?9, updated_at = ?10, contact_namespace = ?11, contact_name = ?12
             WHERE id = ?1 RETURNING route_id";
        let route = self.0.prepare_cached(sql)?.query_row(
            params![
                booking.id,
                booking.order.reference.as_str(),
                booking.order.number,
                booking.state.name(),
                booking.confirmation,
                booking.version,
                booking.message,
                booking.confirm_at.map(Timestamp::as_millisecond),
                booking.departed,
                booking.updated_at.as_millisecond(),
                booking.order.contact.as_ref().map(|contact| &contact.namespace),
                booking.order.contact.as_ref().map(|contact| &contact.name),
            ],
            |row| row.get(0),
        )?;
        let freed = self.0.prepare_cached("DELETE FROM seats WHERE booking_id = ?1")?.execute([&booking.id])?;
        let sql = "UPDATE routes SET seats_taken = seats_taken - ?2 WHERE id = ?1";
        self.0.prepare_cached(sql)?.execute(params![route, freed])?;
        self.hold(route, booking)
    }

    /// Inserts one row per seat. The primary key of the table prevents a double sale, even if a decision was wrong.
    fn hold(self, route: i64, booking: &Booking) -> Result<()> {
        let mut statement =
            self.0.prepare_cached("INSERT INTO seats(route_id, seat, booking_id) VALUES(?1, ?2, ?3)")?;
        for seat in &booking.seats {
            statement.execute(params![route, seat.0, booking.id])?;
        }
        let sql = "UPDATE routes SET seats_taken = seats_taken + ?2 WHERE id = ?1";
        self.0.prepare_cached(sql)?.execute(params![route, booking.seats.len()]).map(drop)
    }

    /// Adds an entry to the journal.
    fn note(self, now: Timestamp, booking: Option<&str>, reference: &Reference, event: &str) -> Result<()> {
        let sql = "INSERT INTO journal(at, booking_id, reference, event) VALUES(?1, ?2, ?3, ?4)";
        let values = params![now.as_millisecond(), booking, reference.as_str(), event];
        self.0.prepare_cached(sql)?.execute(values).map(drop)
    }
}

/// Filter of a list of bookings. Its cities are normalised by [`crate::booking::folded`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) reference: Option<Reference>,
    pub(crate) state: Option<State>,
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
}

/// Occupancy of a route, for the status page.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) from: String,
    pub(crate) to: String,
    /// Empty for "any day".
    pub(crate) day: String,
    pub(crate) held: u32,
    pub(crate) total: u32,
}

/// An entry of the journal.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    seq: i64,
    at: String,
    booking_id: Option<String>,
    reference: Option<String>,
    event: String,
}

fn seats(booking: &Booking) -> String {
    booking.seats.iter().map(Seat::to_string).collect::<Vec<_>>().join(",")
}

fn next_seat(rows: &mut rusqlite::Rows<'_>) -> Result<Option<u32>> {
    rows.next()?.map(|row| row.get(0)).transpose()
}

/// A day as the tables store it. No day is the empty text, since a unique index treats all NULLs as different.
fn day(date: Option<Date>) -> String {
    date.map(|date| date.to_string()).unwrap_or_default()
}

fn booking(row: &Row<'_>) -> Result<Booking> {
    let contact = match (row.get(10)?, row.get(11)?) {
        (Some(namespace), Some(name)) => Some(Contact { namespace, name }),
        _ => None,
    };
    Ok(Booking {
        id: row.get(0)?,
        order: Order {
            reference: parsed(row, 1, Reference::parse)?,
            from: row.get(2)?,
            to: row.get(3)?,
            number: row.get(4)?,
            date: parsed(row, 5, |text| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) })?,
            cabin: parsed(row, 6, Cabin::parse)?,
            contact,
        },
        state: parsed(row, 7, State::parse)?,
        confirmation: row.get(8)?,
        seats: Vec::new(),
        version: row.get(9)?,
        message: row.get(12)?,
        confirm_at: row.get::<_, Option<i64>>(13)?.map(|_| time(row, 13)).transpose()?,
        departed: row.get(14)?,
        created_at: time(row, 15)?,
        updated_at: time(row, 16)?,
    })
}

fn time(row: &Row<'_>, column: usize) -> Result<Timestamp> {
    let millisecond = row.get(column)?;
    Timestamp::from_millisecond(millisecond)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Integer, Box::new(error)))
}

fn parsed<T>(row: &Row<'_>, column: usize, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
    let text: String = row.get(column)?;
    parse(&text).ok_or_else(|| {
        let why = format!("{text:?} is not a valid value");
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, why.into())
    })
}
