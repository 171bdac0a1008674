//! What operators that run pods share: views of built-in kinds, rollout state, pod diagnosis, builders. Pure: values in,
//! values out; the runtime (`manager`) decodes and stores the views.
//!
//! Reading order: [`live`](Live) (what the cache keeps of an object) → one file a kind ([`DeploymentView`],
//! [`ServiceView`], [`PodDisruptionBudgetView`], [`PodView`]) → [`rollout`] and [`pods`] (what the views say together) →
//! [`App`], [`restricted`] and [`disruption_budget`] (what every child has) → [`schemas`] (core types in custom resources).

mod app;
mod budget;
mod defaults;
mod deployment;
mod disruption_budget;
mod fence;
mod live;
mod pod;
pub mod pods;
pub mod quantity;
pub mod restricted;
pub mod rollout;
pub mod schemas;
mod service;
mod text;
#[cfg(test)]
mod weight;

pub use app::App;
pub use budget::disruption_budget;
pub use deployment::{DeploymentView, Progress};
pub use disruption_budget::PodDisruptionBudgetView;
pub use fence::Fence;
pub use live::{Child, Live, Viewed};
pub use pod::{Phase, PodView, Trouble};
pub use service::ServiceView;
