//! Checks of what must never happen, whatever the world does. They look at every change that the API server stores, and at the
//! objects that remain at the end. This file follows the changes, and remembers what later checks need. `writes` checks what the
//! operator writes, `claims` what it claims in between, and `end` what remains.

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
    subject::Subject,
    subjects::{Cast, Role},
    terms::Terms,
    trace::Trace,
};

mod claims;
mod end;
mod writes;

pub(crate) use end::{judge, no_orphans};

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
    other_version: u64,
    /// The version of the operator's last write to each primary, by uid.
    status_versions: BTreeMap<String, u64>,
    /// The version of the last change that does not concern leader election.
    last_version: u64,
    /// The value of `last_version` when claims were last checked. Without a later change, there is nothing new to check.
    claims_checked_at: u64,
    /// Children that must not be made again, by resource, key and the uid of their owner.
    not_again: BTreeSet<(Arc<str>, Arc<str>, String)>,
}

/// Requests take no longer than this to arrive.
const IN_FLIGHT: Duration = Duration::from_mins(1);

impl Checks {
    pub(crate) fn new(
        model: &Model,
        cast: &Cast,
        namespaces: Arc<WatchedNamespaces>,
        trace: Trace,
        is_elected: bool,
    ) -> Self {
        let (changed, terms, transitions, events, objects, excused, was_restored, not_again) = Default::default();
        let (other_version, status_versions, last_version, claims_checked_at, fresh, begun, claims) =
            Default::default();
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
            not_again,
            other_version,
            status_versions,
            last_version,
            claims_checked_at,
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
        self.not_again.clear();
        self.objects.clear();
        self.status_versions.clear();
        (self.other_version, self.last_version, self.claims_checked_at) = (self.version, self.version, self.version);
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
            (self.changed, self.last_version) = (self.trace.now(), change.version);
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
            Some(object) => drop(self.status_versions.insert(text(&object["metadata"]["uid"]), change.version)),
            None if change.resource.starts_with("events") || self.is_about_others(change) => {}
            None => self.other_version = change.version,
        }
    }

    /// Whether a controller of the cluster has written the status of a Deployment that a user has made, or a pod of it. No status of a
    /// primary depends on these.
    fn is_about_others(&self, change: &Change) -> bool {
        let Some(after) = change.after.as_deref().filter(|_| change.writer.is_empty()) else { return false };
        let wanted = |object: &Value| (object["spec"].clone(), object["metadata"]["labels"].clone());
        let is_of_user = |deployment: &Value| owner(deployment).is_empty();
        match &*change.resource {
            "deployments.apps" => is_of_user(after) && change.before.as_deref().map(wanted) == Some(wanted(after)),
            "pods" => {
                let deployments = self.model.objects("deployments.apps");
                deployments.iter().any(|it| is_of_user(it) && text(&it["metadata"]["uid"]) == owner(after))
            }
            _ => false,
        }
    }

    /// Checks that only the leader writes.
    fn check_leaders(&self, network: &Network) -> Result<(), String> {
        let writes = network.take_writes();
        if !self.is_elected || self.trace.now() < self.lenient_until {
            return Ok(());
        }
        writes.iter().try_for_each(|(sent, process)| self.terms.check(process, *sent))
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
                self.not_again.insert((change.resource.clone(), change.key.clone(), owner));
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

/// Returns the condition of this type, or null.
pub fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
    let conditions = status["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|it| it["type"] == type_)).unwrap_or(&Value::Null)
}

#[cfg(test)]
mod tests;
