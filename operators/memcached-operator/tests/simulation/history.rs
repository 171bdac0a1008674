//! Judges for which the present state is not enough: what earlier specs have left behind, and whether the pods follow their
//! Secrets. They also look at the changes of the cluster. A restore clears these, and then less is known.

use model_apiserver::{Change, Model};
use serde_json::{Value, json};
use simulation::oracle::beside;

use super::{
    placement::{PREFERRED, REQUIRED, anti_affinity},
    secured::{has_tls, mounted, verify_mode},
};

const DEPLOYMENTS: &str = "deployments.apps";
/// The annotation of the pods with the hash of their Secrets.
pub(crate) const HASH: &str = "memcached.cache.example.com/secret-hash";
/// The name with which the operator writes children.
const FIELD_MANAGER: &str = "memcached-controller";

/// Section 1.4 of the specification: a field that users remove from the spec is removed from the child.
pub(super) fn has_no_more(deployment: &Value, service: &Value, spec: &Value, cluster: &Model) -> Result<(), String> {
    let template = &deployment["spec"]["template"];
    let (pod, has_files) = (&template["spec"], !spec["auth"].is_null() || has_tls(spec));
    let apart = &pod["affinity"]["podAntiAffinity"];
    for (what, live, is_wanted) in [
        ("volumes", &pod["volumes"], has_files),
        ("volumeMounts", &pod["containers"][0]["volumeMounts"], has_files),
        ("volumeMounts of the exporter", &pod["containers"][1]["volumeMounts"], verify_mode(spec).is_some()),
        ("preferred antiAffinity", &apart[PREFERRED], anti_affinity(spec) == "Soft"),
        ("required antiAffinity", &apart[REQUIRED], anti_affinity(spec) == "Hard"),
        ("nodeSelector", &pod["nodeSelector"], !spec["nodeSelector"]["disk"].is_null()),
        ("the label team", &template["metadata"]["labels"]["team"], !spec["podLabels"].is_null()),
    ] {
        if is_there(live) && !is_wanted {
            return Err(format!("{what} is left over: {live}"));
        }
    }
    let annotations = &template["metadata"]["annotations"];
    for (child, live, is_wanted) in [
        (deployment, &annotations["note"], !spec["podAnnotations"].is_null()),
        (deployment, &annotations[HASH], has_files),
        (service, &service["metadata"]["annotations"]["zone"], !spec["service"]["annotations"].is_null()),
    ] {
        if is_there(live) && !is_wanted && always_had_an_entry(child, cluster) {
            return Err(format!("an annotation of the {} is left over: {live}", child["kind"]));
        }
    }
    Ok(())
}

fn is_there(live: &Value) -> bool {
    !live.is_null() && *live != json!([])
}

/// Whether `managedFields` of this child have had an entry of the operator ever since the child was created. If another client clears
/// them, an annotation that the operator has set before looks like one of that client, which the operator must leave alone.
fn always_had_an_entry(child: &Value, cluster: &Model) -> bool {
    let resource = if child["kind"] == "Service" { "services" } else { DEPLOYMENTS };
    let changes = cluster.changes_after(0);
    let states = states_of(child, resource, &changes);
    let has_entry = |state: &&Change| {
        let entries = state.after.as_deref().and_then(|it| it["metadata"]["managedFields"].as_array());
        entries.is_some_and(|entries| entries.iter().any(|entry| entry["manager"] == FIELD_MANAGER))
    };
    is_whole(&states) && states.iter().all(has_entry)
}

/// Section 2.4 of the specification, item 11: another content of a Secret gives the pods another hash. Checks for each Secret that the
/// operator has set the hash since the Secret first had the content that it has now. Only the keys that the pods mount matter.
/// `object` names such Secrets, and has a Deployment.
pub(super) fn follows_secrets(object: &Value, cluster: &Model) -> Result<(), String> {
    let [namespace, name] = ["namespace", "name"].map(|it| object["metadata"][it].as_str().unwrap_or_default());
    let changes = cluster.changes_after(0);
    let deployment = beside(object, cluster, DEPLOYMENTS, name).unwrap_or_default();
    let states = states_of(&deployment, DEPLOYMENTS, &changes);
    if !is_whole(&states) {
        return Ok(()); // its hash may be of a content from before a restore
    }
    let hash = |it: Option<&Value>| {
        it.map(|it| it["spec"]["template"]["metadata"]["annotations"][HASH].clone()).unwrap_or_default()
    };
    let is_set = |it: &&&Change| hash(it.before.as_deref()) != hash(it.after.as_deref());
    let Some(set) = states.iter().rfind(is_set).map(|it| it.version) else {
        return Err("the pods have no hash of their Secrets".to_owned());
    };
    for it in mounted(name, &object["spec"]).iter().filter(|it| it.is_named) {
        let files = |secret: &Value| it.keys.iter().map(|key| secret["data"][key].clone()).collect::<Vec<_>>();
        let content = |secret: Option<&Value>| secret.map(files);
        let present = content(beside(object, cluster, "secrets", &it.secret).as_ref());
        let key = format!("{namespace}/{}", it.secret);
        let mut writes = changes.iter().filter(|write| *write.resource == *"secrets" && *write.key == *key).peekable();
        let was_there = writes.peek().is_none_or(|first| content(first.before.as_deref()) == present);
        let first = writes.find(|write| content(write.after.as_deref()) == present).map(|write| write.version);
        if let Some(first) = first.filter(|first| !was_there && set < *first) {
            return Err(format!("the pods have the hash of version {set}, and {} is of version {first}", it.secret));
        }
    }
    Ok(())
}

/// The changes of this child since its creation, as far as they are known.
fn states_of<'a>(child: &Value, resource: &str, changes: &'a [Change]) -> Vec<&'a Change> {
    let uid = &child["metadata"]["uid"];
    let is_state = |it: &&Change| {
        *it.resource == *resource && it.after.as_ref().is_some_and(|after| after["metadata"]["uid"] == *uid)
    };
    changes.iter().filter(is_state).collect()
}

/// Whether these changes begin with the creation.
fn is_whole(states: &[&Change]) -> bool {
    states.first().is_some_and(|first| first.before.is_none())
}
