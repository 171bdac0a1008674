//! The desired child: the body to send, and the fields to compare.

use cache::{INSTANCE, Known, MANAGED_BY, Metadata, NAME, ObjectKey, Verified, owned::hash};
use kube::api::ObjectMeta;
use serde_json::{Map, Value, json};
use workloads::{Child, Live};

use super::super::{Context, Primary, Shared};
use crate::{api::Requests, error::Error};

/// A desired child, ready to be sent and compared.
pub(in crate::context) struct Target {
    pub(in crate::context) key: ObjectKey,
    /// The fields that we want to own: without name, namespace, type and status.
    pub(super) fields: Value,
    pub(super) hash: u64,
}

impl<K: Primary, S: Shared> Context<K, S> {
    pub(in crate::context) fn target<C: Child>(&self, requests: &Requests, desired: C) -> Result<Target, Error> {
        self.reconciliation.kinds.lock().push(requests.kind().to_owned());
        let key = self.child_key::<C>(desired.meta())?;
        let Value::Object(mut fields) = serde_json::to_value(desired).map_err(requests.undecodable("write", &key))?
        else {
            return Ok(Target::empty(key));
        };
        fields.values_mut().for_each(without_nulls);
        fields.remove("apiVersion");
        fields.remove("kind");
        fields.remove("status");
        let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            metadata.remove("name");
            metadata.remove("namespace");
            let names = &self.controller.names;
            let labels = metadata.entry("labels").or_insert_with(|| Value::Object(Map::new()));
            labels[NAME] = json!(&*names.app);
            labels[INSTANCE] = json!(&*self.reconciliation.key.name);
            labels[MANAGED_BY] = json!(names.managed_by);
            metadata.insert(
                "ownerReferences".to_owned(),
                json!([{
                    "apiVersion": names.api_version, "kind": names.kind, "name": &*self.reconciliation.key.name,
                    "uid": self.reconciliation.uid, "controller": true, "blockOwnerDeletion": true,
                }]),
            );
        }
        let fields = Value::Object(fields);
        Ok(Target { hash: hash(&fields), key, fields })
    }
}

impl<K: Primary, S: Shared> Context<K, S> {
    /// Returns the key of a desired child. The children of a namespaced object are in its namespace. Those of a cluster-scoped
    /// object name theirs.
    fn child_key<C: Child>(&self, desired: &ObjectMeta) -> Result<ObjectKey, Error> {
        let name = desired.name.as_deref().unwrap_or_default();
        let namespace = match &desired.namespace {
            _ if !C::IS_NAMESPACED => "".into(),
            _ if K::IS_NAMESPACED => self.reconciliation.key.namespace.clone(),
            Some(namespace) => namespace.as_str().into(),
            None => {
                let (kind, owner) = (C::kind(&()), &self.controller.names.kind);
                let message = format!("the desired {kind} \"{name}\" of a cluster-scoped {owner} names no namespace");
                return Err(Error::Other(message.into()));
            }
        };
        Ok(ObjectKey { namespace, name: name.into() })
    }
}

impl Target {
    fn empty(key: ObjectKey) -> Self {
        Self { key, fields: Value::Null, hash: 0 }
    }

    pub(super) fn verified(&self, live: u64) -> Verified {
        Verified { live, desired: self.hash }
    }

    /// Returns the body of a create request.
    pub(in crate::context) fn body(&self, requests: &Requests) -> Value {
        let mut body = self.fields.clone();
        let (api_version, kind) = requests.type_meta();
        body["apiVersion"] = json!(api_version);
        body["kind"] = json!(kind);
        body["metadata"]["name"] = json!(&*self.key.name);
        if !self.key.namespace.is_empty() {
            body["metadata"]["namespace"] = json!(&*self.key.namespace);
        }
        body
    }

    /// Returns the body of an apply that succeeds only on the version that was read: what to change and what to drop was
    /// decided from that version.
    pub(super) fn body_for(&self, requests: &Requests, read: &Metadata<'_>) -> Value {
        let mut body = self.body(requests);
        body["metadata"]["uid"] = json!(&*read.uid);
        body["metadata"]["resourceVersion"] = json!(&*read.resource_version);
        body
    }
}

/// Removes the fields that are null: the API server does not store them.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Decides from two hashes whether the live object is in sync. An object in which we own nothing never counts as in sync:
/// changes of other managers would not show in its fingerprint.
pub(super) fn agrees<C: Child>(target: &Target, known: &Known<Live<C::View>>) -> bool {
    if !known.fingerprint.is_some() {
        return false;
    }
    if known.verified == Some(target.verified(known.fingerprint.hash)) {
        return true;
    }
    let wanted = if known.fingerprint.from_create { hash(&defaulted::<C>(&target.fields)) } else { target.hash };
    known.fingerprint.hash == wanted
}

pub(super) fn defaulted<C: Child>(fields: &Value) -> Value {
    let mut object = fields.clone();
    C::set_defaults(&mut object);
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_are_removed_at_any_depth() {
        let mut value = json!({"a": null, "b": {"c": null, "d": [{"e": null, "f": 1}, null]}});
        without_nulls(&mut value);
        assert_eq!(value, json!({"b": {"d": [{"f": 1}, null]}}), "elements of lists keep their places");
    }
}
