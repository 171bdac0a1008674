//! The final state of a namespace, without the fields that differ in each run.

use std::collections::BTreeMap;

use kube::{
    Api,
    api::ListParams,
    core::{DynamicObject, GroupVersionKind, TypeMeta},
    discovery::ApiResource,
};
use serde_json::Value;

use crate::world::World;

/// The final objects of some kinds, by kind and name.
#[derive(Debug, Clone, PartialEq)]
pub struct EndState(BTreeMap<String, Value>);

/// Fields that differ in each run, at any place.
const CHANCE: [&str; 7] =
    ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "lastTransitionTime", "time", "selfLink"];

/// Reads the namespace as it is now.
pub(crate) async fn of(world: &World, kinds: &[&str]) -> EndState {
    let mut objects = Vec::new();
    for kind in kinds {
        let (group_version, kind) = kind.rsplit_once('/').expect("group/version/Kind");
        let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &resource);
        for mut object in api.list(&ListParams::default()).await.expect("the API server answers").items {
            // Objects in a list have no `apiVersion` and `kind`.
            object.types = Some(TypeMeta { api_version: resource.api_version.clone(), kind: kind.to_owned() });
            objects.push(serde_json::to_value(object).expect("JSON"));
        }
    }
    EndState::new(&objects, &world.namespace)
}

impl EndState {
    pub(crate) fn new(objects: &[Value], namespace: &str) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = |object: &Value| format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
        let names: BTreeMap<String, String> = objects
            .iter()
            .map(|object| (text(&object["metadata"]["uid"]), format!("the uid of {}", name(object))))
            .collect();
        let objects = objects.iter().map(|object| (name(object), clean(object, &names, namespace)));
        Self(objects.collect())
    }

    pub(crate) fn mask(&mut self, mask: impl Fn(&mut Value)) {
        self.0.values_mut().for_each(mask);
    }

    /// Describes the first difference.
    pub fn differs_from(&self, reference: &Self) -> Option<String> {
        let names = reference.0.keys().chain(self.0.keys());
        for name in names {
            match (self.0.get(name), reference.0.get(name)) {
                (Some(ours), Some(theirs)) => {
                    if let Some(difference) = difference(name, ours, theirs) {
                        return Some(difference);
                    }
                }
                (ours, _) => return Some(format!("{name} is {}", if ours.is_some() { "surplus" } else { "missing" })),
            }
        }
        None
    }
}

fn difference(path: &str, ours: &Value, theirs: &Value) -> Option<String> {
    match (ours, theirs) {
        (Value::Object(ours_), Value::Object(theirs_)) => {
            let names: std::collections::BTreeSet<&String> = ours_.keys().chain(theirs_.keys()).collect();
            names.into_iter().find_map(|name| difference(&format!("{path}.{name}"), &ours[name], &theirs[name]))
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            let pairs = ours.iter().zip(theirs).enumerate();
            pairs.into_iter().find_map(|(index, (ours, theirs))| difference(&format!("{path}[{index}]"), ours, theirs))
        }
        _ => (ours != theirs).then(|| format!("{path} is {ours} instead of {theirs}")),
    }
}

/// Removes the fields that differ in each run. References by uid become the name of their target.
fn clean(object: &Value, names: &BTreeMap<String, String>, namespace: &str) -> Value {
    let mut text = object.to_string().replace(namespace, "the namespace");
    for (uid, name) in names {
        text = text.replace(uid.as_str(), name); // also inside the keys of managed fields
    }
    let mut object = serde_json::from_str(&text).expect("JSON");
    erase(&mut object);
    object
}

fn erase(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // The object's own uid is erased, too. Its owner's uid stays as a name: `clean` has already replaced it.
            for (name, field) in fields.iter_mut() {
                if CHANCE.contains(&name.as_str()) {
                    *field = Value::Null;
                } else {
                    erase(field);
                }
            }
            if let Some(Value::Array(entries)) = fields.get_mut("managedFields") {
                entries.sort_by_key(|entry| format!("{} {}", entry["manager"], entry["subresource"]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(erase),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A Service with the uid `own`, whose owner exists and has the uid `owner-7`.
    fn state(own: &str, object: &Value) -> EndState {
        let names = [(own, "the uid of Service web"), ("owner-7", "the uid of Memcached web")];
        let names = names.map(|(uid, name)| (uid.to_owned(), name.to_owned()));
        EndState(BTreeMap::from([("Service web".to_owned(), clean(object, &names.into(), "shop-1"))]))
    }

    #[test]
    fn random_values_are_ignored_and_all_others_compared() {
        let object = |uid: &str, owner: &str, port: u32| {
            let metadata = json!({
                "uid": uid, "namespace": "shop-1", "creationTimestamp": uid,
                "ownerReferences": [{"uid": owner, "controller": true}],
                "managedFields": [{"fieldsV1": {format!("k:{{\"uid\":\"{owner}\"}}"): {}}}],
            });
            state(uid, &json!({"metadata": metadata, "spec": {"ports": [{"port": port}]}}))
        };
        let reference = object("own-1", "owner-7", 80);
        assert_eq!(object("own-2", "owner-7", 80).differs_from(&reference), None);
        assert_eq!(
            object("own-1", "owner-7", 81).differs_from(&reference).as_deref(),
            Some("Service web.spec.ports[0].port is 81 instead of 80")
        );
        assert!(object("own-1", "owner-8", 80).differs_from(&reference).is_some(), "another owner is a difference");
        assert!(EndState(BTreeMap::new()).differs_from(&reference).is_some());
        assert!(reference.differs_from(&EndState(BTreeMap::new())).is_some());
    }
}
