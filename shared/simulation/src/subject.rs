//! What the world must know of an operator.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use fastrand::Rng;
use jiff::Timestamp;
use manager::Operator;
use model_apiserver::{Change, Model};
use serde_json::Value;

/// An operator as its specification describes it. An implementation uses nothing of the operator's code but the operator itself:
/// who asks `desired()` what is right agrees with it, also where it is wrong.
pub trait Subject: Send + Sync {
    /// The operator.
    fn operator(&self) -> &'static dyn Operator;

    /// Flags of its process, beside those that the world gives.
    fn flags(&self) -> &'static [&'static str] {
        &[]
    }

    /// `apiVersion` and `kind` of its objects.
    fn kind(&self) -> (&'static str, &'static str);

    /// The resource of its objects, such as `memcacheds.memcached.cache.example.com`.
    fn resource(&self) -> &'static str;

    /// The resources of the children, such as `deployments.apps`.
    fn children(&self) -> &'static [&'static str];

    /// A valid spec for the object of this name. Each optional field is absent in some; what cannot be changed is always the same.
    fn spec(&self, name: &str, rng: &mut Rng) -> Value;

    /// A merge patch of a child of this resource that changes what the operator decides; `None` if its kind cannot be changed.
    fn damage(&self, resource: &str, rng: &mut Rng) -> Option<Value>;

    /// Whether the cluster is as the specification says for this object, which is neither paused nor being deleted, when all has
    /// come to rest; or what is wrong.
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    fn judge(&self, object: &Value, cluster: &Model) -> Result<(), String>;

    /// Whether the object says that this child of it was made, so that it is not made again under its name, whatever becomes of
    /// it. Children of most kinds are.
    fn remembers(&self, _object: &Value, _child: &Value) -> bool {
        false
    }

    /// The Secrets that specs name, each with its keys.
    fn secrets(&self) -> &'static [(&'static str, &'static [&'static str])] {
        &[]
    }

    /// Whether the operator puts finalizers on its objects.
    fn has_finalizers(&self) -> bool {
        false
    }

    /// What lies outside the cluster in one world, for operators that work with it. `note` adds a line to the trace.
    fn outside(&self, _seed: u64, _note: Note) -> Option<Arc<dyn Outside>> {
        None
    }

    /// Whether something outside may stay when this object, which is being deleted, goes.
    fn may_leave_something(&self, _object: &Value) -> bool {
        false
    }

    /// For objects that never come to rest by themselves: a merge patch by which users make them.
    fn calm(&self) -> Option<Value> {
        None
    }

    /// Whether all has happened that the specification asks for in a time in which nothing disturbed, of an object that was not
    /// paused. Asked only of subjects with [`calm`](Subject::calm).
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    fn judge_period(&self, _object: &Value, _period: &Period) -> Result<(), String> {
        Ok(())
    }
}

/// Adds a line to the trace.
pub type Note = Arc<dyn Fn(String) + Send + Sync>;

/// What lies outside the cluster, such as somebody's service. It has the simulated time of tokio.
pub trait Outside: Send + Sync {
    /// The operator in a process that reaches it, while `alive` says so.
    fn operator(&self, alive: Arc<AtomicBool>) -> Box<dyn Operator>;

    /// Something happens there, such as an outage, which may last as long as `time`. Returns whether that had an effect.
    fn act(&self, object: &Value, time: Duration, rng: &mut Rng) -> bool;

    /// All is well there again.
    fn heal(&self);

    /// What must never be so.
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    fn check(&self) -> Result<(), String>;

    /// Whether it agrees with the objects that there are, when all has come to rest. `is_excused` says of a uid that what
    /// belongs to it may have been left behind: nobody could know of it any more.
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    fn judge(&self, objects: &[Value], is_excused: &dyn Fn(&str) -> bool) -> Result<(), String>;
}

/// What has happened in a time.
#[derive(Debug)]
pub struct Period {
    /// Its begin.
    pub from: Timestamp,
    /// Its end.
    pub until: Timestamp,
    /// All changes of the cluster in it.
    pub changes: Vec<Change>,
}
