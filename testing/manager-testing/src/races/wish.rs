//! The changes that a user makes to one object, and the state that must follow from them. Pure.

use std::fmt;

use fastrand::Rng;
use serde_json::{Value, json};

/// One change by the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// Requests a reconcile, with this token.
    Ask(String),
    Size(u32),
    /// Sets or removes the annotation that pauses.
    Pause(bool),
    /// Deletes the object and creates another one with the same name.
    Replace,
}

/// The sum of the user's changes so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    uid: String,
    size: u32,
    paused: bool,
    token: Option<String>,
    asked: u32,
}

/// The last known state of an object and of its Deployment, which has the same name. `Null` if one does not exist.
#[derive(Debug, Clone, Default)]
pub(super) struct Pair {
    pub(super) object: Value,
    pub(super) deployment: Value,
}

const SIZES: u32 = 5;

impl Default for Wish {
    fn default() -> Self {
        Self { uid: String::new(), size: 1, paused: false, token: None, asked: 0 }
    }
}

impl Wish {
    /// The two changes of the next round. The first one usually changes no child. Then the operator writes only the status, and
    /// no event of a child causes another reconcile afterwards.
    pub(super) fn pair(&mut self, rng: &mut Rng) -> (Change, Change) {
        let first = match rng.u32(..100) {
            0..70 => self.ask(),
            70..85 => self.resize(rng),
            _ => Change::Pause(!self.paused),
        };
        let mut then = self.clone();
        then.apply(&first);
        let last = match rng.u32(..100) {
            0..50 => then.ask(),
            50..70 => then.resize(rng),
            70..85 => Change::Pause(!then.paused),
            _ => Change::Replace,
        };
        self.asked = then.asked;
        (first, last)
    }

    /// Requests a reconcile, with a new token.
    pub(super) fn ask(&mut self) -> Change {
        self.asked += 1;
        Change::Ask(format!("token-{}", self.asked))
    }

    /// Changes the size to another than the present one.
    fn resize(&self, rng: &mut Rng) -> Change {
        Change::Size((self.size + rng.u32(1..SIZES) - 1) % SIZES + 1)
    }

    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Ask(token) => self.token = Some(token.clone()),
            Change::Size(size) => self.size = *size,
            Change::Pause(paused) => self.paused = *paused,
            Change::Replace => {}
        }
    }

    /// Starts over with a new object, without annotations.
    pub(super) fn begin(&mut self, uid: String) {
        *self = Self { uid, size: self.size, paused: false, token: None, asked: self.asked };
    }

    pub(super) fn size(&self) -> u32 {
        self.size
    }
}

impl Change {
    /// The change as a merge patch; `Null` for a replacement.
    pub(super) fn patch(&self, group: &str) -> Value {
        let annotation =
            |name: &str, value: Value| json!({"metadata": {"annotations": {format!("{group}/{name}"): value}}});
        match self {
            Self::Ask(token) => annotation("reconcile-requested-at", json!(token)),
            Self::Pause(paused) => annotation("paused", json!(paused.then_some("true"))),
            Self::Size(size) => json!({"spec": {"size": size}}),
            Self::Replace => Value::Null,
        }
    }
}

impl Pair {
    /// The first difference between the object's status and the state that must follow from the wish.
    pub(super) fn difference_in_status(&self, wish: &Wish) -> Option<String> {
        let (metadata, status) = (&self.object["metadata"], &self.object["status"]);
        let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
        let is_paused = ready.is_some_and(|ready| ready["reason"] == "Paused");
        let facts = [
            ("metadata.uid", metadata["uid"].clone(), json!(wish.uid)),
            ("status.lastHandledReconcileAt", status["lastHandledReconcileAt"].clone(), json!(wish.token)),
            ("status.observedGeneration", status["observedGeneration"].clone(), metadata["generation"].clone()),
            ("the pause in the status", json!(is_paused), json!(wish.paused)),
        ];
        first_difference(facts)
    }

    /// The first difference in the status or, unless the object is paused, in the Deployment.
    pub(super) fn difference(&self, wish: &Wish) -> Option<String> {
        let in_status = self.difference_in_status(wish);
        if in_status.is_some() || wish.paused {
            return in_status;
        }
        let owner = self.deployment.pointer("/metadata/ownerReferences/0/uid").cloned().unwrap_or_default();
        first_difference([
            ("the owner of the Deployment", owner, json!(wish.uid)),
            ("spec.replicas of the Deployment", self.deployment["spec"]["replicas"].clone(), json!(wish.size)),
        ])
    }
}

fn first_difference<const N: usize>(facts: [(&str, Value, Value); N]) -> Option<String> {
    let (what, is, wanted) = facts.into_iter().find(|(_, is, wanted)| is != wanted)?;
    Some(format!("{what} is {is}, not {wanted}"))
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(token) => write!(f, "ask {token}"),
            Self::Size(size) => write!(f, "size {size}"),
            Self::Pause(true) => f.write_str("pause"),
            Self::Pause(false) => f.write_str("resume"),
            Self::Replace => f.write_str("replace"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A reconciled object with its Deployment.
    fn acted_on() -> (Wish, Pair) {
        let wish = Wish { uid: "1".to_owned(), size: 3, token: Some("token-7".to_owned()), ..Wish::default() };
        let object = json!({
            "metadata": {"uid": "1", "generation": 4},
            "status": {
                "observedGeneration": 4, "lastHandledReconcileAt": "token-7",
                "conditions": [{"type": "Ready", "reason": "Ready"}],
            },
        });
        let deployment = json!({"metadata": {"ownerReferences": [{"uid": "1"}]}, "spec": {"replicas": 3}});
        (wish, Pair { object, deployment })
    }

    #[test]
    fn handled_wish_has_no_difference() {
        let (wish, pair) = acted_on();
        assert_eq!(pair.difference(&wish), None);
        let (wish, pair) = (Wish { token: None, ..wish }, Pair { object: without_token(pair.object), ..pair });
        assert_eq!(pair.difference(&wish), None, "no request was made");
    }

    fn without_token(mut object: Value) -> Value {
        object["status"].as_object_mut().expect("an object").remove("lastHandledReconcileAt");
        object
    }

    #[test]
    fn every_missed_change_is_reported_as_a_difference() {
        let (wish, pair) = acted_on();
        for (change, expected) in [
            (Change::Ask("token-8".to_owned()), r#"status.lastHandledReconcileAt is "token-7", not "token-8""#),
            (Change::Pause(true), "the pause in the status is false, not true"),
            (Change::Size(5), "spec.replicas of the Deployment is 3, not 5"),
        ] {
            let mut wish = wish.clone();
            wish.apply(&change);
            assert_eq!(pair.difference(&wish).as_deref(), Some(expected));
        }
        let mut replaced = wish.clone();
        replaced.begin("2".to_owned());
        assert_eq!(pair.difference(&replaced).as_deref(), Some(r#"metadata.uid is "1", not "2""#));
        let mut edited = pair.clone();
        edited.object["metadata"]["generation"] = json!(5);
        assert_eq!(edited.difference(&wish).as_deref(), Some("status.observedGeneration is 4, not 5"));
        assert_eq!(Pair::default().difference(&wish).as_deref(), Some(r#"metadata.uid is null, not "1""#));
        let alone = Pair { deployment: Value::Null, ..pair };
        assert_eq!(alone.difference(&wish).as_deref(), Some(r#"the owner of the Deployment is null, not "1""#));
    }

    #[test]
    fn all_change_pairs_occur_and_no_change_is_a_no_op() {
        let (mut wish, mut rng, mut pairs) = (Wish::default(), Rng::with_seed(1), BTreeSet::new());
        let word = |change: &Change| change.to_string().split(' ').next().unwrap_or_default().to_owned();
        for round in 0..5_000 {
            let (first, last) = wish.pair(&mut rng);
            pairs.insert(format!("{} {}", word(&first), word(&last)));
            for change in [first, last] {
                let before = wish.clone();
                match change {
                    Change::Replace => wish.begin(round.to_string()),
                    _ => wish.apply(&change),
                }
                assert_ne!(wish, before, "{change}");
                assert!((1..=SIZES).contains(&wish.size));
            }
        }
        assert_eq!(pairs.len(), 4 * 5 - 2, "no pause follows a pause, and no resume a resume: {pairs:?}");
    }
}
