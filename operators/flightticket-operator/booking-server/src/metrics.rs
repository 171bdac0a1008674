//! The Prometheus metrics of the server.

use std::time::Duration;

use prometheus::{
    Encoder as _, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
};
use rusqlite::Connection;

use crate::{booking::State, op::Op};

/// Buckets in seconds, from 0.1 ms, the time of a read, to 10 s.
const SECONDS: &[f64] = &[0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Most routes with a series of their own. Limits the cardinality, since the names come from clients.
const ROUTES: u32 = 100;

/// The metrics of one server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    seconds: HistogramVec,
    pub(crate) replays: IntCounter,
    pub(crate) busy: IntCounter,
    bookings: IntGaugeVec,
    seats: IntGaugeVec,
}

impl Metrics {
    pub(crate) fn new() -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str, labels: &[&str]| IntCounterVec::new(Opts::new(name, help), labels);
        let gauge = |name: &str, help: &str, labels: &[&str]| IntGaugeVec::new(Opts::new(name, help), labels);
        let seconds = HistogramOpts::new("booking_server_request_seconds", "Time from a request to its answer")
            .buckets(SECONDS.to_vec());
        let metrics = Self {
            registry: Registry::new(),
            requests: counter(
                "booking_server_requests_total",
                "Requests by operation and status; status 0 means that the connection ended without an answer",
                &["op", "code"],
            )?,
            seconds: HistogramVec::new(seconds, &["op"])?,
            replays: IntCounter::new("booking_server_replays_total", "Repeated requests for an existing booking")?,
            busy: IntCounter::new(
                "booking_server_db_busy_total",
                "Writes that failed because the database was locked",
            )?,
            bookings: gauge("booking_server_bookings", "Bookings by state", &["state"])?,
            seats: gauge("booking_server_seats_taken", "Seats taken by route, for the 100 fullest routes", &["route"])?,
        };
        for collector in [
            Box::new(metrics.requests.clone()) as Box<dyn prometheus::core::Collector>,
            Box::new(metrics.seconds.clone()),
            Box::new(metrics.replays.clone()),
            Box::new(metrics.busy.clone()),
            Box::new(metrics.bookings.clone()),
            Box::new(metrics.seats.clone()),
            Box::new(prometheus::process_collector::ProcessCollector::for_self()),
        ] {
            metrics.registry.register(collector)?;
        }
        for op in Op::ALL {
            metrics.seconds.with_label_values(&[op.name()]);
        }
        Ok(metrics)
    }

    /// Counts an answer. `status` is `None` if the connection ended without one.
    pub(crate) fn observe(&self, op: &str, status: Option<u16>, took: Duration) {
        let code = status.unwrap_or_default().to_string();
        self.requests.with_label_values(&[op, &code]).inc();
        self.seconds.with_label_values(&[op]).observe(took.as_secs_f64());
    }

    /// Updates the gauges from the database.
    pub(crate) fn refresh(&self, connection: &Connection) -> rusqlite::Result<()> {
        for state in State::ALL {
            let sql = "SELECT count(*) FROM bookings WHERE state = ?1";
            let count = connection.prepare_cached(sql)?.query_row([state.name()], |row| row.get(0))?;
            self.bookings.with_label_values(&[state.name()]).set(count);
        }
        self.seats.reset(); // drops the routes that are no longer among the fullest
        let sql = "SELECT from_key || ' - ' || to_key, sum(seats_taken) AS taken FROM routes
             GROUP BY from_key, to_key ORDER BY taken DESC, 1 LIMIT ?1";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([ROUTES])?;
        while let Some(row) = rows.next()? {
            self.seats.with_label_values(&[row.get::<_, String>(0)?.as_str()]).set(row.get(1)?);
        }
        Ok(())
    }

    /// Renders all metrics in the text format of Prometheus.
    pub(crate) fn render(&self) -> prometheus::Result<Vec<u8>> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}
