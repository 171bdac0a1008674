//! Views of built-in kinds, and what operators that run pods share: rollout state, pod diagnosis, disruption budgets.
//!
//! Everything here is pure: values in, values out. The runtime (`manager`) decodes and stores the views.

mod live;

pub use live::{Child, Live, Viewed};
