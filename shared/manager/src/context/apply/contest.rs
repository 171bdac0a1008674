//! Slows down the writes to a child whose fields another client changes, or takes from us, again and again, or that it deletes or
//! replaces again and again, see [`Reverts`]. A contest ends when other clients leave the child alone for two minutes.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use cache::{
    ManagedFields, ObjectKey,
    owned::{Path, holder, is_held_by},
};
use tokio::time::Instant;
use workloads::{Problem, ProblemKind};

use super::{
    super::{Context, Primary, Shared},
    AppliedWrite, Difference, Target,
};
use crate::{
    api::Requests,
    reverts::{REPORTED, Reverts},
};

/// Stands for the path of a field in the contest of a child whose fields have the wanted values, but do not all belong to us.
const OWNERSHIP: &str = "metadata.managedFields";

/// The reverts of one child's fields, and of its deletion, of which the last ones are not long ago.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::context) struct Contest {
    wanted: Wanted,
    /// By the path of the field.
    fields: BTreeMap<String, Field>,
    /// The paths of the fields that the last revert could not change. They differ in every answer, so they are no reason to write.
    kept: BTreeSet<String>,
    /// Creations of the child after another client had deleted it, or had created it with another value of an immutable field.
    creations: Reverts,
    /// That field, in one word.
    replaced: Option<&'static str>,
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
    /// When a write of these fields may be sent: at once, if it includes a field that has not been reverted recently. A field that
    /// the cluster keeps does not count.
    fn due(&self, wanted: Wanted, difference: &Difference) -> Option<Instant> {
        if self.wanted.is_another(wanted) {
            return None;
        }
        let paths = difference.changes.iter().map(|change| change.path.to_string());
        let mut paths: Vec<String> = paths.filter(|path| !self.kept.contains(path)).collect();
        if paths.is_empty() && !difference.covered {
            paths.push(OWNERSHIP.to_owned());
        }
        let due = paths.iter().map(|path| self.fields.get(path)?.reverts.due());
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

    /// Records that the child was created again. `replaced` is the immutable field that this changed, if any. Returns the number
    /// of times.
    fn record_creation(&mut self, wanted: Wanted, replaced: Option<&'static str>, now: Instant) -> u32 {
        self.expire(wanted, now);
        self.wanted = wanted;
        self.replaced = replaced.or(self.replaced);
        self.creations.record(now)
    }

    /// Forgets what has been calm for long enough, and everything if something else is wanted.
    fn expire(&mut self, wanted: Wanted, now: Instant) {
        let is_another = self.wanted.is_another(wanted);
        self.fields.retain(|_, field| !is_another && !field.reverts.is_over(now));
        if self.fields.is_empty() {
            self.kept.clear();
        }
        if is_another || self.creations.is_over(now) {
            self.creations = Reverts::default();
            self.replaced = None;
        }
    }

    fn is_over(&self) -> bool {
        self.fields.is_empty() && self.creations.count() == 0
    }

    /// The fields to report, with the manager that last changed one, and when the report ends.
    fn reported(&self) -> Option<(Vec<&str>, &str, Instant)> {
        let reported = || self.fields.iter().filter(|(_, field)| field.reverts.count() >= REPORTED);
        let ends = reported().filter_map(|(_, field)| field.reverts.end()).max()?;
        let other = reported().find_map(|(_, field)| field.other.as_deref()).unwrap_or("another client");
        Some((reported().map(|(path, _)| path.as_str()).collect(), other, ends))
    }

    /// When the report ends that the child is deleted or replaced again and again; `None` if there is none.
    fn reported_creations(&self) -> Option<Instant> {
        self.creations.end().filter(|_| self.creations.count() >= REPORTED)
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
    /// Returns true if a write has to wait, because the same fields were reverted recently; the object is then requeued.
    pub(super) fn waits(&self, requests: &Requests, target: &Target, difference: &Difference) -> bool {
        let wanted = self.wanted(target);
        let due = self.contest(requests, target, |contest| contest.due(wanted, difference)).flatten();
        let Some(due) = due.filter(|due| *due > Instant::now()) else { return false };
        self.leave(requests.kind(), &target.key);
        self.wake(due);
        true
    }

    /// Returns true if the child may not be created yet, because other clients have deleted or replaced it again and again; the
    /// object is then requeued.
    pub(super) fn creation_waits(&self, requests: &Requests, target: &Target) -> bool {
        let due = self.contest(requests, target, |contest| contest.creations.due()).flatten();
        let Some(due) = due.filter(|due| *due > Instant::now()) else { return false };
        self.leave(requests.kind(), &target.key);
        self.wake(due);
        true
    }

    /// Records that the child is created again because another client has deleted it, or to change the immutable field
    /// `replaced`.
    pub(super) fn record_creation(&self, requests: &Requests, target: &Target, replaced: Option<&'static str>) {
        let (child, wanted) = ((requests.kind().to_owned(), target.key.clone()), self.wanted(target));
        let count = self.controller.memory.modify(&self.reconciliation.key, |it| {
            it.contests.entry(child).or_default().record_creation(wanted, replaced, Instant::now())
        });
        if count >= REPORTED {
            self.controller.children.waited(requests.kind());
        }
    }

    /// Whether the status reports that the child is deleted or replaced again and again.
    pub(super) fn reports_creations(&self, requests: &Requests, target: &Target) -> bool {
        self.contest(requests, target, Contest::reported_creations).flatten().is_some()
    }

    /// Ends the contest of a child that we have deleted ourselves.
    pub(super) fn forget_contest(&self, requests: &Requests, key: &ObjectKey) {
        let (owner, memory) = (&self.reconciliation.key, &self.controller.memory);
        if memory.read(owner, |it| !it.contests.is_empty()) {
            let child = (requests.kind().to_owned(), key.clone());
            memory.modify(owner, |it| it.contests.remove(&child));
        }
    }

    /// Records a revert. Returns whether the status reports these fields as contested from now on.
    pub(super) fn record_revert(&self, write: &AppliedWrite<'_>) -> bool {
        let AppliedWrite { requests, target, before, changes, kept } = write;
        let changed = changes.iter().map(|change| {
            let other = other_client(&change.path, requests.manager(), &before.metadata.managed_fields);
            (change.path.to_string(), other)
        });
        let is_of_ownership = changes.is_empty() && !before.is_covered;
        let changed = changed.chain(is_of_ownership.then(|| (OWNERSHIP.to_owned(), None)));
        let (child, wanted) = ((requests.kind().to_owned(), target.key.clone()), self.wanted(target));
        let kept = kept.iter().map(|change| change.path.to_string()).collect();
        let most = self.controller.memory.modify(&self.reconciliation.key, |it| {
            let contest = it.contests.entry(child).or_default();
            let most = contest.record(wanted, changed, Instant::now());
            contest.kept = kept;
            most
        });
        if most >= REPORTED {
            self.controller.children.waited(requests.kind());
        }
        most >= REPORTED
    }

    /// Reports the fields of this child that another client changes again and again, and a child that one deletes or replaces
    /// again and again.
    pub(super) fn report_contest(&self, requests: &Requests, target: &Target) {
        let (child, name, own) = (requests.kind(), &target.key.name, &self.controller.names.kind);
        let fields = |contest: &Contest| {
            let (fields, other, ends) = contest.reported()?;
            if fields == [OWNERSHIP] {
                let message = format!(
                    "another client clears {OWNERSHIP} of {child} \"{name}\" again and again; the operator restores its entry \
                     ever more slowly, in the end once a minute; stop the other client from clearing it"
                );
                return Some((message, ends));
            }
            let message = format!(
                "{other} and this operator set different values in {child} \"{name}\": {}; the operator restores its own \
                 ever more slowly, in the end once a minute; change the {own}, or stop {other} from setting them",
                fields.join(", ")
            );
            Some((message, ends))
        };
        let creations = |contest: &Contest| {
            let ends = contest.reported_creations()?;
            let message = match contest.replaced {
                None => format!(
                    "another client deletes {child} \"{name}\" again and again; the operator creates it ever more slowly, in the \
                     end once a minute; change the {own}, or stop the other client from deleting it"
                ),
                Some(what) => format!(
                    "another client, such as a second release, creates {child} \"{name}\" with another {what} again and again; \
                     the operator replaces it ever more slowly, in the end once a minute; change the {own}, or stop the other \
                     client from creating it"
                ),
            };
            Some((message, ends))
        };
        let found = self.contest(requests, target, |contest| [fields(contest), creations(contest)]);
        for (message, ends) in found.into_iter().flatten().flatten() {
            self.wake(ends);
            self.reconciliation.refusals.lock().push(Problem::new(ProblemKind::FIELDS_CONTESTED, message));
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
            if contest.is_over() {
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

    use cache::owned::{Change, compare};
    use serde_json::json;

    use super::*;
    use crate::reverts::CALM;

    const WANTED: Wanted = Wanted { generation: 1, desired: 1 };

    /// The changes that restore these fields.
    fn changes(fields: &[&str]) -> Vec<Change> {
        let desired = serde_json::Value::Object(fields.iter().map(|field| ((*field).to_owned(), json!(1))).collect());
        compare(&json!({}), &json!({}), &desired, &desired)
    }

    /// A child with these changes, of which all other fields are ours.
    fn difference(fields: &[&str]) -> Difference {
        Difference { changes: changes(fields), covered: true, from_create: false }
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
        assert_eq!(contest.due(WANTED, &difference(&["a"])), Some(now + Duration::from_secs(8)));
        assert_eq!(contest.due(WANTED, &difference(&["a", "b"])), None, "b is new");
        let (edited, generated) = (Wanted { generation: 2, ..WANTED }, Wanted { desired: 2, ..WANTED });
        assert!(contest.due(edited, &difference(&["a"])).is_some(), "a user has changed something else");
        assert!(contest.due(generated, &difference(&["a"])).is_some(), "the operator has generated another value");
        let other = Wanted { generation: 2, desired: 2 };
        assert_eq!(contest.due(other, &difference(&["a"])), None, "a user wants something else now");
        contest.expire(WANTED, now + Duration::from_secs(8) + CALM);
        assert_eq!(contest, Contest { wanted: WANTED, ..Contest::default() });
    }

    #[test]
    fn each_field_waits_for_its_own_reverts() {
        let (mut contest, now) = (Contest::default(), Instant::now());
        let later = now + Duration::from_secs(5);
        for _ in 0..5 {
            record(&mut contest, &["a"], now);
        }
        for _ in 0..5 {
            record(&mut contest, &["b"], later);
        }
        let due = |fields: &[&str]| contest.due(WANTED, &difference(fields));
        assert_eq!(due(&["a"]), Some(now + Duration::from_secs(8)), "reverts of b do not delay a");
        assert_eq!(due(&["b"]), Some(later + Duration::from_secs(8)));
        assert_eq!(due(&["a", "b"]), due(&["a"]), "the write of a restores b too");
    }

    #[test]
    fn field_that_the_cluster_keeps_does_not_hasten_the_others() {
        let (mut contest, now) = (Contest::default(), Instant::now());
        for _ in 0..5 {
            record(&mut contest, &["a"], now);
        }
        contest.kept = changes(&["kept"]).iter().map(|change| change.path.to_string()).collect();
        let due = now + Duration::from_secs(8);
        assert_eq!(contest.due(WANTED, &difference(&["a", "kept"])), Some(due));
        assert_eq!(contest.due(WANTED, &difference(&["a", "b", "kept"])), None, "b is new");
        contest.expire(WANTED, due + CALM);
        assert_eq!(contest, Contest { wanted: WANTED, ..Contest::default() });
    }

    #[test]
    fn ownership_alone_is_contested_like_a_field() {
        let (mut contest, now) = (Contest::default(), Instant::now());
        let unowned = |fields: &[&str]| Difference { covered: false, ..difference(fields) };
        assert_eq!(contest.due(WANTED, &unowned(&[])), None);
        for _ in 0..5 {
            contest.record(WANTED, std::iter::once((OWNERSHIP.to_owned(), None)), now);
        }
        let due = now + Duration::from_secs(8);
        assert_eq!(contest.due(WANTED, &unowned(&[])), Some(due));
        assert_eq!(contest.due(WANTED, &unowned(&["a"])), None, "a is new");
        contest.kept = changes(&["kept"]).iter().map(|change| change.path.to_string()).collect();
        assert_eq!(contest.due(WANTED, &unowned(&["kept"])), Some(due), "no write changes the kept field");
        assert_eq!(contest.due(WANTED, &difference(&["kept"])), None);
    }

    #[test]
    fn third_creation_after_a_deletion_waits() {
        let (mut contest, now) = (Contest::default(), Instant::now());
        for (count, wait) in [(1, 0), (2, 1), (3, 2)] {
            assert_eq!(contest.record_creation(WANTED, None, now), count);
            assert_eq!(contest.creations.due(), Some(now + Duration::from_secs(wait)));
        }
        assert_eq!(contest.reported_creations(), Some(now + Duration::from_secs(2) + CALM));
        assert!(!contest.is_over());
        contest.expire(Wanted { generation: 2, desired: 2 }, now);
        assert!(contest.is_over(), "a user wants something else now");
        contest.record_creation(WANTED, None, now);
        contest.expire(WANTED, now + CALM);
        assert!(contest.is_over(), "no client has deleted it for long");
    }

    #[test]
    fn replacement_counts_as_a_creation_until_a_user_wants_something_else() {
        let (mut contest, now) = (Contest::default(), Instant::now());
        record(&mut contest, &["a"], now);
        assert_eq!(contest.record_creation(WANTED, Some("type"), now), 1);
        assert_eq!(contest.record_creation(WANTED, None, now), 2, "the other client has deleted its own");
        assert_eq!(contest.record_creation(WANTED, Some("type"), now), 3);
        assert_eq!(contest.creations.due(), Some(now + Duration::from_secs(2)));
        assert_eq!((contest.replaced, contest.fields.len()), (Some("type"), 1), "the contest of the field goes on");
        let edited = Wanted { generation: 2, desired: 2 };
        contest.expire(edited, now);
        assert_eq!(contest, Contest { wanted: WANTED, ..Contest::default() });
        assert_eq!(contest.record_creation(edited, Some("type"), now), 1, "the edit of a user does not wait");
        assert_eq!(contest.creations.due(), Some(now));
    }
}
