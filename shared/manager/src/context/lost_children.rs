//! Children that left the watch although this operator did not delete them: another client deleted them, or removed the
//! label by which they are watched. In the second case a child that is no longer wanted can still be found and deleted.

use api_errors::Class;
use cache::{Delta, Head, ObjectKey};
use workloads::{Child, Live};

use super::{Context, Memory, Primary, Shared};
use crate::{api::Requests, error::Error};

/// How many lost children of one kind are remembered of an object; of more, the last ones. Most of them were deleted by another
/// client, and each costs a read when no child of the kind is wanted any more.
const MOST: usize = 16;

impl Memory {
    /// Takes in a change of a child of `owner`, an object that exists. For a child that is still wanted, the next write clears
    /// the entry. A child that is no longer wanted is read once; otherwise it would stay for ever.
    pub(crate) fn record_lost_child<V>(&self, owner: &ObjectKey, kind: &str, delta: &Delta<Live<V>>) {
        match &delta.owners {
            [Some(_), None] => self.modify(owner, |it| {
                let lost = &mut it.lost_children;
                lost.retain(|(of, key)| of != kind || *key != delta.key);
                let is_of_kind = |(of, _): &(String, ObjectKey)| of == kind;
                if lost.iter().filter(|it| is_of_kind(it)).count() == MOST
                    && let Some(oldest) = lost.iter().position(is_of_kind)
                {
                    lost.remove(oldest);
                }
                lost.push((kind.to_owned(), delta.key.clone()));
            }),
            [_, Some(_)] => self.clear_lost_child(owner, kind, &delta.key),
            [None, None] => {}
        }
    }

    /// Records that the state of this child is known.
    pub(super) fn clear_lost_child(&self, owner: &ObjectKey, kind: &str, child: &ObjectKey) {
        self.modify(owner, |it| it.lost_children.retain(|(of, key)| of != kind || key != child));
    }

    /// The children of this kind that left the watch.
    fn lost_children(&self, owner: &ObjectKey, kind: &str) -> Vec<ObjectKey> {
        self.read(owner, |it| {
            it.lost_children.iter().filter(|(of, _)| of == kind).map(|(_, key)| key.clone()).collect()
        })
    }
}

impl<K: Primary, S: Shared> Context<K, S> {
    /// Deletes the children of this kind that left the watch, if they still exist and still belong to this object.
    pub(super) async fn delete_lost_children<C: Child>(&self) -> Result<(), Error> {
        let (requests, owner) = (self.requests::<C>(), &self.reconciliation.key);
        for key in self.controller.memory.lost_children(owner, requests.kind()) {
            if self.delete_lost_child::<C>(&requests, &key).await? {
                self.controller.memory.clear_lost_child(owner, requests.kind(), &key);
            }
        }
        Ok(())
    }

    /// Returns false if the API server refuses a request for it. Then the next reconcile has to try again.
    async fn delete_lost_child<C: Child>(&self, requests: &Requests, key: &ObjectKey) -> Result<bool, Error> {
        let text = match requests.get(key).await {
            Ok(text) => text,
            Err(error) if error.class() == Class::NotFound => return Ok(true),
            Err(error) => return self.report_refusal(error).map(|()| false),
        };
        let metadata = serde_json::from_str::<Head<'_>>(&text).map_err(requests.undecodable("read", key))?.metadata;
        let is_ours = metadata.controller().is_some_and(|owner| owner.uid == self.reconciliation.uid.as_str());
        if is_ours && metadata.deletion_timestamp.is_none() {
            return self.delete_unwanted::<C>(requests, key, &metadata.uid, Some(&text)).await;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use cache::{Owner, Uid};

    use super::*;

    /// A change of this child. Each flag says whether the child has the owner, before and after.
    fn change(name: &str, [before, after]: [bool; 2]) -> Delta<Live<()>> {
        let owner = |has_it: bool| has_it.then(|| Owner { uid: Uid::of("u"), name: "a".into() });
        Delta {
            key: ObjectKey::new("n", name),
            items: [None, None],
            owners: [owner(before), owner(after)],
            apps: [None, None],
            undecodable: None,
            writer: None,
        }
    }

    fn lost(memory: &Memory, kind: &str) -> Vec<String> {
        let children = memory.lost_children(&ObjectKey::new("n", "a"), kind);
        children.iter().map(|key| key.name.to_string()).collect()
    }

    #[test]
    fn lost_child_is_forgotten_when_its_own_state_is_known() {
        let (memory, owner) = (Memory::default(), ObjectKey::new("n", "a"));
        for name in ["x", "y", "x"] {
            memory.record_lost_child(&owner, "Service", &change(name, [true, false]));
        }
        memory.record_lost_child(&owner, "Secret", &change("y", [true, false]));
        memory.record_lost_child(&owner, "Service", &change("z", [true, true]));
        assert_eq!(lost(&memory, "Service"), ["y", "x"], "a change of a sibling says nothing about them");
        memory.record_lost_child(&owner, "Service", &change("y", [false, true]));
        assert_eq!((lost(&memory, "Service"), lost(&memory, "Secret")), (vec!["x".to_owned()], vec!["y".to_owned()]));
        memory.clear_lost_child(&owner, "Service", &ObjectKey::new("n", "x"));
        assert_eq!(lost(&memory, "Service"), Vec::<String>::new());
    }

    #[test]
    fn of_many_lost_children_the_last_ones_of_each_kind_are_remembered() {
        let (memory, owner) = (Memory::default(), ObjectKey::new("n", "a"));
        memory.record_lost_child(&owner, "Secret", &change("first", [true, false]));
        for number in 0..MOST + 2 {
            memory.record_lost_child(&owner, "Service", &change(&number.to_string(), [true, false]));
        }
        let expected: Vec<String> = (2..MOST + 2).map(|number| number.to_string()).collect();
        assert_eq!((lost(&memory, "Service"), lost(&memory, "Secret")), (expected, vec!["first".to_owned()]));
    }
}
