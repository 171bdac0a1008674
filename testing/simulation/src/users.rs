//! The other clients of the API server: users, and programs that change the same objects.

use fastrand::Rng;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, PropagationPolicy},
    core::{ApiResource, GroupVersionKind},
};
use model_apiserver::Model;
use serde_json::{Value, json};

use crate::{
    contests::RIVAL,
    disturbance::{Act, is_cluster_scoped},
    objects::text,
    policies::Child,
    subject::Subject,
    subjects::Cast,
    trace::Trace,
};

/// The namespaces of all objects. Leases and their Events are in another namespace.
pub const NAMESPACES: [&str; 2] = ["shop", "depot"];

/// The client name of users, and of most other clients.
const USER: &str = "user";

/// Makes the draw of who keeps immutable fields independent of the other draws, so that saved worlds stay as they are.
const KEEPING: u64 = 0x6b65_6570;

/// Label of the objects that another client has created under the name of a child.
const FOREIGN: &str = "foreign";

/// The clients other than the operator and the controllers of the cluster.
pub(crate) struct Users {
    model: Model,
    client: Client,
    /// The client of another controller.
    rival: Client,
    cast: Cast,
    /// Whether the objects of each operator have no namespace.
    are_cluster_scoped: Vec<bool>,
    /// Whether specs have [`further_fields`](Subject::further_fields).
    has_further_fields: bool,
    trace: Trace,
}

impl Users {
    pub(crate) fn new(model: &Model, cast: &Cast, has_further_fields: bool, trace: Trace) -> Self {
        let (client, rival) = (model.client_named(USER), model.client_named(RIVAL));
        let are_cluster_scoped = cast.all().iter().map(|role| is_cluster_scoped(role.subject)).collect();
        let (model, cast) = (model.clone(), cast.clone());
        Self { model, client, rival, cast, are_cluster_scoped, has_further_fields, trace }
    }

    /// The name of an object, by its number.
    pub(crate) fn name(&self, number: usize) -> String {
        self.cast.place(number, self.is_cluster_scoped(number)).0
    }

    /// The namespace of an object, by its number. Empty for cluster-scoped objects.
    pub(crate) fn namespace(&self, number: usize) -> &'static str {
        self.cast.place(number, self.is_cluster_scoped(number)).1
    }

    fn is_cluster_scoped(&self, number: usize) -> bool {
        self.are_cluster_scoped[self.cast.number_of(number)]
    }

    /// The operator of an object, by its number.
    fn subject(&self, number: usize) -> &'static dyn Subject {
        self.cast.of(number).subject
    }

    /// Acts as a user or another client. Returns whether that changed anything.
    pub(crate) async fn act(&self, act: Act, object: usize, rng: &mut Rng) -> bool {
        let before = self.model.version();
        let result = match act {
            Act::Create if self.object(object).is_some() => Ok(()),
            Act::Create | Act::Apply => self.apply(object, rng).await,
            Act::Edit => {
                let spec = self.spec(object, true, rng);
                self.patch(object, json!({"spec": spec})).await
            }
            Act::Scale => self.scale(object, rng).await,
            Act::Label => self.patch(object, json!({"metadata": {"labels": {"team": rng.u8(..4).to_string()}}})).await,
            Act::Annotate => self.annotate(object, "note", json!(rng.u8(..4).to_string())).await,
            Act::RequestReconcile => {
                let value = json!(rng.u32(..).to_string());
                self.annotate(object, &self.own(object, "reconcile-requested-at"), value).await
            }
            Act::Request => match self.subject(object).request(rng) {
                Some(patch) => self.patch(object, patch).await,
                None => Ok(()),
            },
            Act::Pause => self.annotate(object, &self.own(object, "paused"), json!("true")).await,
            Act::Resume => self.annotate(object, &self.own(object, "paused"), Value::Null).await,
            Act::Delete => self.delete(object, DeleteParams::default()).await,
            Act::Orphan => {
                let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..Default::default() };
                self.delete(object, orphan).await
            }
            Act::Replace => match self.delete(object, DeleteParams::default()).await {
                Ok(()) => self.apply(object, rng).await,
                error => error,
            },
            Act::Input => self.act_on_input(object, rng).await,
            Act::Import => self.import(object, rng).await,
            Act::DeleteNamespace => {
                let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource("v1", "Namespace", None));
                all.delete(self.namespace(object), &DeleteParams::default()).await.map(drop)
            }
            Act::RemoveFinalizers => self.patch(object, json!({"metadata": {"finalizers": null}})).await,
            Act::RolloutRestart => {
                let annotations = json!({"kubectl.kubernetes.io/restartedAt": rng.u32(..).to_string()});
                let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
                self.patch_child("deployments.apps", object, patch, rng).await
            }
            Act::Evict => return self.evict(object, rng),
            _ => self.act_on_child(act, object, rng).await,
        };
        if let Err(error) = result {
            self.trace.note(format!("  user: {error}"));
        }
        self.has_written(USER, before)
    }

    /// Whether this client has changed anything after this version. The operator may have changed something meanwhile too.
    fn has_written(&self, client: &str, version: u64) -> bool {
        self.model.changes_after(version).iter().any(|change| *change.writer == *client)
    }

    /// Sets the field of a child that this merge patch changes, as another controller does. Returns whether that changed anything.
    pub(crate) async fn contest(&self, child: &Value, patch: Value) -> bool {
        let before = self.model.version();
        let rival = PatchParams { field_manager: Some(RIVAL.to_owned()), ..PatchParams::default() };
        let api = api_of(&self.rival, child);
        if let Err(error) = api.patch(&text(&child["metadata"]["name"]), &rival, &Patch::Merge(patch)).await {
            self.trace.note(format!("  {RIVAL}: {error}"));
        }
        self.has_written(RIVAL, before)
    }

    /// Changes a child that a policy has rewritten, now that the policy has ended: a label that the operator sets.
    pub(crate) async fn change_left_over(&self, Child { resource, namespace, name }: &Child) {
        let Some(child) = self.model.object(resource, namespace, name) else { return };
        if child["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty) {
            return; // without its labels, the operator would not adopt it
        }
        let patch = json!({"metadata": {"labels": {"app.kubernetes.io/name": "without-policy"}}});
        if let Err(error) = self.api_of(&child).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            self.trace.note(format!("  user: {error}"));
        }
    }

    /// Evicts a pod. Returns whether there is one.
    fn evict(&self, object: usize, rng: &mut Rng) -> bool {
        let pod = self.child("pods", object, rng);
        pod.is_some_and(|pod| {
            let (namespace, name) = (text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
            self.model.take("pods", &namespace, &name).is_some()
        })
    }

    /// Applies the [`calm`](Subject::calm) patch, which brings an object to rest.
    pub(crate) async fn calm(&self, object: usize, patch: Value) {
        if let Err(error) = self.patch(object, patch).await {
            self.trace.note(format!("  user: {error}"));
        }
    }

    /// Changes an object that the operator does not read, which advances the resource version.
    pub(crate) async fn write_beside(&self, rng: &mut Rng) {
        let beside = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "beside", "namespace": "default"},
            "data": {"draw": rng.u64(..).to_string()},
        });
        let apply = PatchParams::apply("kubectl").force();
        if let Err(error) = self.api_of(&beside).patch("beside", &apply, &Patch::Apply(&beside)).await {
            self.trace.note(format!("  user: {error}"));
        }
    }

    /// Draws the resource of a child of an object. This must be the first draw from the seed, so that each caller gets the same
    /// result.
    pub(crate) fn kind_of_child(&self, object: usize, rng: &mut Rng) -> Option<&'static str> {
        rng.choice(self.subject(object).children()).copied()
    }

    async fn act_on_child(&self, act: Act, object: usize, rng: &mut Rng) -> Result<(), kube::Error> {
        let Some(resource) = self.kind_of_child(object, rng) else { return Ok(()) };
        let subject = self.subject(object);
        match act {
            Act::DamageChild => match subject.damage(resource, rng) {
                Some(patch) => self.patch_child(resource, object, patch, rng).await,
                None => Ok(()),
            },
            Act::SeizeChild => {
                let (Some(patch), Some(child)) = (subject.damage(resource, rng), self.child(resource, object, rng))
                else {
                    return Ok(());
                };
                let mut applied = patch;
                applied["apiVersion"] = child["apiVersion"].clone();
                applied["kind"] = child["kind"].clone();
                applied["metadata"]["name"] = child["metadata"]["name"].clone();
                let force = PatchParams::apply("another-manager").force();
                self.api_of(&child)
                    .patch(&text(&child["metadata"]["name"]), &force, &Patch::Apply(applied))
                    .await
                    .map(drop)
            }
            Act::DecorateChild => {
                let metadata =
                    json!({"labels": {"decorated": rng.u8(..4).to_string()}, "annotations": {"seen": "yes"}});
                self.patch_child(resource, object, json!({"metadata": metadata}), rng).await
            }
            Act::ClearManagedFields => {
                let patch = json!({"metadata": {"managedFields": [{}]}});
                self.patch_child(resource, object, patch, rng).await
            }
            Act::DeleteChild => match self.child(resource, object, rng) {
                Some(child) => self.delete_child(&child).await,
                None => Ok(()),
            },
            Act::NameTaken => match self.child(resource, object, rng) {
                Some(child) => {
                    self.delete_child(&child).await?;
                    self.model.collect();
                    let mut foreign = child.clone();
                    foreign["metadata"] = json!({"name": child["metadata"]["name"], "labels": {FOREIGN: "yes"}});
                    if let Some(spec) = foreign["spec"].as_object_mut() {
                        spec.retain(|field, _| !field.starts_with("clusterIP"));
                    }
                    let foreign = serde_json::from_value(foreign).map_err(kube::Error::SerdeError)?;
                    self.api_of(&child).create(&PostParams::default(), &foreign).await.map(drop)
                }
                None => Ok(()),
            },
            Act::NameFreed => {
                let all = subject.children().iter().flat_map(|resource| self.model.objects(resource));
                match all.into_iter().find(|child| child["metadata"]["labels"][FOREIGN] == "yes") {
                    Some(foreign) => self.delete_child(&foreign).await,
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Lets the object adopt or observe something outside the cluster. Creates a missing object together with that: from its
    /// first moment on, the operator must make nothing for it.
    async fn import(&self, object: usize, rng: &mut Rng) -> Result<(), kube::Error> {
        let Some(outside) = &self.cast.of(object).outside else { return Ok(()) };
        let Some(patch) = outside.import(self.namespace(object), &self.name(object), rng) else { return Ok(()) };
        if self.object(object).is_some() {
            self.patch(object, patch).await
        } else {
            self.apply_with(object, &patch, rng).await
        }
    }

    /// Creates, changes or deletes an object that the operator only reads.
    async fn act_on_input(&self, object: usize, rng: &mut Rng) -> Result<(), kube::Error> {
        let subject = self.subject(object);
        let drawn = if self.has_further_fields { subject.further_input(rng) } else { subject.input(rng) };
        let Some(mut input) = drawn else { return Ok(()) };
        if !self.is_cluster_scoped(object) {
            input["metadata"]["namespace"] = self.namespace(object).into();
        }
        let (api, name) = (self.api_of(&input), text(&input["metadata"]["name"]));
        if rng.u8(..3) > 0 {
            return api.patch(&name, &PatchParams::apply("kubectl").force(), &Patch::Apply(&input)).await.map(drop);
        }
        match api.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            result => result.map(drop),
        }
    }

    /// Draws one of the children of an object. For `pods`, draws one of the pods of its children.
    pub(crate) fn child(&self, resource: &str, object: usize, rng: &mut Rng) -> Option<Value> {
        let (name, namespace) = (self.name(object), self.namespace(object));
        let is_anywhere = self.is_cluster_scoped(object);
        let has_label = |child: &Value| {
            let metadata = &child["metadata"];
            (is_anywhere || metadata["namespace"] == namespace)
                && metadata["labels"]["app.kubernetes.io/instance"] == *name
        };
        let mut all = self.model.objects(resource);
        if resource == "pods" {
            let kinds = self.subject(object).children();
            let makers = kinds.iter().flat_map(|resource| self.model.objects(resource));
            let makers: Vec<Value> = makers.filter(has_label).map(|it| it["metadata"]["uid"].clone()).collect();
            all.retain(|pod| makers.contains(&pod["metadata"]["ownerReferences"][0]["uid"]));
        } else {
            all.retain(has_label);
        }
        (!all.is_empty()).then(|| all.swap_remove(rng.usize(..all.len())))
    }

    /// Returns the stored object with this number.
    pub(crate) fn object(&self, number: usize) -> Option<Value> {
        self.model.object(self.subject(number).resource(), self.namespace(number), &self.name(number))
    }

    /// The key of an annotation in the group of this object.
    pub(crate) fn own(&self, number: usize, name: &str) -> String {
        let (api_version, _) = self.subject(number).kind();
        format!("{}/{name}", api_version.split_once('/').map_or("", |(group, _)| group))
    }

    /// Draws a spec for the object with this number. In half of the edits, further fields that are absent are null: then a merge patch
    /// removes them. If the object exists, seven of eight users keep its immutable fields. The API server refuses what the others
    /// write.
    fn spec(&self, number: usize, is_edit: bool, rng: &mut Rng) -> Value {
        let keeps = Rng::with_seed(rng.get_seed() ^ KEEPING).u8(..8) > 0;
        let subject = self.subject(number);
        let mut spec = subject.spec(&self.name(number), rng);
        if self.has_further_fields
            && let Some(fields) = spec.as_object_mut()
        {
            let removes = is_edit && rng.bool();
            fields.extend(subject.further_fields(rng).into_iter().filter(|(_, value)| removes || !value.is_null()));
        }
        let stored = self.object(number).filter(|_| keeps);
        for field in stored.iter().flat_map(|_| subject.immutable()) {
            match stored.as_ref().and_then(|stored| stored["spec"].get(*field)) {
                Some(value) => spec[*field] = value.clone(),
                None => drop(spec.as_object_mut().and_then(|fields| fields.remove(*field))),
            }
        }
        spec
    }

    async fn apply(&self, object: usize, rng: &mut Rng) -> Result<(), kube::Error> {
        self.apply_with(object, &json!({}), rng).await
    }

    /// Applies a whole spec, after this merge patch has changed it.
    async fn apply_with(&self, object: usize, patch: &Value, rng: &mut Rng) -> Result<(), kube::Error> {
        let (name, spec) = (self.name(object), self.spec(object, false, rng));
        let (api_version, kind) = self.subject(object).kind();
        let mut applied = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        json_patch::merge(&mut applied, patch);
        let force = PatchParams::apply("kubectl").force();
        self.api(object).patch(&name, &force, &Patch::Apply(applied)).await.map(drop)
    }

    async fn scale(&self, object: usize, rng: &mut Rng) -> Result<(), kube::Error> {
        let patch = json!({"spec": {"replicas": rng.u8(..5)}});
        self.api(object).patch_scale(&self.name(object), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    async fn annotate(&self, object: usize, key: &str, value: Value) -> Result<(), kube::Error> {
        self.patch(object, json!({"metadata": {"annotations": {key: value}}})).await
    }

    async fn patch(&self, object: usize, patch: Value) -> Result<(), kube::Error> {
        self.api(object).patch(&self.name(object), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    async fn delete(&self, object: usize, how: DeleteParams) -> Result<(), kube::Error> {
        self.api(object).delete(&self.name(object), &how).await.map(drop)
    }

    async fn delete_child(&self, child: &Value) -> Result<(), kube::Error> {
        self.api_of(child).delete(&text(&child["metadata"]["name"]), &DeleteParams::default()).await.map(drop)
    }

    async fn patch_child(&self, resource: &str, object: usize, patch: Value, rng: &mut Rng) -> Result<(), kube::Error> {
        let Some(child) = self.child(resource, object, rng) else { return Ok(()) };
        let name = text(&child["metadata"]["name"]);
        self.api_of(&child).patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    fn api(&self, object: usize) -> Api<DynamicObject> {
        let (api_version, kind) = self.subject(object).kind();
        let plural = self.subject(object).resource().split('.').next().unwrap_or_default();
        let resource = resource(api_version, kind, Some(plural));
        api(&self.client, self.namespace(object), &resource)
    }

    /// The API for the kind and the namespace of this object.
    fn api_of(&self, child: &Value) -> Api<DynamicObject> {
        api_of(&self.client, child)
    }
}

/// The API for the kind and the namespace of this object, for this client.
fn api_of(client: &Client, child: &Value) -> Api<DynamicObject> {
    let resource = resource(&text(&child["apiVersion"]), &text(&child["kind"]), None);
    api(client, &text(&child["metadata"]["namespace"]), &resource)
}

/// The API for this resource in a namespace, or for cluster-scoped objects if the namespace is empty.
fn api(client: &Client, namespace: &str, resource: &ApiResource) -> Api<DynamicObject> {
    match namespace {
        "" => Api::all_with(client.clone(), resource),
        _ => Api::namespaced_with(client.clone(), namespace, resource),
    }
}

fn resource(api_version: &str, kind: &str, plural: Option<&str>) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    if let Some(plural) = plural {
        plural.clone_into(&mut resource.plural);
    }
    resource
}
