//! Replicas share work by slots: the protocol as a state machine without clock, network or waiting.
//!
//! Reading order: `docs/sharing-work.md` specifies the protocol and says why it is safe. [`View`] is what a replica sees of the
//! cluster, [`Request`] is what it asks for, and [`Replica`] is the whole behaviour. [`slot_of`] gives the slot of an object.
#![deny(missing_docs)]

mod config;
mod hash;
mod replica;
mod view;

pub use config::{Config, ConfigError};
pub use hash::slot_of;
pub use replica::{Duty, Fence, Replica};
pub use view::{Lease, Moment, ReplicaId, Request, Slot, SlotMap, View};

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
