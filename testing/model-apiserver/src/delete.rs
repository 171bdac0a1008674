//! DELETE requests: preconditions, finalizers, grace periods and propagation.

use std::sync::Arc;

use jiff::ToSpan;
use serde_json::{Value, json};

use crate::{
    kind::{Kind, Named},
    refusal::Refusal,
    request::RequestInfo,
    selector::Selector,
    state::State,
    write::{Answer, Target},
};

/// The finalizer of foreground deletion: dependents are deleted first.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of orphaning: dependents lose their owner and stay.
pub(crate) const ORPHAN: &str = "orphan";

/// The options of a DELETE.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    uid: Option<String>,
    version: Option<String>,
    propagation: Option<String>,
    grace: Option<i64>,
    dry_run: bool,
}

impl Options {
    pub(crate) fn read(request: &RequestInfo) -> Result<Self, Refusal> {
        let body: Value = if request.body.is_empty() {
            json!({})
        } else {
            serde_json::from_slice(&request.body).map_err(|error| Refusal::bad_request(error.to_string()))?
        };
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let asked = |name: &str| request.query.get(name).cloned();
        Ok(Self {
            uid: text("/preconditions/uid"),
            version: text("/preconditions/resourceVersion"),
            propagation: text("/propagationPolicy").or_else(|| asked("propagationPolicy")),
            grace: body["gracePeriodSeconds"]
                .as_i64()
                .or_else(|| asked("gracePeriodSeconds").and_then(|seconds| seconds.parse().ok())),
            dry_run: body["dryRun"].as_array().is_some_and(|it| !it.is_empty()) || request.text("dryRun") == "All",
        })
    }

    /// The options that the garbage collector uses.
    pub(crate) fn background(uid: &Value) -> Self {
        let uid = uid.as_str().map(str::to_owned);
        Self { uid, propagation: Some("Background".to_owned()), ..Self::default() }
    }

    pub(crate) fn foreground(uid: &Value) -> Self {
        Self { propagation: Some("Foreground".to_owned()), ..Self::background(uid) }
    }

    fn check(&self, kind: &Kind, name: &str, metadata: &Value) -> Result<(), Refusal> {
        let is = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        let named = Named { group: kind.refused_group(), plural: &kind.kind };
        if let Some(uid) = self.uid.as_ref().filter(|uid| **uid != is("uid")) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
                 deleted and then recreated",
                is("uid")
            );
            return Err(Refusal::conflict(named, name, &why));
        }
        if let Some(version) = self.version.as_ref().filter(|version| **version != is("resourceVersion")) {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
                 ({}). The object might have been modified",
                is("resourceVersion")
            );
            return Err(Refusal::conflict(named, name, &why));
        }
        Ok(())
    }

    /// The finalizers that the object gets.
    fn finalizers(&self, kind: &Kind, before: &[Value]) -> Vec<Value> {
        let had = |name: &str| before.iter().any(|it| it == name);
        let (orphan, foreground) = match self.propagation.as_deref() {
            Some("Orphan") => (true, false),
            Some("Foreground") => (false, true),
            Some(_) => (false, false),
            None if had(ORPHAN) => (true, false),
            None if had(FOREGROUND) => (false, true),
            None => (kind.orphans, false),
        };
        let mut after: Vec<Value> = before.iter().filter(|it| *it != ORPHAN && *it != FOREGROUND).cloned().collect();
        after.extend(orphan.then(|| ORPHAN.into()));
        after.extend(foreground.then(|| FOREGROUND.into()));
        after
    }
}

impl State {
    /// Handles a DELETE of one object.
    pub(crate) fn delete(&mut self, target: &Target, options: &Options) -> Result<Answer, Refusal> {
        let (kind, key) = (&target.kind, target.key());
        let resource = kind.resource();
        let Some(old) = self.get(&resource, &key) else {
            return Err(Refusal::not_found(kind.named(), &target.name));
        };
        options.check(kind, &target.name, &old["metadata"])?;
        let mut new = (*old).clone();
        let grace = Self::grace(kind, &old, options);
        let dying = old["metadata"].get("deletionTimestamp").is_some();
        let finalizers = old["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let wanted = options.finalizers(kind, &finalizers);
        let is_namespace = resource == "namespaces";
        if grace == 0 && wanted.is_empty() && !is_namespace {
            if resource == "pods" && !dying && !options.dry_run {
                // A pod gets a deletion timestamp first, so that the kubelet can stop it.
                self.mark(&mut new, 0);
                self.put(&resource, &key, new);
            }
            if options.dry_run {
                return Ok(Answer::ok(success(kind, &old)));
            }
            let gone = self.remove(&resource, &key).unwrap_or_default();
            return Ok(Answer::ok(if kind.returns_deleted { gone } else { success(kind, &old) }));
        }
        let same = |list: &[Value]| list.len() == finalizers.len() && list.iter().all(|it| finalizers.contains(it));
        if !same(&wanted) {
            new["metadata"]["finalizers"] = wanted.into();
        }
        if dying {
            new["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        } else {
            self.mark(&mut new, grace);
        }
        if is_namespace {
            if let Some(metadata) = new["metadata"].as_object_mut() {
                metadata.remove("deletionGracePeriodSeconds");
            }
            new["status"]["phase"] = "Terminating".into();
        }
        if new == *old || options.dry_run {
            return Ok(Answer::ok(new));
        }
        Ok(Answer::ok(Arc::unwrap_or_clone(self.put(&resource, &key, new))))
    }

    /// Marks an object as being deleted.
    fn mark(&self, object: &mut Value, grace: i64) {
        let metadata = &mut object["metadata"];
        if let Some(generation) = metadata["generation"].as_i64() {
            metadata["generation"] = (generation + 1).into();
        }
        let end = self.now.checked_add(grace.seconds()).unwrap_or(self.now);
        metadata["deletionTimestamp"] = end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
        metadata["deletionGracePeriodSeconds"] = grace.into();
    }

    /// The grace period. Only a pod on a node has one, because the kubelet needs time to stop it.
    fn grace(kind: &Kind, object: &Value, options: &Options) -> i64 {
        let scheduled = object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
        let over = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if kind.resource() != "pods" || !scheduled || over {
            return 0;
        }
        let before = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
        let usual = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        let asked = options.grace.or(before).unwrap_or(usual);
        before.map_or(asked, |before| asked.min(before))
    }

    /// Handles a DELETE of all selected objects.
    pub(crate) fn delete_all(&mut self, target: &Target, request: &RequestInfo) -> Result<Answer, Refusal> {
        let options = Options::read(request)?;
        let kind = &target.kind;
        let labels = request.text("labelSelector");
        let selector = Selector::read(kind, &target.namespace, labels, request.text("fieldSelector"))?;
        let resource = kind.resource();
        let doomed: Vec<Arc<Value>> =
            self.all(&resource).map(|(_, object)| object.clone()).filter(|it| selector.matches(it)).collect();
        for object in &doomed {
            let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
            let target = Target { namespace: text("namespace"), name: text("name"), ..target.clone() };
            self.delete(&target, &options)?;
        }
        Ok(Answer::ok(self.listed(kind, doomed.iter().map(|object| (**object).clone()).collect())))
    }
}

fn success(kind: &Kind, object: &Value) -> Value {
    let mut details = json!({
        "name": object["metadata"]["name"], "kind": kind.plural, "uid": object["metadata"]["uid"],
    });
    if !kind.group.is_empty() {
        details["group"] = kind.group.as_str().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
