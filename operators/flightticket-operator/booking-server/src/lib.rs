//! The reference booking provider for `FlightTicket`.
//!
//! One process with one database file and two ports: one for the API, and one for probes, metrics and the status page. It
//! promises what a client needs to buy exactly once: the same request always returns the same booking, a cancelled reference
//! stays closed, no seat is sold twice, and the server answers only after a change is on disk. The contract is
//! `booking-api.yaml`.
//!
//! Reading order: [`ledger`] has the rules as pure functions, and `books` reads and writes the tables. `store` runs both in
//! transactions on one thread. `api` has one handler per route, and `guard` wraps them (tokens, faults, counting). `admin` and
//! `page` are the second port. [`BookingServer`] puts it together.
//!
//! ```ignore
//! let server = BookingServer::bind(Options::for_tests(&database)).await?;
//! let (url, stop) = (server.url(), server.stop_handle());
//! let running = tokio::spawn(server.run());
//! ```

mod admin;
mod api;
mod app;
mod audit;
mod body;
pub mod booking;
mod books;
mod clock;
pub mod faults;
mod file;
mod guard;
mod hostile;
pub mod ledger;
mod metrics;
mod op;
mod page;
pub mod problem;
mod program;
mod recent;
mod server;
mod settings;
mod store;
mod tokens;
mod wire;

pub use self::{
    api::DOCUMENT,
    audit::{Audit, audit},
    file::OpenError,
    op::Op,
    program::main,
    server::{BookingServer, Options, Route, StartError},
    tokens::Access,
};
