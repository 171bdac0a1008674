//! Lets in who may read metrics.
//!
//! As a program, it is the sidecar in front of a metrics endpoint, with the flags of kube-rbac-proxy. As a library, it puts
//! the same guard before a handler of one's own:
//!
//! ```ignore
//! let guard = Arc::new(Guard::new(Rules::default(), Arc::new(ApiServer::new(client, vec![])), Times::default(), metrics));
//! let routes = Router::new().route("/metrics", get(metrics)).layer(middleware::from_fn_with_state(guard, metrics_proxy::admit));
//! ```
//!
//! Reading order: [`policy`] is everything that can be decided without asking, [`Guard`] asks the rest, through `cache`, of a
//! [`Reviewer`], which is the [`ApiServer`]. `proxy` hands on what was admitted, `forward` what of it; [`Flags`] are the command line
//! and [`Program`] the whole process.

mod api_server;
mod cache;
mod flags;
mod forward;
mod guard;
mod metrics;
pub mod policy;
mod program;
mod proxy;
mod refusal;
mod reviewer;

pub use api_server::{ApiServer, ClientError, client};
pub use flags::{FlagError, Flags, LogFormat};
pub use guard::{Admitted, Guard, Rules, Times, admit};
pub use metrics::Metrics;
pub use program::{Fatal, Program, self_signed};
pub use refusal::Refusal;
pub use reviewer::{Decision, ReviewError, Reviewer};
