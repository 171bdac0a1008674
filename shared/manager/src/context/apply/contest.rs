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
    wanted: Wanted,
    /// By the path of the field.
    fields: BTreeMap<String, Field>,
}

/// What the operator wants of a child. Another contest begins only when both differ. The generation alone also changes when a user
/// edits what concerns other children; the desired child alone also changes when the operator generates a new value for each
/// revert, such as a key.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    /// The generation of the object; 0 for kinds that have none.
    generation: i64,
    /// The hash of the desired child.
    desired: u64,
}

impl Wanted {
    fn is_another(self, other: Self) -> bool {
        self.generation != other.generation && self.desired != other.desired
    }
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
    fn due(&self, wanted: Wanted, changes: &[Change]) -> Option<Instant> {
        if self.wanted.is_another(wanted) {
            return None;
        }
        let due = changes.iter().map(|change| self.fields.get(&change.path.to_string())?.reverts.due());
        due.min().flatten()
    }

    /// Records a revert. Returns the number of times that its most contested field has been reverted.
    fn record<'a>(
        &mut self,
        wanted: Wanted,
        changes: impl Iterator<Item = (String, Option<Cow<'a, str>>)>,
        now: Instant,
    ) -> u32 {
        self.expire(wanted, now);
        self.wanted = wanted;
        let mut most = 0;
        for (path, other) in changes {
            let field = self.fields.entry(path).or_insert(Field { reverts: Reverts::default(), other: None });
            field.other = other.map(Cow::into_owned).or(field.other.take());
            most = most.max(field.reverts.record(now));
        }
        most
    }

    /// Forgets what has been calm for long enough, and everything if something else is wanted.
    fn expire(&mut self, wanted: Wanted, now: Instant) {
        if self.wanted.is_another(wanted) {
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
        let wanted = self.wanted(target);
        let due = self.contest(requests, target, |contest| contest.due(wanted, changes)).flatten();
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
        let (child, wanted) = ((requests.kind().to_owned(), target.key.clone()), self.wanted(target));
        let most = self.controller.memory.modify(&self.reconciliation.key, |it| {
            it.contests.entry(child).or_default().record(wanted, changed, Instant::now())
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

    fn wanted(&self, target: &Target) -> Wanted {
        Wanted { generation: self.object().meta().generation.unwrap_or_default(), desired: target.hash }
    }

    /// Reads the contest of this child, if there is one that has not expired.
    fn contest<R>(&self, requests: &Requests, target: &Target, read: impl FnOnce(&Contest) -> R) -> Option<R> {
        let owner = &self.reconciliation.key;
        if !self.controller.memory.read(owner, |it| !it.contests.is_empty()) {
            return None; // the usual case allocates nothing
        }
        let child: (String, ObjectKey) = (requests.kind().to_owned(), target.key.clone());
        let wanted = self.wanted(target);
        self.controller.memory.modify(owner, |it| {
            let contest = it.contests.get_mut(&child)?;
            contest.expire(wanted, Instant::now());
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

    const WANTED: Wanted = Wanted { generation: 1, desired: 1 };

    /// The changes that restore these fields.
    fn changes(fields: &[&str]) -> Vec<Change> {
        let desired = serde_json::Value::Object(fields.iter().map(|field| ((*field).to_owned(), json!(1))).collect());
        compare(&json!({}), &json!({}), &desired, &desired)
    }

    fn record(contest: &mut Contest, fields: &[&str], now: Instant) -> u32 {
        contest.record(WANTED, changes(fields).iter().map(|it| (it.path.to_string(), None)), now)
    }

    #[test]
    fn field_that_was_not_reverted_recently_does_not_wait() {
        let (mut contest, now) = (Contest::default(), Instant::now());
        for _ in 0..5 {
            record(&mut contest, &["a"], now);
        }
        assert_eq!(contest.due(WANTED, &changes(&["a"])), Some(now + Duration::from_secs(8)));
        assert_eq!(contest.due(WANTED, &changes(&["a", "b"])), None, "b is new");
        let (edited, generated) = (Wanted { generation: 2, ..WANTED }, Wanted { desired: 2, ..WANTED });
        assert!(contest.due(edited, &changes(&["a"])).is_some(), "a user has changed something else");
        assert!(contest.due(generated, &changes(&["a"])).is_some(), "the operator has generated another value");
        let other = Wanted { generation: 2, desired: 2 };
        assert_eq!(contest.due(other, &changes(&["a"])), None, "a user wants something else now");
        contest.expire(WANTED, now + Duration::from_secs(8) + CALM);
        assert_eq!(contest, Contest { wanted: WANTED, fields: BTreeMap::new() });
    }
}
