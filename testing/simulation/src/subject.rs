//! What the world must know about an operator, and about services outside the cluster with which it works.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use jiff::Timestamp;
use manager::Operator;
use model_apiserver::{Change, Model};
use serde_json::{Map, Value};

/// The required behaviour of an operator. An implementation uses nothing of the operator's code except the operator itself: if it
/// called `desired()`, it would accept the mistakes in that code.
pub trait Subject: Send + Sync {
    /// The operator under test.
    fn operator(&self) -> &'static dyn Operator;

    /// Flags of its process, in addition to those that the world sets.
    fn flags(&self) -> &'static [&'static str] {
        &[]
    }

    /// `apiVersion` and `kind` of the primary.
    fn kind(&self) -> (&'static str, &'static str);

    /// The resource of the primary, such as `memcacheds.memcached.cache.example.com`.
    fn resource(&self) -> &'static str;

    /// The resources of the children, such as `deployments.apps`.
    fn children(&self) -> &'static [&'static str];

    /// The resources of other objects that the operator makes and owns, such as `secrets`. They have to have owners as children have,
    /// but no disturbance is about one of them.
    fn makes(&self) -> &'static [&'static str] {
        &[]
    }

    /// The resources of users' objects that the operator changes, and neither makes nor deletes, such as `deployments.apps`.
    fn changes(&self) -> &'static [&'static str] {
        &[]
    }

    /// Draws a valid spec for the object of this name. Each optional field is absent in some specs; immutable fields always have
    /// the same value, apart from those that [`immutable`](Subject::immutable) lists.
    fn spec(&self, name: &str, rng: &mut Rng) -> Value;

    /// Draws fields of a spec that [`spec`](Subject::spec) does not draw; null where the field is absent. What is here replaces what
    /// `spec` has drawn. They are apart because worlds that were saved before have no such fields, see
    /// [`Plan::has_further_fields`](crate::Plan::has_further_fields). By default, there are none.
    fn further_fields(&self, _rng: &mut Rng) -> Map<String, Value> {
        Map::new()
    }

    /// Fields of the spec that the API server lets no user change, and of which [`spec`](Subject::spec) draws any value. Users keep
    /// those that an object has. Some try to change them.
    fn immutable(&self) -> &'static [&'static str] {
        &[]
    }

    /// Draws a merge patch for a child of this resource that changes a field which the operator sets. `None` if children of this
    /// kind are immutable.
    fn damage(&self, resource: &str, rng: &mut Rng) -> Option<Value>;

    /// Checks that the cluster is as this object requires. The object is neither paused nor being deleted. The world is at rest,
    /// or the condition `Ready` of the object is true.
    ///
    /// # Errors
    ///
    /// Describes what is wrong.
    fn judge(&self, object: &Value, cluster: &Model) -> Result<(), String>;

    /// Checks that the cluster is as this object claims by its condition `Ready`, which is true. The world has not changed for a
    /// while, and may change by itself later. By default, [`judge`](Subject::judge) checks it; objects that never come to rest
    /// by themselves need a check of their own.
    ///
    /// # Errors
    ///
    /// Describes what is wrong.
    fn judge_claim(&self, object: &Value, cluster: &Model) -> Result<(), String> {
        if self.calm().is_some() { Ok(()) } else { self.judge(object, cluster) }
    }

    /// Checks what the object says of its rollout, which has made no progress for longer than its deadline. Its Deployment has
    /// reported that for at least `stalled_for`, and the operator has had time to write the status. The clocks show `now`. By
    /// default, the object need not say anything; [`oracle::tells_of_stall`](crate::oracle::tells_of_stall) checks what the
    /// specification requires of those that do.
    ///
    /// # Errors
    ///
    /// Describes what is wrong.
    fn judge_stall(&self, _object: &Value, _stalled_for: Duration, _now: Timestamp) -> Result<(), String> {
        Ok(())
    }

    /// Checks how the operator has changed an object of this kind. By default, every change is right.
    ///
    /// # Errors
    ///
    /// Describes what is wrong.
    fn judge_change(&self, _before: &Value, _after: &Value) -> Result<(), String> {
        Ok(())
    }

    /// Whether the object records that this child was created, so that the operator must not create a child of this name again,
    /// even after the child is gone. By default, the operator may recreate children.
    fn remembers(&self, _object: &Value, _child: &Value) -> bool {
        false
    }

    /// Whether the operator must not create this child again after it has deleted it itself, even if the object does not record the
    /// child. By default, the operator may.
    fn happens_once(&self, _child: &Value) -> bool {
        false
    }

    /// Draws an object that users write and the operator only reads, such as a Secret to which specs refer. It has no namespace.
    /// `None` if the operator reads no such objects.
    fn input(&self, _rng: &mut Rng) -> Option<Value> {
        None
    }

    /// As [`input`](Subject::input), in worlds with [`further_fields`](Subject::further_fields): those fields may refer to other
    /// objects too.
    fn further_input(&self, rng: &mut Rng) -> Option<Value> {
        self.input(rng)
    }

    /// Draws a merge patch with which a user requests something that happens once, such as a run. No two requests are the same.
    /// `None` if users cannot request anything.
    fn request(&self, _rng: &mut Rng) -> Option<Value> {
        None
    }

    /// Whether the operator puts finalizers on its objects.
    fn has_finalizers(&self) -> bool {
        false
    }

    /// Creates what lies outside the cluster in one world, for operators that work with it. `note` adds a line to the trace.
    fn outside(&self, _seed: u64, _note: Note) -> Option<Arc<dyn ExternalService>> {
        None
    }

    /// Whether something outside the cluster may stay after this object, which is being deleted, is gone.
    fn may_leave_something(&self, _object: &Value) -> bool {
        false
    }

    /// The merge patch with which users bring objects to rest that never come to rest by themselves. `None` for other objects.
    fn calm(&self) -> Option<Value> {
        None
    }

    /// Checks that everything has happened that this object requires in a period without disturbances. At its begin, a user makes
    /// a [`request`](Subject::request) of each object. The object is not paused. The world calls this only for subjects with
    /// [`calm`](Subject::calm).
    ///
    /// # Errors
    ///
    /// Describes what is wrong.
    fn judge_period(&self, _object: &Value, _period: &Period) -> Result<(), String> {
        Ok(())
    }
}

/// Adds a line to the trace.
pub type Note = Arc<dyn Fn(String) + Send + Sync>;

/// A process of the operator, as what lies outside the cluster meets it.
#[derive(Clone)]
pub struct Caller {
    alive: Arc<AtomicBool>,
    note_write: Arc<dyn Fn() + Send + Sync>,
}

impl Caller {
    pub(crate) fn new(alive: Arc<AtomicBool>, note_write: impl Fn() + Send + Sync + 'static) -> Self {
        Self { alive, note_write: Arc::new(note_write) }
    }

    /// Whether the process runs. A killed one sends nothing and receives nothing.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// Takes in that the process sends a request which may change something outside. The world checks that only the leader does.
    pub fn sends_write(&self) {
        (self.note_write)();
    }
}

/// What lies outside the cluster, such as the service of a provider. It uses tokio's simulated time.
pub trait ExternalService: Send + Sync {
    /// Creates the operator for one process, which reaches the outside as this caller.
    fn operator(&self, caller: Caller) -> Box<dyn Operator>;

    /// Makes something happen there, such as an outage, which may last as long as `time`. Returns whether that had an effect.
    fn act(&self, object: &Value, time: Duration, rng: &mut Rng) -> bool;

    /// Decides, in place of the provider of the service, about what the object has there: an airline rejects a booking, for
    /// instance. Returns whether that had an effect. By default, the provider decides nothing.
    fn decide(&self, _object: &Value, _rng: &mut Rng) -> bool {
        false
    }

    /// Whether [`decide`](Self::decide) ever has an effect.
    fn decides(&self) -> bool {
        false
    }

    /// Draws a merge patch with which a user lets the object of this name adopt or observe something there. A user may have made
    /// it there just before, without the operator; it may also belong to another object, or not exist. `None` if objects cannot
    /// adopt or observe anything.
    fn import(&self, _namespace: &str, _name: &str, _rng: &mut Rng) -> Option<Value> {
        None
    }

    /// Takes in a change of an object, and whether the operator has made it.
    fn changed(&self, _change: &Change, _by_operator: bool) {}

    /// Starts over after a restore of the cluster, or after its loss. These objects exist now.
    fn restored(&self, _objects: &[Value]) {}

    /// Ends all disturbances there.
    fn heal(&self);

    /// Checks what must hold at every moment. `has_silent_watch` tells whether a watch of the objects is silent: until the
    /// operator gives it up, it may not know how they have changed.
    ///
    /// # Errors
    ///
    /// Describes what is wrong.
    fn check(&self, has_silent_watch: bool) -> Result<(), String>;

    /// Checks that the outside is as this object claims by its condition `Ready`, which is true. The operator may not know yet
    /// what has happened there without it.
    ///
    /// # Errors
    ///
    /// Describes what is wrong.
    fn judge_claim(&self, _object: &Value) -> Result<(), String> {
        Ok(())
    }

    /// Checks that the outside agrees with the existing objects, when the world is at rest. `is_excused` returns whether
    /// something that belongs to a uid may be left behind, because the operator cannot know about it any more.
    ///
    /// # Errors
    ///
    /// Describes what is wrong.
    fn judge(&self, objects: &[Value], is_excused: &dyn Fn(&str) -> bool) -> Result<(), String>;
}

/// A period of simulated time, and what has happened in it.
#[derive(Debug)]
pub struct Period {
    /// Begin of the period.
    pub from: Timestamp,
    /// The latest time that the clocks had shown before the period. It is after `from` if they were put back.
    pub latest_before: Timestamp,
    /// End of the period.
    pub until: Timestamp,
    /// All changes of the cluster in the period.
    pub changes: Vec<Change>,
}
