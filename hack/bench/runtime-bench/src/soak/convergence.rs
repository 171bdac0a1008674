//! Checks that all objects have converged: nothing is lost, duplicated or left behind.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::fleet::{Child, Fleet, Wanted};

/// The present objects and children.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) objects: Vec<Value>,
    pub(crate) children: Vec<(Child, Value)>,
}

/// The differences from the wanted state, one line each; empty when everything has converged.
pub(crate) fn differences(fleet: &Fleet, snapshot: &Snapshot) -> Vec<String> {
    let mut found = Vec::new();
    let mut living: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for object in &snapshot.objects {
        living.entry(name(object)).or_default().push(object);
    }
    for (name, wanted) in fleet.objects() {
        match living.remove(name.as_str()).as_deref() {
            None => found.push(format!("{name} is lost")),
            Some([object]) => found.extend(of_object(name, *wanted, object, &snapshot.children)),
            Some(several) => found.push(format!("{name} is there {} times", several.len())),
        }
    }
    found.extend(living.keys().map(|name| format!("{name} should be gone")));

    let owners: BTreeSet<&str> = snapshot.objects.iter().map(uid).collect();
    for (kind, child) in &snapshot.children {
        match owner(child) {
            None => found.push(format!("{kind:?} {} has no owner", name(child))),
            Some(owner) if !owners.contains(owner) => {
                found.push(format!("the owner of {kind:?} {} is gone", name(child)));
            }
            Some(_) => {}
        }
    }
    found
}

fn of_object(name: &str, wanted: Wanted, object: &Value, children: &[(Child, Value)]) -> Vec<String> {
    let mut found = Vec::new();
    let mut say = |what: String| found.push(format!("{name}: {what}"));
    if !object["metadata"]["deletionTimestamp"].is_null() {
        say("it is being deleted".to_owned());
    }
    // Size and image are enough: the load writes all other fields together with them or after them.
    if object["spec"]["size"] != json!(wanted.size) || object["spec"]["image"] != json!(wanted.image()) {
        say(format!("its spec is not what was last written: {}", object["spec"]));
    }
    let status = &object["status"];
    if status["observedGeneration"] != object["metadata"]["generation"] {
        say(format!(
            "it was observed at {}, and not at {}",
            status["observedGeneration"], object["metadata"]["generation"]
        ));
    }
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    if !status["conditions"].as_array().is_some_and(|all| all.iter().any(is_ready)) {
        say(format!("it is not ready: {}", status["conditions"]));
    }
    let expected = wanted.children();
    for child in Child::ALL {
        let own: Vec<&Value> = children
            .iter()
            .filter(|(kind, it)| *kind == child && owner(it) == Some(uid(object)))
            .map(|it| &it.1)
            .collect();
        match (own.as_slice(), expected.contains(&child)) {
            ([], false) => {}
            ([own], true) => {
                for (pointer, value) in wanted.facts(name, child) {
                    let is = own.pointer(pointer).unwrap_or(&Value::Null);
                    if *is != value {
                        say(format!("{pointer} of its {child:?} is {is}, and not {value}"));
                    }
                }
            }
            ([], true) => say(format!("it has no {child:?}")),
            ([_], false) => say(format!("it still has a {child:?}")),
            (several, _) => say(format!("it has {} {child:?}s", several.len())),
        }
    }
    found
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The uid of the object's controller.
fn owner(child: &Value) -> Option<&str> {
    let owners = child["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::{kind::Kind, soak::fleet::Change};

    /// One Memcached with all its children.
    fn converged() -> (Fleet, Snapshot) {
        let mut rng = Rng::with_seed(1);
        let (fleet, name, wanted) = loop {
            let mut fleet = Fleet::default();
            if let Change::Create(name, wanted) = fleet.change(&mut rng, 1)
                && wanted == (Wanted { kind: Kind::Memcached, size: 3, ..wanted })
                && !wanted.extra
            {
                break (fleet, name, wanted);
            }
        };
        let object = json!({
            "metadata": {"name": name, "uid": "1", "generation": 4},
            "spec": wanted.spec(),
            "status": {"observedGeneration": 4, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        let labels = json!({"app.kubernetes.io/managed-by": "memcached-operator"});
        let metadata = json!({
            "name": name, "uid": "2", "labels": labels, "ownerReferences": [{"uid": "1", "controller": true}],
        });
        let container = json!({"image": wanted.image()});
        let specs = [
            (Child::Deployment, json!({"replicas": 3, "template": {"spec": {"containers": [container]}}})),
            (Child::Service, json!({"selector": {"app.kubernetes.io/instance": name}})),
            (Child::DisruptionBudget, json!({"maxUnavailable": 1})),
        ];
        let children = specs.map(|(child, spec)| (child, json!({"metadata": metadata, "spec": spec}))).into();
        (fleet, Snapshot { objects: vec![object], children })
    }

    #[test]
    fn converged_state_has_no_differences() {
        let (fleet, snapshot) = converged();
        assert_eq!(differences(&fleet, &snapshot), [""; 0]);
    }

    #[test]
    fn every_difference_is_reported() {
        type Wrong = fn(&mut Snapshot);
        let cases: [(&str, Wrong); 14] = [
            ("soak-00000 is lost", |it| it.objects.clear()),
            ("soak-00000 is there 2 times", |it| it.objects.extend(it.objects.clone())),
            ("other should be gone", |it| it.objects.push(json!({"metadata": {"name": "other", "uid": "9"}}))),
            ("soak-00000: it is being deleted", |it| it.objects[0]["metadata"]["deletionTimestamp"] = json!("now")),
            ("soak-00000: its spec is not what was last written", |it| it.objects[0]["spec"]["size"] = json!(4)),
            ("soak-00000: it was observed at 4, and not at 5", |it| it.objects[0]["metadata"]["generation"] = json!(5)),
            ("soak-00000: it is not ready", |it| it.objects[0]["status"]["conditions"] = json!([])),
            ("soak-00000: it has no Deployment", |it| drop(it.children.remove(0))),
            ("soak-00000: it has 2 Services", |it| it.children.push(it.children[1].clone())),
            ("soak-00000: it still has a NetworkPolicy", |it| {
                it.children.push((Child::NetworkPolicy, it.children[0].1.clone()));
            }),
            ("soak-00000: /spec/replicas of its Deployment is 7, and not 3", |it| {
                it.children[0].1["spec"]["replicas"] = json!(7);
            }),
            ("soak-00000: /metadata/labels/app.kubernetes.io~1managed-by of its Service is", |it| {
                it.children[1].1["metadata"]["labels"] = json!({});
            }),
            ("Service soak-00000 has no owner", |it| {
                it.children[1].1["metadata"]["ownerReferences"] = json!([]);
            }),
            ("the owner of Service soak-00000 is gone", |it| {
                it.children[1].1["metadata"]["ownerReferences"][0]["uid"] = json!("8");
            }),
        ];
        for (expected, wrong) in cases {
            let (fleet, mut snapshot) = converged();
            wrong(&mut snapshot);
            let found = differences(&fleet, &snapshot);
            assert!(found.iter().any(|line| line.starts_with(expected)), "{expected}: {found:?}");
        }
    }
}
