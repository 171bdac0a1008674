//! The wanted state: all objects that the load has created, with their children. Also draws the random changes.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::kind::Kind;

/// One object, as its user wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) kind: Kind,
    pub(crate) size: u32,
    /// The number of the image, one of a few.
    pub(crate) release: u32,
    /// Whether the optional child is wanted: the network policy of a Memcached, or the Service of a `HelloApp` with a port.
    pub(crate) extra: bool,
}

/// Kinds of children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Child {
    Deployment,
    Service,
    DisruptionBudget,
    NetworkPolicy,
}

/// A change by a user.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    Create(String, Wanted),
    Delete {
        name: String,
        kind: Kind,
        foreground: bool,
    },
    /// Delete the object and at once create another one with its name, which must not keep the old children.
    Replace(String, Wanted, Kind),
    Scale(String, Wanted),
    Edit(String, Wanted),
    DeleteChild(String, Child),
    /// Edit a child by hand, to a wrong value.
    EditChild(String, Child, Value),
}

/// All wanted objects, by name.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    objects: BTreeMap<String, Wanted>,
    /// The number of objects so far, for new names. Only [`Change::Replace`] uses a name again.
    made: usize,
}

pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const INSTANCE: &str = "/spec/selector/app.kubernetes.io~1instance";
const LABEL: &str = "/metadata/labels/app.kubernetes.io~1managed-by";

impl Wanted {
    fn random(rng: &mut Rng) -> Self {
        let kind = if rng.u32(..3) == 0 { Kind::Helloapp } else { Kind::Memcached };
        Self { kind, size: rng.u32(0..=5), release: rng.u32(..4), extra: rng.bool() }
    }

    pub(crate) fn image(&self) -> String {
        format!("registry.example.com/soak:{}", self.release)
    }

    /// The whole spec, which is also a merge patch: unwanted fields are null.
    pub(crate) fn spec(&self) -> Value {
        let (extra, value) = if self.kind == Kind::Helloapp {
            ("port", json!(8080))
        } else {
            ("networkPolicy", json!({"enabled": true}))
        };
        json!({"size": self.size, "image": self.image(), extra: self.extra.then_some(value)})
    }

    /// The kinds of children that the object must have; it must have no others.
    pub(crate) fn children(&self) -> Vec<Child> {
        let is_memcached = self.kind == Kind::Memcached;
        let all = [
            (Child::Deployment, true),
            (Child::Service, is_memcached || self.extra),
            (Child::DisruptionBudget, self.size >= 2),
            (Child::NetworkPolicy, is_memcached && self.extra),
        ];
        all.into_iter().filter_map(|(child, is_there)| is_there.then_some(child)).collect()
    }

    /// The fields that this load breaks in a child, with their right values, by JSON pointer.
    pub(crate) fn facts(&self, name: &str, child: Child) -> Vec<(&'static str, Value)> {
        let label = (LABEL, json!(format!("{}-operator", self.kind.operator())));
        let mut facts = match child {
            Child::Deployment => vec![
                ("/spec/replicas", json!(self.size)),
                ("/spec/template/spec/containers/0/image", json!(self.image())),
            ],
            Child::Service => vec![(INSTANCE, json!(name))],
            Child::DisruptionBudget => vec![("/spec/maxUnavailable", json!(1))],
            Child::NetworkPolicy => vec![("/spec/policyTypes", json!(["Ingress"]))],
        };
        facts.push(label);
        facts
    }
}

impl Child {
    pub(crate) const ALL: [Self; 4] = [Self::Deployment, Self::Service, Self::DisruptionBudget, Self::NetworkPolicy];

    /// A merge patch that breaks the child.
    fn broken(self, rng: &mut Rng) -> Value {
        if rng.u32(..4) == 0 {
            // Makes the child invisible to watches with a selector on this label.
            return json!({"metadata": {"labels": {MANAGED_BY: "another-manager"}}});
        }
        match self {
            Self::Deployment => json!({"spec": {"replicas": rng.u32(6..20)}}),
            Self::Service => json!({"spec": {"selector": {"app.kubernetes.io/instance": "no-pod"}}}),
            Self::DisruptionBudget => json!({"spec": {"maxUnavailable": rng.u32(2..9)}}),
            Self::NetworkPolicy => json!({"spec": {"policyTypes": ["Ingress", "Egress"]}}),
        }
    }
}

impl Change {
    /// The name in the table.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Self::Create(..) => "create",
            Self::Delete { .. } => "delete",
            Self::Replace(..) => "delete and create again",
            Self::Scale(..) => "scale",
            Self::Edit(..) => "edit",
            Self::DeleteChild(..) => "delete a child",
            Self::EditChild(..) => "edit a child",
        }
    }
}

impl Fleet {
    pub(crate) fn objects(&self) -> &BTreeMap<String, Wanted> {
        &self.objects
    }

    /// Chooses the next change and applies it to the wanted state. There are at most `limit` objects, and after the start seldom
    /// many fewer.
    pub(crate) fn change(&mut self, rng: &mut Rng, limit: usize) -> Change {
        let count = self.objects.len();
        if count == 0 || count * 10 < limit * 9 {
            return self.create(rng);
        }
        let index = rng.usize(..count);
        let Some((name, wanted)) = self.objects.iter().nth(index).map(|(name, wanted)| (name.clone(), *wanted)) else {
            return self.create(rng); // unreachable: the index is valid
        };
        let children = wanted.children();
        let child = children.get(rng.usize(..children.len())).copied().unwrap_or(Child::Deployment);
        match rng.u32(..100) {
            0..25 => {
                let size = (wanted.size + rng.u32(1..=5)) % 6; // always differs from the present size
                self.update(name, Wanted { size, ..wanted }, Change::Scale)
            }
            25..45 => {
                let release = (wanted.release + rng.u32(0..4)) % 4;
                let extra = if release == wanted.release { !wanted.extra } else { wanted.extra };
                self.update(name, Wanted { release, extra, ..wanted }, Change::Edit)
            }
            45..63 => Change::DeleteChild(name, child),
            63..83 => Change::EditChild(name, child, child.broken(rng)),
            83..88 => {
                let next = Wanted::random(rng);
                self.update(name, next, |name, next| Change::Replace(name, next, wanted.kind))
            }
            88..94 if count < limit => self.create(rng),
            _ => {
                self.objects.remove(&name);
                Change::Delete { name, kind: wanted.kind, foreground: rng.bool() }
            }
        }
    }

    fn create(&mut self, rng: &mut Rng) -> Change {
        let name = format!("soak-{:05}", self.made);
        self.made += 1;
        self.update(name, Wanted::random(rng), Change::Create)
    }

    fn update(&mut self, name: String, wanted: Wanted, change: impl FnOnce(String, Wanted) -> Change) -> Change {
        self.objects.insert(name.clone(), wanted);
        change(name, wanted)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn changes(seed: u64, count: usize, limit: usize) -> (Vec<Change>, Fleet) {
        let (mut rng, mut fleet) = (Rng::with_seed(seed), Fleet::default());
        ((0..count).map(|_| fleet.change(&mut rng, limit)).collect(), fleet)
    }

    #[test]
    fn seed_determines_changes() {
        assert_eq!(changes(7, 500, 20).0, changes(7, 500, 20).0);
        assert_ne!(changes(7, 500, 20).0, changes(8, 500, 20).0);
    }

    #[test]
    fn all_change_kinds_happen_and_object_count_is_stable() {
        let (mut rng, mut fleet) = (Rng::with_seed(1), Fleet::default());
        let mut sorts = BTreeSet::new();
        for n in 0..5_000 {
            sorts.insert(fleet.change(&mut rng, 50).what());
            let count = fleet.objects().len();
            assert!(count <= 50 && (n < 50 || count >= 44), "{count} after {n}");
        }
        assert_eq!(sorts.len(), 7, "{sorts:?}");
    }

    #[test]
    fn fleet_matches_applied_changes() {
        let (changes, fleet) = changes(3, 2_000, 40);
        let mut objects = BTreeMap::new();
        for change in changes {
            match change {
                Change::Create(name, wanted) => assert_eq!(objects.insert(name, wanted), None, "a name is used twice"),
                Change::Replace(name, wanted, kind) => {
                    assert_eq!(objects.insert(name, wanted).map(|before| before.kind), Some(kind));
                }
                Change::Scale(name, wanted) | Change::Edit(name, wanted) => {
                    let before = objects.insert(name, wanted).expect("an object");
                    assert!(before != wanted && before.kind == wanted.kind, "{before:?} to {wanted:?}");
                }
                Change::Delete { name, kind, .. } => {
                    assert_eq!(objects.remove(&name).map(|before| before.kind), Some(kind));
                }
                Change::DeleteChild(name, child) | Change::EditChild(name, child, _) => {
                    assert!(objects[&name].children().contains(&child));
                }
            }
        }
        assert_eq!(&objects, fleet.objects());
    }

    #[test]
    fn broken_child_violates_a_fact() {
        let mut rng = Rng::with_seed(5);
        let wanted = Wanted { kind: Kind::Memcached, size: 3, release: 1, extra: true };
        for child in Child::ALL {
            for _ in 0..20 {
                let broken = child.broken(&mut rng);
                let facts = wanted.facts("web", child);
                let breaks = |(pointer, value): &(&str, Value)| broken.pointer(pointer).is_some_and(|it| it != value);
                assert!(facts.iter().any(breaks), "{child:?}: {broken}");
            }
        }
    }
}
