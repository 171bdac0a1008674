//! A proxy between a client and a real API server, or any HTTP service, that injects the faults of a fault plan.
//!
//! ```ignore
//! let proxy = FaultProxy::start(Upstream::cluster(&kubeconfig).await?, &plan).await?;
//! // … the client runs with proxy.kubeconfig() …
//! assert!(proxy.unused().is_empty(), "a rule of the plan was never applied");
//! ```
//!
//! The client speaks plain HTTP on loopback to the proxy. The proxy authenticates to the server as the user of the upstream's
//! kubeconfig, because a client certificate cannot pass through a proxy.
//!
//! Reading order: `proxy` is the handle and the listener; `shared` is the state that all connections share; `exchange` handles one
//! request; `stream` handles the events of a watch; `trace` records what passes.
#![deny(missing_docs)]

mod exchange;
mod proxy;
mod reset;
mod shared;
mod signal;
mod stream;
mod trace;
mod upstream;

pub use self::proxy::FaultProxy;
pub use self::signal::Signal;
pub use self::trace::{Exchange, SeenFrame, Trace};
pub use self::upstream::Upstream;

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
