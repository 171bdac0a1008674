//! The reference booking provider that `FlightTicket` talks to.
//!
//! One process, one database file, two ports: the API, and one for probes, metrics and people. It promises what a client
//! needs for buying exactly once: the same request gives the same booking, for ever; a cancelled reference stays closed; a
//! seat is sold once; and nothing is answered before it is on the disk. `booking-api.yaml` is the contract.
//!
//! Reading order: [`ledger`] is the rules, pure; `books` is the tables; `store` puts both into transactions on one thread;
//! `api` is a handler a route; `guard` is what happens around each (tokens, faults, counting); `admin` and `page` are the
//! second port; [`BookingServer`] puts it together.
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
