//! Code shared by operators that run pods: views of built-in kinds, rollout state, pod diagnosis, builders. All functions are
//! pure: values in, values out. The runtime (`manager`) decodes and stores the views.
//!
//! Reading order: [`live`](Live) (the cached form of an object) → one file per kind ([`DeploymentView`], [`ServiceView`],
//! [`PodDisruptionBudgetView`], [`NetworkPolicyView`], [`ServiceMonitorView`], [`JobView`], [`PodView`]) → [`rollout`],
//! [`RolloutProgress`], [`pods`] and [`Fleet`] (conclusions from several views) → [`App`], [`SecurityProfile`], [`deployment`],
//! [`service`] and [`DisruptionBudget`] (the parts that children share) → [`schemas`] and [`normalize`] (core types in custom
//! resources: their schemas, and their normal form).
#![deny(missing_docs)]

mod app;
mod as_view;
mod budget;
mod condition;
mod config_map;
mod defaults;
mod deployed;
mod deployment;
mod disruption_budget;
mod fence;
mod fleet;
mod health;
mod image;
mod job;
mod live;
#[cfg(test)]
mod memory_size;
mod network_policy;
pub mod normalize;
mod pod;
pub mod pods;
mod present;
mod problem;
pub mod quantity;
pub mod rollout;
mod rollout_progress;
pub mod schemas;
mod scope;
mod security;
mod service;
mod service_monitor;
mod text;

pub use app::App;
pub use as_view::{As, ViewOf, Whole, WholeView};
pub use budget::{BudgetMode, DisruptionBudget};
pub use config_map::ConfigMapView;
pub use deployed::{RolloutStrategy, deployment, service};
pub use deployment::{DeploymentView, Progress};
pub use disruption_budget::PodDisruptionBudgetView;
pub use fence::Fence;
pub use fleet::{Fleet, FleetWording, refused_pods};
pub use health::{Health, Verdict};
pub use image::{ImagePullPolicy, runs_latest};
pub use job::{End, JobView};
pub use live::{Child, Live, Viewed};
pub use network_policy::NetworkPolicyView;
pub use pod::{LAST_WORDS, Phase, PodView, Trouble};
pub use present::ClockReading;
pub use problem::{Problem, ProblemKind};
pub use rollout::Proof;
pub use rollout_progress::RolloutProgress;
pub use scope::{MayOwn, Scope, Scoped};
pub use security::{SecurityPolicy, SecurityProfile};
pub use service::ServiceView;
pub use service_monitor::{Endpoint, ServiceMonitor, ServiceMonitorSpec, ServiceMonitorView, service_monitor};

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
