//! The desired children of a Memcached: names, labels and specs. The runtime adds the namespace and the owner reference.

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
