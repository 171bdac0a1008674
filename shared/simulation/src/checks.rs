//! What must never happen, whatever the world does: looked for in every change that the API server stores.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use model_apiserver::{Change, Model};
use serde_json::Value;

use crate::{
    controllers::text,
    network::{Network, OPERATOR},
    subject::Subject,
    trace::Trace,
};

/// Follows the changes of one world.
pub(crate) struct Checks {
    model: Model,
    subject: &'static dyn Subject,
    trace: Trace,
    /// Everything up to this version was looked at.
    version: u64,
    /// When something last changed that is not about leadership.
    changed: Duration,
    /// When each process sent the request that made it the leader, or kept it.
    leads_since: BTreeMap<String, Duration>,
    /// Whether one of several processes is elected.
    is_elected: bool,
    /// Until then, requests may arrive that were made for the cluster as it was before it was restored.
    lenient_until: Duration,
    /// When each condition of each object last changed, by uid and type.
    transitions: BTreeMap<(String, String), Timestamp>,
    /// Events that were created, by the object's uid.
    events: BTreeMap<String, u32>,
    /// The objects as they were at the change that is looked at, by uid.
    objects: BTreeMap<String, Arc<Value>>,
    /// Objects whose things outside may have been left behind, by uid.
    excused: BTreeSet<String>,
    /// Whether the cluster was ever restored: then nobody may know of what was made in the lost time.
    was_restored: bool,
    /// The version of the last change that is neither about leadership, nor an event, nor a status of an object.
    other: u64,
    /// The version of the last status that the operator has written, by uid.
    stated: BTreeMap<String, u64>,
    /// The version of the last change that is not about leadership.
    last: u64,
    /// When that was the last change, it was looked whether statuses are true.
    believed: u64,
    /// Children that must not be made again, by resource, key and the uid of their owner.
    made: BTreeSet<(Arc<str>, Arc<str>, String)>,
}

/// No request takes longer.
const IN_FLIGHT: Duration = Duration::from_mins(1);
/// For so long a process leads after it has asked for the lease the last time with success.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// As many events of one object an hour as the recorder lets through: a burst, and then one every five minutes.
const EVENTS: u32 = 25 + 12 + 1;

impl Checks {
    pub(crate) fn new(model: &Model, subject: &'static dyn Subject, trace: Trace, is_elected: bool) -> Self {
        let (changed, leads_since, transitions, events, objects, excused, was_restored, made) = Default::default();
        let (other, stated, last, believed) = Default::default();
        Self {
            model: model.clone(),
            subject,
            trace,
            version: model.version(),
            changed,
            leads_since,
            is_elected,
            transitions,
            events,
            objects,
            excused,
            was_restored,
            made,
            other,
            stated,
            last,
            believed,
            lenient_until: Duration::ZERO,
        }
    }

    /// After a restore, versions begin again.
    pub(crate) fn restored(&mut self) {
        self.version = self.model.version();
        self.transitions.clear();
        self.was_restored = true;
        self.made.clear();
        self.objects.clear();
        self.stated.clear();
        (self.other, self.last, self.believed) = (self.version, self.version, self.version);
        self.lenient_until = self.trace.now() + IN_FLIGHT;
    }

    /// Looks at everything that has changed since the last call.
    pub(crate) fn follow(&mut self, network: &Network) -> Result<(), String> {
        for change in self.model.changes_after(self.version) {
            self.version = change.version;
            if is_about_leadership(&change) {
                self.note_leader(&change, network);
                continue;
            }
            (self.changed, self.last) = (self.trace.now(), change.version);
            let what = match (&change.before, &change.after) {
                (None, _) => "created",
                (_, None) => "gone",
                _ => "changed",
            };
            self.trace
                .note(format!("= {} {} {} {what} by {:?}", change.version, change.resource, change.key, change.writer));
            self.remember(&change);
            self.note_status(&change);
            if change.writer.starts_with(OPERATOR) {
                self.check(&change, network).map_err(|why| format!("{} {}: {why}", change.resource, change.key))?;
            }
        }
        self.check_leaders(network)
    }

    /// When something last changed that is not about leadership.
    pub(crate) fn changed(&self) -> Duration {
        self.changed
    }

    fn note_leader(&mut self, change: &Change, network: &Network) {
        if !change.resource.starts_with("leases") {
            return;
        }
        let holds = change.after.as_ref().is_some_and(|lease| !text(&lease["spec"]["holderIdentity"]).is_empty());
        if let Some(asked) = network.asked_for_the_lease(&change.writer).filter(|_| holds) {
            self.leads_since.insert(change.writer.to_string(), asked);
        }
    }

    fn note_status(&mut self, change: &Change) {
        let is_status = *change.resource == *self.subject.resource() && change.writer.starts_with(OPERATOR);
        match change.after.as_deref().filter(|_| is_status) {
            Some(object) => drop(self.stated.insert(text(&object["metadata"]["uid"]), change.version)),
            None if change.resource.starts_with("events") => {}
            None => self.other = change.version,
        }
    }

    /// Who says that an object is ready, and has said so after all else, is right. Asked when nothing has changed, and nothing
    /// was disturbed, for longer than an event takes.
    pub(crate) fn check_claims(&mut self) -> Result<(), String> {
        if self.believed == self.last || self.subject.calm().is_some() {
            return Ok(());
        }
        self.believed = self.last;
        for object in self.model.objects(self.subject.resource()) {
            let (metadata, status) = (&object["metadata"], &object["status"]);
            let ready = condition(status, "Ready");
            let is_claimed = ready["status"] == "True"
                && ready["reason"] != "Paused"
                && status["observedGeneration"] == metadata["generation"]
                && metadata["deletionTimestamp"].is_null();
            let is_last = self.stated.get(&text(&metadata["uid"])).is_some_and(|version| *version > self.other);
            if is_claimed && is_last {
                let judged = self.subject.judge(&object, &self.model);
                judged.map_err(|why| format!("{} says that it is ready, and {why}", text(&metadata["name"])))?;
            }
        }
        Ok(())
    }

    /// Nobody has written after his leadership had ended, by his own clock.
    fn check_leaders(&self, network: &Network) -> Result<(), String> {
        let writes = network.take_writes();
        if !self.is_elected || self.trace.now() < self.lenient_until {
            return Ok(());
        }
        for (sent, process) in writes {
            let since = self.leads_since.get(&process);
            if since.is_none_or(|since| sent > *since + RENEW_DEADLINE) {
                return Err(format!("{process} writes at {sent:?}, and has led since {since:?}"));
            }
        }
        Ok(())
    }

    fn check(&mut self, change: &Change, network: &Network) -> Result<(), String> {
        if *change.resource == *self.subject.resource() {
            if let (Some(before), Some(after)) = (&change.before, &change.after) {
                // The watch may bring what was written later than this.
                let is_unsure = network.has_lost_answers(&change.key, IN_FLIGHT);
                return self.check_status(before, after, is_unsure);
            }
        } else if self.subject.children().contains(&&*change.resource) {
            self.check_owner(change)?;
            self.check_once(change)?;
        } else if change.resource.starts_with("events") && change.before.is_none() {
            let uid = change.after.as_ref().map(|event| text(&event["regarding"]["uid"])).unwrap_or_default();
            let count = self.events.entry(uid).or_default();
            *count += 1;
            if *count > 3 * EVENTS {
                return Err(format!("{count} events of one object"));
            }
        }
        Ok(())
    }

    /// The operator writes nothing of its objects but status, finalizers and annotations, and says nothing of a later spec.
    fn check_status(&mut self, before: &Value, after: &Value, is_unsure: bool) -> Result<(), String> {
        if before["spec"] != after["spec"] {
            return Err("the operator has changed a spec".to_owned());
        }
        let (observed, generation) = (&after["status"]["observedGeneration"], &after["metadata"]["generation"]);
        if self.trace.now() < self.lenient_until {
            return Ok(());
        }
        if observed.as_i64() > generation.as_i64() {
            return Err(format!("observedGeneration {observed} of generation {generation}"));
        }
        let uid = text(&after["metadata"]["uid"]);
        // One that goes and comes back is a new one.
        self.transitions.retain(|(of, type_), _| *of != uid || !condition(&after["status"], type_).is_null());
        for condition in after["status"]["conditions"].as_array().into_iter().flatten() {
            let type_ = text(&condition["type"]);
            let Ok(time) = text(&condition["lastTransitionTime"]).parse::<Timestamp>() else {
                return Err(format!("{type_} has no lastTransitionTime"));
            };
            if condition["observedGeneration"].as_i64() > generation.as_i64() {
                return Err(format!("{type_} observes {} of generation {generation}", condition["observedGeneration"]));
            }
            let last = self.transitions.insert((uid.clone(), type_.clone()), time);
            if !is_unsure && last.is_some_and(|last| time < last) {
                return Err(format!("{type_} went back in time, to {time}"));
            }
        }
        Ok(())
    }

    /// What the operator writes was its own before, or could be adopted, and is its own afterwards.
    fn check_owner(&self, change: &Change) -> Result<(), String> {
        let controller = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            owners.into_iter().find(|owner| owner["controller"] == true)
        };
        let (_, kind) = self.subject.kind();
        let is_ours = |object: &Value| controller(object).is_some_and(|owner| owner["kind"] == kind);
        let is_adoptable = |object: &Value| {
            let labels = &object["metadata"]["labels"];
            controller(object).is_none() && text(&labels["app.kubernetes.io/managed-by"]).ends_with("-operator")
        };
        match (change.before.as_deref(), change.after.as_deref()) {
            (Some(before), _) if !is_ours(before) && !is_adoptable(before) => {
                Err(format!("the operator has written what is not its own: {}", before["metadata"]))
            }
            // What is adopted gets its owner with the second of two requests.
            (Some(before), Some(_)) if is_adoptable(before) => Ok(()),
            (_, Some(after)) if !is_ours(after) => {
                Err(format!("the operator has made a child that is nobody's: {}", after["metadata"]))
            }
            _ => Ok(()),
        }
    }

    /// What the object remembers is not made again.
    fn check_once(&self, change: &Change) -> Result<(), String> {
        let (None, Some(child)) = (&change.before, &change.after) else { return Ok(()) };
        let made = (change.resource.clone(), change.key.clone(), owner(child));
        if self.made.contains(&made) { Err("it was made before".to_owned()) } else { Ok(()) }
    }

    /// Notes objects, and children that go.
    fn remember(&mut self, change: &Change) {
        if *change.resource == *self.subject.resource() {
            if let Some(object) = &change.after {
                self.objects.insert(text(&object["metadata"]["uid"]), object.clone());
            }
            self.excuse(change);
        } else if let (Some(child), None) = (&change.before, &change.after) {
            let owner = owner(child);
            if self.objects.get(&owner).is_some_and(|object| self.subject.remembers(object, child)) {
                self.made.insert((change.resource.clone(), change.key.clone(), owner));
            }
        }
    }
}

impl Checks {
    /// Whether what belongs to this uid outside the cluster may have been left behind.
    pub(crate) fn is_excused(&self, uid: &str) -> bool {
        self.was_restored || self.excused.contains(uid)
    }

    /// Notes that people take a finalizer away, or want something to stay.
    fn excuse(&mut self, change: &Change) {
        let finalizers = |object: &Value| object["metadata"]["finalizers"].as_array().map_or(0, Vec::len);
        let before = change.before.as_deref().unwrap_or(&Value::Null);
        let after = change.after.as_deref().unwrap_or(&Value::Null);
        let was_forced = !change.writer.starts_with(OPERATOR) && finalizers(after) < finalizers(before);
        let is_deleted = !after["metadata"]["deletionTimestamp"].is_null();
        if was_forced || (is_deleted && self.subject.may_leave_something(after)) {
            self.excused.insert(text(&before["metadata"]["uid"]));
        }
    }
}

/// Whether it is a lease that changes, or an event that tells of one.
pub(crate) fn is_about_leadership(change: &Change) -> bool {
    let tells = |event: &Value| event["regarding"]["kind"] == "Lease";
    change.resource.starts_with("leases") || change.after.as_deref().is_some_and(tells)
}

/// The uid of the owner.
fn owner(child: &Value) -> String {
    text(&child["metadata"]["ownerReferences"][0]["uid"])
}

/// What the end of a world must look like for every object, beside what the specification of its kind says.
pub(crate) fn judge(subject: &dyn Subject, model: &Model, group: &str, object: &Value) -> Result<(), String> {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    if !metadata["deletionTimestamp"].is_null() {
        return Err("it is still being deleted".to_owned());
    }
    if status["observedGeneration"] != metadata["generation"] {
        return Err(format!("{} was acted on, not {}", status["observedGeneration"], metadata["generation"]));
    }
    let asked = &metadata["annotations"][format!("{group}/reconcile-requested-at")];
    if status["lastHandledReconcileAt"] != *asked {
        return Err(format!("request {} was handled, not {asked}", status["lastHandledReconcileAt"]));
    }
    let ready = condition(status, "Ready");
    let is_paused = metadata["annotations"][format!("{group}/paused")] == "true";
    if is_paused != (ready["reason"] == "Paused") {
        return Err(format!("paused: {is_paused}, and Ready says {}", ready["reason"]));
    }
    if is_paused { Ok(()) } else { subject.judge(object, model) }
}

/// What has no owner is gone.
pub(crate) fn no_orphans(subject: &dyn Subject, model: &Model) -> Result<(), String> {
    let live: Vec<Value> = model.objects(subject.resource()).iter().map(|it| it["metadata"]["uid"].clone()).collect();
    for resource in subject.children() {
        for child in model.objects(resource) {
            for owner in child["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
                if !live.contains(&owner["uid"]) {
                    return Err(format!("{resource} {} has outlived its owner", child["metadata"]["name"]));
                }
            }
        }
    }
    Ok(())
}

/// The condition of a status, or null.
pub fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
    let conditions = status["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|it| it["type"] == type_)).unwrap_or(&Value::Null)
}
