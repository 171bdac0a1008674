//! What operators that run pods share: views of built-in kinds, rollout state, pod diagnosis, builders. Pure: values in,
//! values out; the runtime (`manager`) decodes and stores the views.
//!
//! Reading order: [`live`](Live) (what the cache keeps of an object) → one file a kind ([`DeploymentView`],
//! [`ServiceView`], [`PodDisruptionBudgetView`], [`NetworkPolicyView`], [`ServiceMonitorView`], [`JobView`], [`PodView`]) → [`rollout`], [`pods`] and
//! [`Fleet`] (what the views say together) → [`App`], [`SecurityProfile`], [`deployment`], [`service`] and
//! [`DisruptionBudget`] (what children have in common) → [`schemas`] and [`given`] (core types in custom resources: how they
//! are offered, and how they are passed on).

mod app;
mod budget;
mod config_map;
mod defaults;
mod deployed;
mod deployment;
mod disruption_budget;
mod fence;
mod fleet;
pub mod given;
mod health;
mod image;
mod job;
mod live;
mod network_policy;
mod pod;
pub mod pods;
mod present;
pub mod quantity;
pub mod rollout;
pub mod schemas;
mod security;
mod service;
mod service_monitor;
mod text;
#[cfg(test)]
mod weight;

pub use app::App;
pub use budget::{BudgetMode, DisruptionBudget};
pub use config_map::ConfigMapView;
pub use deployed::{Pace, deployment, service};
pub use deployment::{DeploymentView, Progress};
pub use disruption_budget::PodDisruptionBudgetView;
pub use fence::Fence;
pub use fleet::{Fleet, Words};
pub use health::{Health, Problem, Verdict};
pub use image::{ImagePullPolicy, runs_latest};
pub use job::{End, JobView};
pub use live::{Child, Live, Viewed};
pub use network_policy::NetworkPolicyView;
pub use pod::{Phase, PodView, Trouble};
pub use present::Present;
pub use security::SecurityProfile;
pub use service::ServiceView;
pub use service_monitor::{Endpoint, ServiceMonitor, ServiceMonitorSpec, ServiceMonitorView, service_monitor};
