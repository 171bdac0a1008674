//! Computes when cron expressions fire: their language, their times in any time zone, and which run is due. No Kubernetes, no
//! clock, no I/O.
//!
//! ```
//! use schedule::{Schedule, Zone};
//!
//! let schedule: Schedule = "0 9 * * mon-fri".parse()?;
//! let berlin = Zone::named("Europe/Berlin")?;
//! let friday = "2026-11-20T12:00:00Z".parse()?;
//!
//! let times = schedule.times(&berlin, friday);
//! assert_eq!(times.after(friday), Some("2026-11-23T09:00:00+01:00".parse()?));
//! assert_eq!(times.until(friday), Some("2026-11-20T09:00:00+01:00".parse()?));
//! assert_eq!(times.count("2016-11-20T12:00:00Z".parse()?, friday), 2610);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Reading order: [`Schedule`] is a parsed expression (`parse`, `cron`, `crons`, `every`, with [`Error`]). [`Times`] computes its
//! instants: `wall` searches on a clock whose offset never changes, and [`Zone`] has the changes. [`Situation`] decides what a
//! controller does in a reconcile. [`explain`] describes schedules in words, and [`command`] is the command line.
#![deny(missing_docs)]

pub mod command;
mod cron;
mod crons;
mod error;
mod every;
pub mod explain;
mod field;
mod missed;
mod parse;
mod part;
mod schedule;
mod wall;
mod zone;

pub use error::Error;
pub use field::Field;
pub use missed::{Anchor, Concurrency, Decision, Due, Jitter, Situation, Skip};
pub use schedule::{Effect, Schedule, Times};
pub use zone::{Change, UnknownZone, Zone};

/// Runs the examples of the README as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
