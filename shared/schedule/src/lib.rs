//! When a cron expression fires: the language, its arithmetic in any time zone, and what is due. No Kubernetes, no clock,
//! no I/O.
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
//! Reading order: [`Schedule`] is what people write (`parse`, `cron`, `every`, with [`Error`]). [`Times`] are its instants: `wall`
//! is the arithmetic on a clock that nobody touches, [`Zone`] says when somebody does. [`Situation`] is what a controller asks
//! on each wake-up. [`explain`] has the words for people, and [`command`] the command line.

pub mod command;
mod cron;
mod error;
mod every;
pub mod explain;
mod field;
mod missed;
mod parse;
mod schedule;
mod wall;
mod zone;

pub use error::Error;
pub use field::Field;
pub use missed::{Anchor, Concurrency, Decision, Due, Situation, Skip};
pub use schedule::{Effect, Schedule, Times};
pub use zone::{Change, UnknownZone, Zone};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
