//! Stands between a client and a real API server, or any HTTP service, and does what a fault plan says.
//!
//! ```ignore
//! let proxy = FaultProxy::start(Upstream::cluster(&kubeconfig).await?, &plan).await?;
//! // … the client runs with proxy.kubeconfig() …
//! assert!(proxy.unused().is_empty(), "the plan has happened");
//! ```
//!
//! The client speaks plain HTTP on loopback to the proxy, and the proxy speaks to the server as the user of its upstream's
//! kubeconfig: who the client is survives, although a client certificate cannot pass through a proxy.
//!
//! Reading order: `proxy` is the handle and the listener, `exchange` the way of one request, `stream` that of a watch's
//! events, `trace` what is recorded.

mod exchange;
mod proxy;
mod reset;
mod signal;
mod stream;
mod trace;
mod upstream;

pub use self::proxy::FaultProxy;
pub use self::signal::Signal;
pub use self::trace::{Exchange, SeenFrame, Trace};
pub use self::upstream::Upstream;
