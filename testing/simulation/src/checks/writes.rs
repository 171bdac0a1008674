//! What the operator may write: which objects, in which namespaces, and what of a primary.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use model_apiserver::Change;
use serde_json::Value;

use super::{Checks, IN_FLIGHT, condition};
use crate::{
    network::Network,
    objects::{owner, text},
    subject::Subject,
};

/// For this time after a namespace has left, the operator may still write in it: first it has to learn that, and then its
/// reconciles end, whose requests take up to 20 s each.
const LEAVING: Duration = Duration::from_mins(2);
/// The number of Events about one object that a process may create at once.
pub(super) const BURST: u64 = 25;
/// After a burst, it may create one about the object in this time.
pub(super) const NEXT_EVENT: Duration = Duration::from_mins(5);

impl Checks {
    /// Checks a write of the operator.
    pub(super) fn check(&mut self, change: &Change, network: &Network) -> Result<(), String> {
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
    pub(super) fn check_namespace(&self, change: &Change) -> Result<(), String> {
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
    pub(super) fn check_owner(&self, change: &Change) -> Result<(), String> {
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
    pub(super) fn check_once(&self, change: &Change) -> Result<(), String> {
        let (None, Some(child)) = (&change.before, &change.after) else { return Ok(()) };
        let made = (change.resource.clone(), change.key.clone(), owner(child));
        if self.not_again.contains(&made) {
            Err("the operator has created this child again".to_owned())
        } else {
            Ok(())
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
