//! Slows down the writes to a child whose fields another client changes again and again, see [`Reverts`]. A contest ends when
//! other clients leave the fields alone for two minutes.

use std::{borrow::Cow, collections::BTreeMap};

use cache::{
    ManagedFields, ObjectKey,
    owned::{Change, Path, holder, is_held_by},
};
use tokio::time::Instant;
use workloads::{Problem, ProblemKind};

use super::{
    super::{Context, Primary, Shared},
    AppliedWrite, Target,
};
use crate::{
    api::Requests,
    reverts::{REPORTED, Reverts},
};

/// The reverts of one child's fields, of which the last ones are not long ago.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::context) struct Contest {
    /// The hash of the desired child. Other desired values begin another contest.
    desired: u64,
    /// By the path of the field.
    fields: BTreeMap<String, Field>,
}

/// The reverts of one field.
#[derive(Debug, PartialEq, Eq)]
struct Field {
    reverts: Reverts,
    /// The client that changed the field, if `managedFields` tell; see [`other_client`].
    other: Option<String>,
}

impl Contest {
    /// When a write of these fields may be sent: at once, if it includes a field that has not been reverted recently.
    fn due(&self, desired: u64, changes: &[Change]) -> Option<Instant> {
        if self.desired != desired {
            return None;
        }
        let due = changes.iter().map(|change| self.fields.get(&change.path.to_string())?.reverts.due());
        due.min().flatten()
    }

    /// Records a revert. Returns the number of times that its most contested field has been reverted.
    fn record<'a>(
        &mut self,
        desired: u64,
        changes: impl Iterator<Item = (String, Option<Cow<'a, str>>)>,
        now: Instant,
    ) -> u32 {
        self.expire(desired, now);
        self.desired = desired;
        let mut most = 0;
        for (path, other) in changes {
            let field = self.fields.entry(path).or_insert(Field { reverts: Reverts::default(), other: None });
            field.other = other.map(Cow::into_owned).or(field.other.take());
            most = most.max(field.reverts.record(now));
        }
        most
    }

    /// Forgets what has been calm for long enough, and everything if the desired child is another one.
    fn expire(&mut self, desired: u64, now: Instant) {
        if self.desired != desired {
            self.fields.clear();
        }
        self.fields.retain(|_, field| !field.reverts.is_over(now));
    }

    /// The fields to report, with the manager that last changed one, and when the report ends.
    fn reported(&self) -> Option<(Vec<&str>, &str, Instant)> {
        let reported = || self.fields.iter().filter(|(_, field)| field.reverts.count() >= REPORTED);
        let ends = reported().filter_map(|(_, field)| field.reverts.end()).max()?;
        let other = reported().find_map(|(_, field)| field.other.as_deref()).unwrap_or("another client");
        Some((reported().map(|(path, _)| path.as_str()).collect(), other, ends))
    }
}

/// The client that set the field at `path`: its field manager or, if that is our own, another process of this operator.
fn other_client<'a>(path: &Path, ours: &str, entries: &'a [ManagedFields<'_>]) -> Option<Cow<'a, str>> {
    let second = || {
        let message = || format!("another process of this operator ({ours}), such as a second release,");
        is_held_by(path, ours, entries).then(message).map(Cow::Owned)
    };
    holder(path, ours, entries).map(Cow::Borrowed).or_else(second)
}

impl<K: Primary, S: Shared> Context<K, S> {
    /// Returns true if these changes have to wait, because the same fields were reverted recently; the object is then requeued.
    pub(super) fn waits(&self, requests: &Requests, target: &Target, changes: &[Change]) -> bool {
        let due = self.contest(requests, target, |contest| contest.due(target.hash, changes)).flatten();
        let Some(due) = due.filter(|due| *due > Instant::now()) else { return false };
        self.wake(due);
        true
    }

    /// Records a revert. Returns whether the status reports these fields as contested from now on.
    pub(super) fn record_revert(&self, write: &AppliedWrite<'_>) -> bool {
        let AppliedWrite { requests, target, before, changes } = write;
        let changed = changes.iter().map(|change| {
            let other = other_client(&change.path, requests.manager(), &before.metadata.managed_fields);
            (change.path.to_string(), other)
        });
        let child = (requests.kind().to_owned(), target.key.clone());
        let most = self.controller.memory.modify(&self.reconciliation.key, |it| {
            it.contests.entry(child).or_default().record(target.hash, changed, Instant::now())
        });
        if most >= REPORTED {
            self.controller.children.waited(requests.kind());
        }
        most >= REPORTED
    }

    /// Reports the fields of this child that another client changes again and again.
    pub(super) fn report_contest(&self, requests: &Requests, target: &Target) {
        let found = self.contest(requests, target, |contest| {
            let (fields, other, ends) = contest.reported()?;
            let (child, name, own) = (requests.kind(), &target.key.name, &self.controller.names.kind);
            let message = format!(
                "{other} and this operator set different values in {child} \"{name}\": {}; the operator restores its own at \
                 most once a minute; change the {own}, or stop {other} from setting them",
                fields.join(", ")
            );
            Some((Problem::new(ProblemKind::FIELDS_CONTESTED, message), ends))
        });
        if let Some((problem, ends)) = found.flatten() {
            self.wake(ends);
            self.reconciliation.refusals.lock().push(problem);
        }
    }

    /// Reads the contest of this child, if there is one that has not expired.
    fn contest<R>(&self, requests: &Requests, target: &Target, read: impl FnOnce(&Contest) -> R) -> Option<R> {
        let owner = &self.reconciliation.key;
        if !self.controller.memory.read(owner, |it| !it.contests.is_empty()) {
            return None; // the usual case allocates nothing
        }
        let child: (String, ObjectKey) = (requests.kind().to_owned(), target.key.clone());
        self.controller.memory.modify(owner, |it| {
            let contest = it.contests.get_mut(&child)?;
            contest.expire(target.hash, Instant::now());
            if contest.fields.is_empty() {
                it.contests.remove(&child);
                return None;
            }
            it.contests.get(&child).map(read)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cache::owned::compare;
    use serde_json::json;

    use super::*;
    use crate::reverts::CALM;

    const DESIRED: u64 = 1;

    /// The changes that restore these fields.
    fn changes(fields: &[&str]) -> Vec<Change> {
        let desired = serde_json::Value::Object(fields.iter().map(|field| ((*field).to_owned(), json!(1))).collect());
        compare(&json!({}), &json!({}), &desired, &desired)
    }

    fn record(contest: &mut Contest, fields: &[&str], now: Instant) -> u32 {
        contest.record(DESIRED, changes(fields).iter().map(|it| (it.path.to_string(), None)), now)
    }

    #[test]
    fn field_that_was_not_reverted_recently_does_not_wait() {
        let (mut contest, now) = (Contest::default(), Instant::now());
        for _ in 0..5 {
            record(&mut contest, &["a"], now);
        }
        assert_eq!(contest.due(DESIRED, &changes(&["a"])), Some(now + Duration::from_secs(8)));
        assert_eq!(contest.due(DESIRED, &changes(&["a", "b"])), None, "b is new");
        assert_eq!(contest.due(2, &changes(&["a"])), None, "we want something else now");
        contest.expire(DESIRED, now + Duration::from_secs(8) + CALM);
        assert_eq!(contest, Contest { desired: DESIRED, fields: BTreeMap::new() });
    }
}
