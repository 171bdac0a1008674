//! Serves HTTP, plain or over TLS: certificates change while serving, everything has a limit, and the drain has a deadline.
//!
//! ```ignore
//! let certificates = Certificates::from_files("tls.crt", "tls.key")?; // and again whenever they change
//! let listener = Listener::bind("127.0.0.1:0".parse()?).await?.tls(Tls::new(certificates)).limits(Limits::default());
//! let address = listener.local_addr();
//! let drained = listener.serve(router, stop.cancelled_owned()).await;
//! ```
//!
//! The service is any `tower::Service<http::Request<serving::Body>>`, such as an axum `Router`. Each request carries a [`Peer`]:
//! the address and the certificate of the client.
//!
//! Reading order: [`Listener`] accepts connections, `connection` serves one of them, `activity` knows how long it may stay in
//! which state, `connections` which one gives way to others, `budget` how much memory all requests may use, `origin` who shares
//! these with others, and [`Body`] is what a handler reads. Handlers whose work takes long share [`Places`] in the same way.
//! [`Certificates`] and [`ClientAuthorities`] are the parts of TLS that can change, [`Tls`] is its configuration, and [`Observer`]
//! receives events.
#![deny(missing_docs)]

mod activity;
mod authorities;
mod body;
mod budget;
mod certificates;
mod connection;
mod connections;
mod error;
mod files;
mod identity;
mod limits;
mod listener;
mod observer;
mod origin;
mod places;
mod response;
mod socket;
mod tls;
mod transport;

pub use authorities::ClientAuthorities;
pub use body::{Body, BodyTimeout, NoMemory};
pub use certificates::Certificates;
pub use connection::Peer;
pub use error::CertificateError;
pub use limits::{Http2, Limits};
pub use listener::{Drained, Listener};
pub use observer::{Dropped, Observer};
pub use origin::Origin;
pub use places::{Place, Places};
pub use socket::parse_address;
pub use tls::{CipherSuites, MinVersion, Tls, TlsError};

/// Libraries that warn of what a single client does wrong. A client without credentials could fill a log with such warnings, so a
/// program that serves clients logs only their errors.
pub const WARN_OF_CLIENTS: [&str; 2] = ["h2", "rustls"];

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
