//! Serves HTTP over TLS or plainly: certificates replaced while serving, limits on everything, a drain with a deadline.
//!
//! ```ignore
//! let certificates = Certificates::from_files("tls.crt", "tls.key")?; // and again whenever they change
//! let listener = Listener::bind("127.0.0.1:0".parse()?).await?.tls(Tls::new(certificates)).limits(Limits::default());
//! let address = listener.local_addr();
//! let drained = listener.serve(router, stop.cancelled_owned()).await;
//! ```
//!
//! The service is any `tower::Service<http::Request<serving::Body>>`, such as an axum `Router`. Each request carries
//! a [`Peer`]: who is at the other end, and with which certificate.
//!
//! Reading order: [`Listener`] accepts, `connection` is the life of one connection, `activity` knows how long it may stay
//! in which state, [`Body`] is what a handler reads. [`Certificates`] and [`ClientAuthorities`] are what TLS needs and what
//! can change, [`Tls`] is how it is set up, and [`Observer`] is told what happens.

mod activity;
mod authorities;
mod body;
mod certificates;
mod connection;
mod files;
mod limits;
mod listener;
mod observer;
mod response;
mod socket;
mod tls;

pub use authorities::ClientAuthorities;
pub use body::{Body, BodyTimeout};
pub use certificates::{CertificateError, Certificates};
pub use connection::Peer;
pub use limits::{Http2, Limits};
pub use listener::{Drained, Listener};
pub use observer::{Dropped, Observer};
pub use socket::parse_address;
pub use tls::{CipherSuites, MinVersion, Tls, TlsError};
