//! Fault plans: the faults between a client and a server, described in one line of text.
//!
//! A [`Plan`] is a list of rules. A rule says *when* (the second time that a client creates a Deployment with this name) and
//! *what* (the answer is lost, and the process is killed). This crate does no I/O. A proxy in front of a real API server and an
//! in-memory model of one execute the same plans. So a failing plan of either can be reported, committed and replayed as one
//! line:
//!
//! ```text
//! after create deployments.apps */web #2 -> signal kill + drop; frame MODIFIED memcacheds.* own -> delay 500ms
//! ```
//!
//! Reading order: [`Request`] is the signature of a request, [`Pattern`] and [`Trigger`] select requests and watch frames,
//! [`Action`] is a fault, [`Progress`] counts requests and returns the actions that are due, [`enumerate`] makes plans from the
//! record of a run without faults.
#![deny(missing_docs)]

mod action;
pub mod enumerate;
mod invalid;
mod lexer;
mod pattern;
mod plan;
mod progress;
mod request;
mod when;

pub use self::action::{Action, Answer, Body};
pub use self::invalid::InvalidPlan;
pub use self::pattern::{Glob, Pattern};
pub use self::plan::{Count, Plan, Rule, Trigger};
pub use self::progress::{Due, Progress};
pub use self::request::{Frame, Request};
pub use self::when::When;

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
