//! Checks of what must never happen, whatever the world does. They look at every change that the API server stores, and at the
//! objects that remain at the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use model_apiserver::{Change, Model};
use serde_json::Value;

use crate::{
    namespaces::WatchedNamespaces,
    network::{Network, OPERATOR},
    objects::{is_about_leadership, owner, text},
    stalls::Stalls,
    subject::Subject,
    subjects::{Cast, Role},
    terms::Terms,
    trace::Trace,
};

/// Checks the changes of one world.
pub(crate) struct Checks {
    model: Model,
    cast: Cast,
    namespaces: Arc<WatchedNamespaces>,
    trace: Trace,
    /// All changes up to this version are checked.
    version: u64,
    /// The time of the last change that does not concern leader election.
    changed: Duration,
    terms: Terms,
    /// Whether several processes elect a leader.
    is_elected: bool,
    /// Until then, requests from before a restore may still arrive, so some checks pause.
    lenient_until: Duration,
    /// The last transition time of each condition, by uid of the object and type.
    transitions: BTreeMap<(String, String), Timestamp>,
    /// Number of Events about each object that a process has created since its start, by the name of the process and the uid.
    events: BTreeMap<(String, String), u64>,
    /// When each process started.
    begun: BTreeMap<String, Duration>,
    /// How often the condition `Ready` of an object was checked.
    claims: u64,
    /// The primaries as of the change that is being checked, each with its operator, by uid.
    objects: BTreeMap<String, (&'static dyn Subject, Arc<Value>)>,
    /// Uids of the primaries whose resources outside the cluster may be left behind.
    excused: BTreeSet<String>,
    /// Whether the cluster was ever restored. After that, the operator may not know what it made in the lost time.
    was_restored: bool,
    /// Uids of the primaries that users have created since the last restore. No restore has hidden anything of them.
    fresh: BTreeSet<String>,
    /// The version of the last change other than leader election, Events, and what the operator writes to its primaries.
    other: u64,
    /// The version of the operator's last write to each primary, by uid.
    stated: BTreeMap<String, u64>,
    /// The version of the last change that does not concern leader election.
    last: u64,
    /// The value of `last` when claims were last checked. Without a later change, there is nothing new to check.
    believed: u64,
    /// Children that must not be made again, by resource, key and the uid of their owner.
    made: BTreeSet<(Arc<str>, Arc<str>, String)>,
}

/// Requests take no longer than this to arrive.
const IN_FLIGHT: Duration = Duration::from_mins(1);
/// For this time after a namespace has left, the operator may still write in it: first it has to learn that, and then its
/// reconciles end, whose requests take up to 20 s each.
const LEAVING: Duration = Duration::from_mins(2);
/// When a namespace has been watched for this time, the operator has listed it.
const JOINING: Duration = Duration::from_secs(30);
/// The number of Events about one object that a process may create at once.
const BURST: u64 = 25;
/// After a burst, it may create one about the object in this time.
const NEXT_EVENT: Duration = Duration::from_mins(5);

impl Checks {
    pub(crate) fn new(
        model: &Model,
        cast: &Cast,
        namespaces: Arc<WatchedNamespaces>,
        trace: Trace,
        is_elected: bool,
    ) -> Self {
        let (changed, terms, transitions, events, objects, excused, was_restored, made) = Default::default();
        let (other, stated, last, believed, fresh, begun, claims) = Default::default();
        Self {
            model: model.clone(),
            cast: cast.clone(),
            namespaces,
            trace,
            version: model.version(),
            changed,
            terms,
            is_elected,
            transitions,
            events,
            begun,
            claims,
            objects,
            excused,
            was_restored,
            fresh,
            made,
            other,
            stated,
            last,
            believed,
            lenient_until: Duration::ZERO,
        }
    }

    /// Starts over after a restore, because a restore sets the resource version back.
    pub(crate) fn restored(&mut self) {
        self.version = self.model.version();
        self.terms.restored();
        self.transitions.clear();
        self.was_restored = true;
        self.fresh.clear();
        self.made.clear();
        self.objects.clear();
        self.stated.clear();
        (self.other, self.last, self.believed) = (self.version, self.version, self.version);
        self.lenient_until = self.trace.now() + IN_FLIGHT;
        for role in self.cast.all() {
            if let Some(outside) = &role.outside {
                outside.restored(&self.model.objects(role.subject.resource()));
            }
        }
    }

    /// Checks everything that has changed since the last call.
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

    /// Returns the time of the last change that does not concern leader election.
    pub(crate) fn changed(&self) -> Duration {
        self.changed
    }

    /// Takes in that a process starts. The changes and writes of the one before it must be checked by then.
    pub(crate) fn process_starts(&mut self, process: &str) {
        self.terms.start(process);
        self.events.retain(|(of, _), _| of != process);
        self.begun.insert(process.to_owned(), self.trace.now());
    }

    /// How often the condition `Ready` of an object was checked.
    pub(crate) fn claims(&self) -> u64 {
        self.claims
    }

    fn note_leader(&mut self, change: &Change, network: &Network) {
        if !change.resource.starts_with("leases") {
            return;
        }
        let holds = change.after.as_ref().is_some_and(|lease| !text(&lease["spec"]["holderIdentity"]).is_empty());
        match network.last_lease_request(&change.writer) {
            Some(sent) if holds => self.terms.begin(&change.writer, sent, self.trace.now()),
            _ => self.terms.end(&change.writer, self.trace.now()),
        }
    }

    fn note_status(&mut self, change: &Change) {
        let is_status = self.cast.of_resource(&change.resource).is_some() && change.writer.starts_with(OPERATOR);
        match change.after.as_deref().filter(|_| is_status) {
            Some(object) => drop(self.stated.insert(text(&object["metadata"]["uid"]), change.version)),
            None if change.resource.starts_with("events") => {}
            None => self.other = change.version,
        }
    }

    /// Checks each object whose condition `Ready` is true with [`Subject::judge_claim`], if its status is the last change.
    /// The world calls this when nothing has changed and nothing was disturbed for longer than watch events are late.
    pub(crate) fn check_claims(&mut self) -> Result<(), String> {
        if self.believed == self.last {
            return Ok(());
        }
        let objects = self.cast.objects(&self.model);
        let is_watched = |object: &Value, time| {
            self.namespaces.is_watched_for(&text(&object["metadata"]["namespace"]), self.trace.now(), time)
        };
        if objects.iter().any(|(_, object)| is_watched(object, Duration::ZERO) && !is_watched(object, JOINING)) {
            return Ok(()); // the next call checks all claims
        }
        self.believed = self.last;
        for (role, object) in &objects {
            let metadata = &object["metadata"];
            let is_claimed = condition(&object["status"], "Ready")["status"] == "True"
                && is_current(object)
                && is_watched(object, Duration::ZERO);
            if is_claimed && self.has_last_word(&text(&metadata["uid"])) {
                self.claims += 1;
                let judged = role.subject.judge_claim(object, &self.model);
                let outside = || role.outside.as_ref().map_or(Ok(()), |outside| outside.judge_claim(object));
                judged
                    .and_then(|()| outside())
                    .map_err(|why| format!("Ready of {} is true, but {why}", text(&metadata["name"])))?;
            }
        }
        Ok(())
    }

    /// Checks the status of each object whose rollout has stalled, if the operator has had enough time to write it.
    /// `has_caught_up` tells whether nothing has hindered the operator for so long that it cannot be behind. The world calls this
    /// at the same times as [`check_claims`](Self::check_claims).
    pub(crate) fn check_stalls(&self, stalls: &Stalls, has_caught_up: bool) -> Result<(), String> {
        let objects = self.cast.objects(&self.model);
        for (uid, since) in stalls.all() {
            let found = objects.iter().find(|(_, object)| object["metadata"]["uid"] == *uid);
            let Some((role, object)) = found else { continue };
            let metadata = &object["metadata"];
            let is_watched = self.namespaces.is_watched_for(&text(&metadata["namespace"]), self.trace.now(), JOINING);
            let has_to_tell = is_current(object) && is_watched;
            // After errors, a condition that changes with time may be late.
            let stalled_for = if has_caught_up { self.trace.now().saturating_sub(since) } else { Duration::ZERO };
            if has_to_tell && (has_caught_up || self.has_last_word(uid)) {
                let judged = role.subject.judge_stall(object, stalled_for, self.model.now());
                judged.map_err(|why| format!("the rollout of {} has stalled, but {why}", text(&metadata["name"])))?;
            }
        }
        Ok(())
    }

    /// Whether the status of the object with this uid is the last change.
    fn has_last_word(&self, uid: &str) -> bool {
        self.stated.get(uid).is_some_and(|version| *version > self.other)
    }

    /// Checks that only the leader writes.
    fn check_leaders(&self, network: &Network) -> Result<(), String> {
        let writes = network.take_writes();
        if !self.is_elected || self.trace.now() < self.lenient_until {
            return Ok(());
        }
        writes.iter().try_for_each(|(sent, process)| self.terms.check(process, *sent))
    }

    fn check(&mut self, change: &Change, network: &Network) -> Result<(), String> {
        self.check_namespace(change)?;
        if let Some(subject) = self.cast.of_resource(&change.resource).map(|role| role.subject) {
            let (Some(before), Some(after)) = (&change.before, &change.after) else { return check_existence(change) };
            check_metadata(subject, before, after)?;
            // The operator may not know what it wrote itself: without an answer, only the watch brings it, later.
            let Change { writer, resource, key, .. } = change;
            let is_unsure = network.has_lost_answers(writer, resource, key, IN_FLIGHT);
            return self.check_status(subject, before, after, is_unsure);
        } else if self.cast.owned().contains(&&*change.resource) {
            self.check_owner(change)?;
            self.check_once(change)?;
        } else if !change.resource.starts_with("events") {
            let is_changed = change.before.is_some() && change.after.is_some();
            if !is_changed || !self.cast.may_change(&change.resource) {
                return Err("the operator has written what it neither makes nor owns".to_owned());
            }
        } else if change.before.is_none() {
            self.count_event(change)?;
        }
        Ok(())
    }

    /// Checks that a process creates no more Events about an object than its recorder lets through. Repeats are one Event, which it
    /// changes.
    fn count_event(&mut self, change: &Change) -> Result<(), String> {
        let uid = change.after.as_ref().map(|event| text(&event["regarding"]["uid"])).unwrap_or_default();
        let process = change.writer.to_string();
        let age = self.trace.now().saturating_sub(self.begun.get(&process).copied().unwrap_or_default());
        let most = BURST + 1 + age.as_secs() / NEXT_EVENT.as_secs();
        let count = self.events.entry((process, uid)).or_default();
        *count += 1;
        if *count > most {
            return Err(format!("{} has created {count} Events about one object in {age:?}", change.writer));
        }
        Ok(())
    }

    /// Checks that the operator writes nothing but Events in a namespace that it does not watch.
    fn check_namespace(&self, change: &Change) -> Result<(), String> {
        let (namespace, now) = (change.key.split('/').next().unwrap_or_default(), self.trace.now());
        let is_wrong = !change.resource.starts_with("events")
            && now >= self.lenient_until
            && self.namespaces.is_unwatched_for(namespace, now, LEAVING);
        if is_wrong { Err("the operator does not watch this namespace".to_owned()) } else { Ok(()) }
    }

    /// Checks that the operator changes no spec of a primary, that its status names no later generation, and that transition
    /// times do not go back.
    fn check_status(
        &mut self,
        subject: &dyn Subject,
        before: &Value,
        after: &Value,
        is_unsure: bool,
    ) -> Result<(), String> {
        if before["spec"] != after["spec"] {
            return Err("the operator has changed a spec".to_owned());
        }
        let (observed, generation) = (&after["status"]["observedGeneration"], &after["metadata"]["generation"]);
        if self.trace.now() < self.lenient_until {
            return Ok(());
        }
        if observed.as_i64() > generation.as_i64() {
            return Err(format!("observedGeneration is {observed}, and the generation only {generation}"));
        }
        if !is_unsure {
            subject.judge_change(before, after)?;
        }
        let uid = text(&after["metadata"]["uid"]);
        // A condition that goes and comes back starts anew.
        self.transitions.retain(|(of, type_), _| *of != uid || !condition(&after["status"], type_).is_null());
        for condition in after["status"]["conditions"].as_array().into_iter().flatten() {
            let type_ = text(&condition["type"]);
            let Ok(time) = text(&condition["lastTransitionTime"]).parse::<Timestamp>() else {
                return Err(format!("{type_} has no lastTransitionTime"));
            };
            if condition["observedGeneration"].as_i64() > generation.as_i64() {
                return Err(format!(
                    "observedGeneration of {type_} is {}, and the generation only {generation}",
                    condition["observedGeneration"]
                ));
            }
            let last = self.transitions.insert((uid.clone(), type_.clone()), time);
            if !is_unsure && last.is_some_and(|last| time < last) {
                return Err(format!("lastTransitionTime of {type_} goes back to {time}"));
            }
        }
        Ok(())
    }

    /// Checks that the operator writes only children that it owns or may adopt, and that it owns them afterwards. Of several
    /// operators in one process, none takes a child from another.
    fn check_owner(&self, change: &Change) -> Result<(), String> {
        let controller = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            owners.into_iter().find(|owner| owner["controller"] == true)
        };
        let kind = |object: &Value| {
            let owner = controller(object)?;
            self.cast.all().iter().map(|role| role.subject.kind().1).find(|kind| owner["kind"] == **kind)
        };
        let is_ours = |object: &Value| kind(object).is_some();
        let is_adoptable = |object: &Value| {
            let labels = &object["metadata"]["labels"];
            controller(object).is_none() && text(&labels["app.kubernetes.io/managed-by"]).ends_with("-operator")
        };
        match (change.before.as_deref(), change.after.as_deref()) {
            (Some(before), _) if !is_ours(before) && !is_adoptable(before) => {
                Err(format!("the operator has written an object that it does not own: {}", before["metadata"]))
            }
            // Adoption takes two requests; the second one sets the owner reference.
            (Some(before), Some(_)) if is_adoptable(before) => Ok(()),
            (_, Some(after)) if !is_ours(after) => {
                Err(format!("the operator has written a child without its owner reference: {}", after["metadata"]))
            }
            (Some(before), Some(after)) if kind(before) != kind(after) => {
                Err(format!("the operator has taken the child of another: {}", after["metadata"]))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the operator does not recreate a child that the primary remembers, or that happens once.
    fn check_once(&self, change: &Change) -> Result<(), String> {
        let (None, Some(child)) = (&change.before, &change.after) else { return Ok(()) };
        let made = (change.resource.clone(), change.key.clone(), owner(child));
        if self.made.contains(&made) { Err("the operator has created this child again".to_owned()) } else { Ok(()) }
    }

    /// Records the state of a primary, and children that are gone and must not be created again.
    fn remember(&mut self, change: &Change) {
        let cast = self.cast.clone();
        if let Some(role) = cast.of_resource(&change.resource) {
            if let Some(object) = &change.after {
                let uid = text(&object["metadata"]["uid"]);
                if change.before.is_none() {
                    self.fresh.insert(uid.clone());
                }
                self.objects.insert(uid, (role.subject, object.clone()));
            }
            self.excuse(role.subject, change);
            if let Some(outside) = &role.outside {
                outside.changed(change, change.writer.starts_with(OPERATOR));
            }
        } else if let (Some(child), None) = (&change.before, &change.after) {
            let owner = owner(child);
            let is_remembered =
                self.objects.get(&owner).is_some_and(|(subject, object)| subject.remembers(object, child));
            let kind = &child["metadata"]["ownerReferences"][0]["kind"];
            let is_of = |role: &&Role| *kind == *role.subject.kind().1;
            let happens_once = || cast.all().iter().find(is_of).is_some_and(|role| role.subject.happens_once(child));
            let is_over = change.writer.starts_with(OPERATOR) && happens_once();
            if is_remembered || is_over {
                self.made.insert((change.resource.clone(), change.key.clone(), owner));
            }
        }
    }
}

impl Checks {
    /// Whether resources outside the cluster that belong to this uid may be left behind.
    pub(crate) fn is_excused(&self, uid: &str) -> bool {
        (self.was_restored && !self.fresh.contains(uid)) || self.excused.contains(uid)
    }

    /// Records primaries whose finalizer another client removes, or whose user wants resources to stay.
    fn excuse(&mut self, subject: &dyn Subject, change: &Change) {
        let finalizers = |object: &Value| object["metadata"]["finalizers"].as_array().map_or(0, Vec::len);
        let before = change.before.as_deref().unwrap_or(&Value::Null);
        let after = change.after.as_deref().unwrap_or(&Value::Null);
        let was_forced = !change.writer.starts_with(OPERATOR) && finalizers(after) < finalizers(before);
        let is_deleted = !after["metadata"]["deletionTimestamp"].is_null();
        if was_forced || (is_deleted && subject.may_leave_something(after)) {
            self.excused.insert(text(&before["metadata"]["uid"]));
        }
    }
}

/// Checks that only users create and delete primaries: the operator removes its finalizer from one that is being deleted.
fn check_existence(change: &Change) -> Result<(), String> {
    match &change.before {
        None => Err("the operator has created an object of users".to_owned()),
        Some(before) if before["metadata"]["deletionTimestamp"].is_null() => {
            Err("the operator has deleted an object of users".to_owned())
        }
        Some(_) => Ok(()),
    }
}

/// Checks that the operator leaves the labels, the owners and the annotations of users as they are. Annotations of its own group
/// belong to both.
fn check_metadata(subject: &dyn Subject, before: &Value, after: &Value) -> Result<(), String> {
    let group = subject.kind().0.split('/').next().unwrap_or_default();
    let of_users = |object: &Value| {
        let metadata = &object["metadata"];
        let annotations = metadata["annotations"].as_object().into_iter().flatten();
        let foreign = annotations.filter(|(key, _)| key.split('/').next() != Some(group));
        let foreign: BTreeMap<String, Value> = foreign.map(|(key, value)| (key.clone(), value.clone())).collect();
        (metadata["labels"].clone(), metadata["ownerReferences"].clone(), foreign)
    };
    let (was, is) = (of_users(before), of_users(after));
    if was == is { Ok(()) } else { Err(format!("the operator has changed metadata of users from {was:?} to {is:?}")) }
}

/// Judges a primary at the end of a world: first the requirements of all kinds, then those of its own kind.
pub(crate) fn judge(subject: &dyn Subject, model: &Model, group: &str, object: &Value) -> Result<(), String> {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    if !metadata["deletionTimestamp"].is_null() {
        return Err("it is still being deleted".to_owned());
    }
    if status["observedGeneration"] != metadata["generation"] {
        return Err(format!("observedGeneration is {}, not {}", status["observedGeneration"], metadata["generation"]));
    }
    let asked = &metadata["annotations"][format!("{group}/reconcile-requested-at")];
    if status["lastHandledReconcileAt"] != *asked {
        return Err(format!("lastHandledReconcileAt is {}, not {asked}", status["lastHandledReconcileAt"]));
    }
    let ready = condition(status, "Ready");
    let is_paused = metadata["annotations"][format!("{group}/paused")] == "true";
    if is_paused != (ready["reason"] == "Paused") {
        return Err(format!("paused is {is_paused}, and the reason of Ready is {}", ready["reason"]));
    }
    if is_paused { Ok(()) } else { subject.judge(object, model) }
}

/// Checks that no child has outlived its owner.
pub(crate) fn no_orphans(cast: &Cast, model: &Model) -> Result<(), String> {
    let live: Vec<Value> = cast.objects(model).iter().map(|(_, it)| it["metadata"]["uid"].clone()).collect();
    for resource in cast.owned() {
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

/// Returns the condition of this type, or null.
pub fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
    let conditions = status["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|it| it["type"] == type_)).unwrap_or(&Value::Null)
}

/// Whether the status is about the present spec of an object that the operator reconciles.
fn is_current(object: &Value) -> bool {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    condition(status, "Ready")["reason"] != "Paused"
        && status["observedGeneration"] == metadata["generation"]
        && metadata["deletionTimestamp"].is_null()
}

#[cfg(test)]
mod tests;
