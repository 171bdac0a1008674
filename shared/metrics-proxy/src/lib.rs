//! Protects a metrics endpoint: the API server authenticates and authorises each client.
//!
//! As a program, it is a sidecar in front of a metrics endpoint, with the flags of kube-rbac-proxy. As a library, it puts the
//! same guard in front of an axum handler:
//!
//! ```ignore
//! let guard = Arc::new(Guard::new(Rules::default(), Arc::new(ApiServer::new(client, vec![])), CacheTtls::default(), metrics));
//! let routes = Router::new().route("/metrics", get(metrics)).layer(middleware::from_fn_with_state(guard, metrics_proxy::admit));
//! ```
//!
//! Reading order: [`policy`] has the decisions that need no API server. [`Guard`] sends the others, through `cache` and a `lane`, to a
//! [`Reviewer`], which is the [`ApiServer`] in production. `proxy` forwards admitted requests, and `forward` selects their
//! headers. [`Flags`] are the command line, and [`Program`] is the whole process.
#![deny(missing_docs)]

mod api_server;
mod cache;
mod flags;
mod forward;
mod guard;
mod lane;
mod metrics;
pub mod policy;
mod program;
mod proxy;
mod refusal;
mod reviewer;

pub use api_server::{ApiServer, ClientError, client};
pub use flags::{FlagError, Flags, LogFormat, duration};
pub use guard::{Admitted, CacheTtls, Guard, Rules, admit};
pub use metrics::Metrics;
pub use program::{Fatal, Program, self_signed};
pub use refusal::Refusal;
pub use reviewer::{Decision, ReviewError, Reviewer};

/// Where kube logs each failed request as an error. The sender of a request reports its failure, and clients without credentials cause
/// reviews, so a program with a [`Guard`] silences this target.
pub const EACH_FAILED_REQUEST: &str = "kube_client::client::builder";
