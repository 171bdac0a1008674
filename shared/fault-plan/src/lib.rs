//! What is to go wrong between a client and a server, in one line.
//!
//! A [`Plan`] is a list of rules; a rule says *when* (the second time that somebody creates a Deployment of that name)
//! and *what* (the answer is lost, and the process is killed). Nothing here does I/O: a proxy in front of a real API
//! server and a model of one in memory carry out the same plans, and a failure of either is told, committed and replayed
//! as one line of text:
//!
//! ```text
//! after create deployments.apps */web #2 -> signal kill + drop; frame MODIFIED memcacheds.* own -> delay 500ms
//! ```
//!
//! Reading order: [`Request`] is what is asked, [`Pattern`] and [`Trigger`] choose among requests and watch frames,
//! [`Action`] is what is done, [`Progress`] counts and tells what is due, [`enumerate`] makes plans from a record of a
//! run without faults.

mod action;
pub mod enumerate;
mod lexer;
mod pattern;
mod plan;
mod progress;
mod request;

pub use self::action::{Action, Answer, Body};
pub use self::pattern::{Glob, Pattern};
pub use self::plan::{Count, InvalidPlan, Plan, Rule, Trigger, When};
pub use self::progress::{Due, Progress};
pub use self::request::{Frame, Request};
