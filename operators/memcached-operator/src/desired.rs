//! The children of a Memcached as they should be: names, labels and specs. The runtime adds namespace and owner.

mod deployment;
mod disruption_budget;
mod exporter;
mod network_policy;
mod service;
mod service_monitor;

pub use deployment::{CONTAINER, PROGRESS_DEADLINE_SECONDS, deployment};
pub use disruption_budget::disruption_budget;
pub use network_policy::network_policy;
pub use service::service;
pub use service_monitor::service_monitor;
