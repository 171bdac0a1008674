//! The garbage collector and the namespace controller, which delete objects after their owner or namespace was deleted.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    delete::{FOREGROUND, ORPHAN, Options},
    kind::Kind,
    state::{State, key_of},
    write::Target,
};

/// An object and its kind.
type Found = (Arc<Kind>, Arc<Value>);

impl State {
    /// Runs until nothing is left to collect. Returns the number of writes.
    pub(crate) fn collect(&mut self) -> usize {
        let mut writes = 0;
        loop {
            let before = self.version;
            for (kind, object) in self.everything() {
                // An earlier deletion of this loop may have deleted it already.
                let now = self.get(&kind.resource(), &key_of(&object));
                if let Some(object) = now.filter(|now| now["metadata"]["uid"] == object["metadata"]["uid"]) {
                    self.tend(&kind, &object);
                }
            }
            if self.version == before {
                return writes;
            }
            writes += usize::try_from(self.version - before).unwrap_or(usize::MAX);
        }
    }

    fn everything(&self) -> Vec<Found> {
        let resources: Vec<String> = self.resources().map(str::to_owned).collect();
        let mut out = Vec::new();
        for resource in resources {
            if let Some(kind) = self.kinds.iter().find(|kind| kind.resource() == resource) {
                out.extend(self.all(&resource).map(|(_, object)| (kind.clone(), object.clone())));
            }
        }
        out
    }

    fn tend(&mut self, kind: &Arc<Kind>, object: &Arc<Value>) {
        let metadata = &object["metadata"];
        let dying = metadata.get("deletionTimestamp").is_some();
        let has = |name: &str| metadata["finalizers"].as_array().is_some_and(|list| list.iter().any(|it| it == name));
        if dying && has(ORPHAN) {
            self.orphan(kind, object);
        } else if dying && has(FOREGROUND) {
            self.delete_dependents_of(kind, object);
        } else if dying && kind.resource() == "namespaces" {
            self.empty_namespace(object);
        } else if !dying {
            self.follow_owners(kind, object);
        }
    }

    /// Deletes an object if none of its owners exists any more. Otherwise removes the references to missing owners.
    fn follow_owners(&mut self, kind: &Arc<Kind>, object: &Arc<Value>) {
        let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        if owners.is_empty() {
            return;
        }
        let present: Vec<Value> =
            owners.iter().filter(|owner| self.owner(kind, object, owner).is_some()).cloned().collect();
        // For its dependents, an owner that waits for them counts as missing.
        let solid = present
            .iter()
            .any(|owner| self.owner(kind, object, owner).is_some_and(|(_, owner)| !waits_for_dependents(&owner)));
        let target = Self::target(kind, object);
        if !solid && !present.is_empty() {
            drop(self.delete(&target, &Options::foreground(&object["metadata"]["uid"])));
        } else if present.is_empty() {
            drop(self.delete(&target, &Options::background(&object["metadata"]["uid"])));
        } else if present.len() < owners.len() {
            let mut new = (**object).clone();
            new["metadata"]["ownerReferences"] = present.into();
            self.store(&target, object, new);
        }
    }

    /// The owner of a reference, if it exists.
    fn owner(&self, kind: &Kind, object: &Value, reference: &Value) -> Option<Found> {
        let text = |name: &str| reference[name].as_str().unwrap_or_default();
        let owner_kind = self.kind_of(text("apiVersion"), text("kind"))?;
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        if owner_kind.namespaced && !kind.namespaced {
            return None;
        }
        let namespace = if owner_kind.namespaced { namespace } else { "" };
        let found = self.get(&owner_kind.resource(), &crate::state::key(namespace, text("name")))?;
        (found["metadata"]["uid"] == reference["uid"]).then_some((owner_kind, found))
    }

    fn dependents(&self, owner: &Value) -> Vec<Found> {
        let uid = &owner["metadata"]["uid"];
        let mine = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(|reference| reference["uid"] == *uid))
        };
        self.everything().into_iter().filter(|(_, object)| mine(object)).collect()
    }

    fn delete_dependents_of(&mut self, kind: &Arc<Kind>, owner: &Arc<Value>) {
        let dependents = self.dependents(owner);
        let uid = &owner["metadata"]["uid"];
        let blocks = |object: &Value| {
            let references = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            references.filter(|it| it["uid"] == *uid).any(|it| it["blockOwnerDeletion"] == true)
        };
        if !dependents.iter().any(|(_, object)| blocks(object)) {
            self.finalized(kind, owner, FOREGROUND);
            return;
        }
        for (kind, object) in dependents {
            if object["metadata"].get("deletionTimestamp").is_none() {
                self.follow_owners(&kind, &object);
            }
        }
    }

    fn orphan(&mut self, kind: &Arc<Kind>, owner: &Arc<Value>) {
        for (kind, object) in self.dependents(owner) {
            let mut new = (*object).clone();
            if let Some(references) = new["metadata"]["ownerReferences"].as_array_mut() {
                references.retain(|reference| reference["uid"] != owner["metadata"]["uid"]);
            }
            let target = Self::target(&kind, &object);
            self.store(&target, &object, new);
        }
        self.finalized(kind, owner, ORPHAN);
    }

    fn finalized(&mut self, kind: &Arc<Kind>, object: &Arc<Value>, finalizer: &str) {
        let mut new = (**object).clone();
        if let Some(finalizers) = new["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|it| it != finalizer);
        }
        let target = Self::target(kind, object);
        self.store(&target, object, new);
    }

    fn empty_namespace(&mut self, namespace: &Arc<Value>) {
        let name = &namespace["metadata"]["name"];
        let inside: Vec<Found> =
            self.everything().into_iter().filter(|(_, object)| object["metadata"]["namespace"] == *name).collect();
        if inside.is_empty() {
            self.remove("namespaces", &key_of(namespace));
        }
        for (kind, object) in inside {
            let target = Self::target(&kind, &object);
            drop(self.delete(&target, &Options::background(&object["metadata"]["uid"])));
        }
    }

    fn store(&mut self, target: &Target, old: &Arc<Value>, mut new: Value) {
        target.kind.decode(&mut new);
        // The server refuses none of these writes. If it did, the next run would retry, as in the real controller.
        drop(self.update(target, old, new));
    }

    fn target(kind: &Arc<Kind>, object: &Value) -> Target {
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        Target {
            kind: kind.clone(),
            namespace: text("namespace"),
            name: text("name"),
            subresource: String::new(),
            manager: "kube-controller-manager".to_owned(),
            dry_run: false,
        }
    }
}

fn waits_for_dependents(owner: &Value) -> bool {
    let finalizers = owner["metadata"]["finalizers"].as_array();
    owner["metadata"].get("deletionTimestamp").is_some()
        && finalizers.is_some_and(|list| list.iter().any(|it| it == FOREGROUND))
}
