//! Another controller that sets a field of a child, which the operator sets too, each time that it finds another value.
//!
//! The operator restores its value ever more slowly, in the end once a minute. Its status says so, and one event does.

use std::time::Duration;

use model_apiserver::{Change, Model};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use crate::{
    checks::condition,
    network::{Network, OPERATOR},
    objects::{owner, text},
    oracle::contains,
    policies::Child,
};

/// The name of the other controller: of its client, and of its field manager.
pub(crate) const RIVAL: &str = "rival-controller";
/// How often the other controller looks at the field.
const REACTION: Duration = Duration::from_secs(1);
/// After this time without any other change, the operator restores its value once a minute.
const STEADY: Duration = Duration::from_mins(2);
/// The period in which reverts are counted.
const WINDOW: Duration = Duration::from_mins(3);
/// The most reverts in such a period of a steady contest. One a minute makes four at the most. Another change that the operator
/// has to make in the same child restores the contested field too.
const MOST_STEADY: usize = 5;
/// The most reverts after each change by others, until the contest is steady again: 0, 0, 1, 2, 4, 8, 16, 32 and 60 seconds.
const MOST_FAST: u32 = 12;
/// From this number of reverts on, the status must report the contest.
const REPORTED: usize = 4;
/// After this time without any other change, the status certainly does: a back-off is at most six minutes long.
const REPORTED_AFTER: Duration = Duration::from_mins(7);
/// The most events about a steady contest. One may be that of the time before.
const MOST_EVENTS: u32 = 2;

/// The contests of one world.
pub(crate) struct Contests {
    model: Model,
    /// The resources of the primaries.
    primaries: Vec<&'static str>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// All changes up to this version are taken in.
    version: u64,
    contests: Vec<Contest>,
}

/// One field, and what has happened to it.
#[derive(Debug)]
struct Contest {
    child: Child,
    /// The merge patch that sets the field.
    patch: Value,
    begun: Duration,
    next: Duration,
    until: Duration,
    /// When anyone else last changed what the operator wants, or what it knows.
    disturbed: Duration,
    /// How often that has happened.
    disturbances: u32,
    /// When the operator has restored its value since then.
    reverts: Vec<Duration>,
    /// How often the operator has restored its value while nothing hindered it.
    count: u32,
    /// The number of events about the contest since it was last disturbed.
    events: u32,
}

impl Contests {
    pub(crate) fn new(model: &Model, primaries: Vec<&'static str>) -> Self {
        Self { model: model.clone(), primaries, state: Mutex::default() }
    }

    /// Lets another controller contest the field that this merge patch sets.
    pub(crate) fn begin(&self, child: Child, patch: Value, now: Duration, until: Duration) {
        let (disturbances, reverts, count, events) = Default::default();
        let (begun, next, disturbed) = (now, now, now);
        let contest = Contest { child, patch, begun, next, until, disturbed, disturbances, reverts, count, events };
        self.state().contests.push(contest);
    }

    /// Ends all contests.
    pub(crate) fn end(&self) {
        self.state().contests.clear();
    }

    /// Returns the children whose field the other controller has to set now, each with its merge patch.
    pub(crate) fn take_due(&self, now: Duration) -> Vec<(Value, Value)> {
        let mut state = self.state();
        state.contests.retain(|contest| now < contest.until);
        let mut due = Vec::new();
        for contest in state.contests.iter_mut().filter(|contest| now >= contest.next) {
            contest.next = now + REACTION;
            let found = contest.find(&self.model).filter(|child| !contest.has_theirs(child));
            due.extend(found.map(|child| (child, contest.patch.clone())));
        }
        due
    }

    /// Takes in that the operator has to begin anew, because one of its processes has started, or a policy changes children.
    pub(crate) fn disturb(&self, now: Duration) {
        self.state().contests.iter_mut().for_each(|contest| contest.disturb(now));
    }

    /// Takes in that the cluster was restored, which sets the resource version back.
    pub(crate) fn restored(&self, now: Duration) {
        self.state().version = self.model.version();
        self.disturb(now);
    }

    /// Takes in all changes since the last call, and checks the contests.
    pub(crate) fn check(&self, now: Duration, network: &Network) -> Result<(), String> {
        let mut state = self.state();
        let version = std::mem::replace(&mut state.version, self.model.version());
        if state.contests.is_empty() {
            return Ok(());
        }
        let is_calm = |time| network.is_calm_for(time);
        for change in self.model.changes_after(version) {
            state.contests.iter_mut().for_each(|contest| contest.take_in(&change, now, is_calm(WINDOW)));
        }
        state.contests.iter().try_for_each(|contest| {
            let primary = || {
                let owner = owner(&contest.find(&self.model).filter(|child| contest.has_theirs(child))?);
                let mut objects = self.primaries.iter().flat_map(|resource| self.model.objects(resource));
                objects.find(|it| text(&it["metadata"]["uid"]) == owner)
            };
            contest.check(now, is_calm, primary)
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Contest {
    fn find(&self, model: &Model) -> Option<Value> {
        model.object(self.child.resource, &self.child.namespace, &self.child.name)
    }

    /// Whether the field has the value of the other controller.
    fn has_theirs(&self, child: &Value) -> bool {
        contains(child, &self.patch, "").is_ok()
    }

    fn disturb(&mut self, now: Duration) {
        self.disturbed = now;
        self.disturbances += 1;
        self.reverts.clear();
        self.events = 0;
    }

    /// Takes in a change of any object. `is_calm` tells whether nothing hinders the operator.
    fn take_in(&mut self, change: &Change, now: Duration, is_calm: bool) {
        let Child { resource, namespace, name } = &self.child;
        let is_child = *change.resource == **resource && *change.key == *format!("{namespace}/{name}");
        let is_home = *change.resource == *"namespaces" && *change.key == **namespace;
        match (&change.before, &change.after) {
            (Some(before), Some(after)) if is_child && change.writer.starts_with(OPERATOR) => {
                if self.has_theirs(before) && !self.has_theirs(after) {
                    self.reverts.push(now);
                    self.count += u32::from(is_calm);
                }
            }
            (None, Some(event)) if change.resource.starts_with("events") && event["reason"] == "FieldsContested" => {
                self.events += u32::from(text(&event["note"]).contains(&format!("\"{name}\"")));
            }
            // The operator has to begin anew: the labels of a namespace decide whether it watches the objects in it.
            (Some(before), Some(after)) if is_home && before["metadata"]["labels"] != after["metadata"]["labels"] => {
                self.disturb(now);
            }
            // The operator has created the child again, or has deleted it.
            _ if is_child && change.writer.starts_with(OPERATOR) => self.disturb(now),
            // The controllers of the cluster write no specs.
            _ if change.writer.is_empty() || change.writer.starts_with(OPERATOR) || *change.writer == *RIVAL => {}
            _ => self.disturb(now),
        }
    }

    /// Checks the back-off and the reports. `is_calm` tells whether nothing has hindered the operator for that long. `primary`
    /// returns the object whose child has the value of the other controller.
    fn check(
        &self,
        now: Duration,
        is_calm: impl Fn(Duration) -> bool,
        primary: impl Fn() -> Option<Value>,
    ) -> Result<(), String> {
        let Child { resource, name, .. } = &self.child;
        let minutes = u32::try_from(now.saturating_sub(self.begun).as_secs() / 60).unwrap_or(u32::MAX);
        if self.count > MOST_FAST * (1 + self.disturbances) + 2 * minutes {
            return Err(format!(
                "the operator has restored a contested field of {resource} {name} {} times",
                self.count
            ));
        }
        let is_steady = |time: Duration| now >= self.disturbed + time && is_calm(time);
        let last = self.reverts.iter().filter(|revert| **revert + WINDOW > now).count();
        if last > MOST_STEADY && is_steady(STEADY + WINDOW) {
            return Err(format!(
                "the operator restores a contested field of {resource} {name} {last} times in {WINDOW:?}"
            ));
        }
        if self.events > MOST_EVENTS && is_steady(STEADY) {
            return Err(format!("{} events tell of a contested field of {resource} {name}", self.events));
        }
        if self.reverts.len() < REPORTED || !is_steady(REPORTED_AFTER) {
            return Ok(());
        }
        match primary() {
            Some(object) if condition(&object["status"], "Ready")["status"] == "True" => {
                Err(format!("Ready is true while another controller sets a field of {resource} {name}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn contest() -> Contest {
        let model = Model::new();
        let contests = Contests::new(&model, vec!["toys.example.com"]);
        let child = Child { resource: "deployments.apps", namespace: "shop".to_owned(), name: "a".to_owned() };
        contests.begin(child, json!({"spec": {"replicas": 9}}), Duration::ZERO, Duration::MAX);
        contests.state().contests.pop().expect("a contest")
    }

    fn deployment(replicas: u8) -> Arc<Value> {
        Arc::new(json!({"spec": {"replicas": replicas}}))
    }

    fn change(writer: &str, before: Option<Arc<Value>>, after: Option<Arc<Value>>) -> Change {
        let (resource, key, writer) = ("deployments.apps".into(), "shop/a".into(), writer.into());
        Change { version: 1, resource, key, before, after, writer }
    }

    /// Plays a contest of this many seconds in which the operator restores its value at these intervals. Ready has this status.
    fn play(seconds: u32, pause: impl Fn(u32) -> u32, ready: &str) -> Result<(), String> {
        let (mut contest, mut due, mut reverts) = (contest(), 0, 0);
        let object = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        for second in 0..seconds {
            let now = SECOND * second;
            if second >= due {
                contest.take_in(&change("operator-0", Some(deployment(9)), Some(deployment(1))), now, true);
                contest.take_in(&change(RIVAL, Some(deployment(1)), Some(deployment(9))), now, true);
                reverts += 1;
                due = second + pause(reverts);
            }
            contest.check(now, |_| true, || Some(object.clone()))?;
        }
        Ok(())
    }

    #[test]
    fn reverts_that_become_rare_and_are_reported_are_accepted() {
        let backs_off = |reverts: u32| (1_u32 << reverts.saturating_sub(2).min(6)).min(60);
        assert_eq!(play(600, backs_off, "False"), Ok(()));
        let told = play(600, backs_off, "True").expect_err("the status hides the contest");
        assert!(told.starts_with("Ready is true"), "{told}");
    }

    #[test]
    fn reverts_without_a_pause_are_found() {
        let told = play(600, |_| 1, "False").expect_err("the operator never waits");
        assert!(told.contains("has restored"), "{told}");
        let told = play(600, |_| 30, "False").expect_err("the operator waits half as long as it should");
        assert!(told.contains("6 times in 180s"), "{told}");
    }

    #[test]
    fn other_clients_begin_the_contest_anew() {
        let mut contest = contest();
        contest.take_in(&change("operator-0", Some(deployment(9)), Some(deployment(1))), SECOND, true);
        contest.take_in(&change("", Some(deployment(9)), Some(deployment(9))), SECOND, true);
        contest.take_in(&change("operator-0", Some(deployment(9)), Some(deployment(9))), SECOND, true);
        assert_eq!((contest.reverts.len(), contest.disturbances), (1, 0), "the cluster's controllers change nothing");
        contest.take_in(&change("user", Some(deployment(9)), Some(deployment(9))), 2 * SECOND, true);
        assert_eq!((contest.reverts.len(), contest.disturbances, contest.disturbed), (0, 1, 2 * SECOND));
        contest.take_in(&change("operator-0", None, Some(deployment(1))), 3 * SECOND, true);
        assert_eq!((contest.disturbances, contest.count), (2, 1));
    }

    #[test]
    fn namespace_that_is_watched_again_begins_the_contest_anew() {
        let namespace = |labels: Value| Some(Arc::new(json!({"metadata": {"labels": labels}})));
        let of = |key: &str, before, after| {
            let (resource, writer) = ("namespaces".into(), "".into());
            Change { version: 1, resource, key: key.into(), before, after, writer }
        };
        let mut contest = contest();
        contest.take_in(&of("shop", namespace(json!({})), namespace(json!({}))), SECOND, true);
        contest.take_in(&of("other", namespace(json!({})), namespace(json!({"a": "b"}))), SECOND, true);
        assert_eq!(contest.disturbances, 0);
        contest.take_in(&of("shop", namespace(json!({})), namespace(json!({"a": "b"}))), 2 * SECOND, true);
        assert_eq!((contest.disturbances, contest.disturbed), (1, 2 * SECOND));
    }
}
