//! The other clients of the API server: users, and programs that change the same objects.

use fastrand::Rng;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, PropagationPolicy},
    core::{ApiResource, GroupVersionKind},
};
use model_apiserver::Model;
use serde_json::{Map, Value, json};

use crate::{disturbance::Act, objects::text, subject::Subject, trace::Trace};

/// The namespaces of all objects. Leases and their Events are in another namespace.
pub(crate) const NAMESPACES: [&str; 2] = ["shop", "depot"];

/// Label of the objects that another client has created under the name of a child.
const FOREIGN: &str = "foreign";

/// The clients other than the operator and the controllers of the cluster.
pub(crate) struct Users {
    model: Model,
    client: Client,
    subject: &'static dyn Subject,
    trace: Trace,
}

impl Users {
    pub(crate) fn new(model: &Model, subject: &'static dyn Subject, trace: Trace) -> Self {
        Self { model: model.clone(), client: model.client_named("user"), subject, trace }
    }

    /// The name of an object, by its number. Each name exists in every namespace.
    pub(crate) fn name(number: usize) -> String {
        char::from(b'a' + u8::try_from(number / NAMESPACES.len()).unwrap_or_default()).to_string()
    }

    /// The namespace of an object, by its number.
    pub(crate) fn namespace(number: usize) -> &'static str {
        NAMESPACES[number % NAMESPACES.len()]
    }

    /// Acts as a user or another client. Returns whether that changed anything.
    pub(crate) async fn act(&self, act: Act, object: usize, rng: &mut Rng) -> bool {
        let before = self.model.version();
        let result = match act {
            Act::Create if self.object(object).is_some() => Ok(()),
            Act::Create | Act::Apply => self.apply(object, rng).await,
            Act::Edit => {
                let spec = self.subject.spec(&Self::name(object), rng);
                self.patch(object, json!({"spec": spec})).await
            }
            Act::Scale => self.scale(object, rng).await,
            Act::Label => self.patch(object, json!({"metadata": {"labels": {"team": rng.u8(..4).to_string()}}})).await,
            Act::Annotate => self.annotate(object, "note", json!(rng.u8(..4).to_string())).await,
            Act::RequestReconcile => {
                let value = json!(rng.u32(..).to_string());
                self.annotate(object, &self.own("reconcile-requested-at"), value).await
            }
            Act::Pause => self.annotate(object, &self.own("paused"), json!("true")).await,
            Act::Resume => self.annotate(object, &self.own("paused"), Value::Null).await,
            Act::Delete => self.delete(object, DeleteParams::default()).await,
            Act::Orphan => {
                let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..Default::default() };
                self.delete(object, orphan).await
            }
            Act::Replace => match self.delete(object, DeleteParams::default()).await {
                Ok(()) => self.apply(object, rng).await,
                error => error,
            },
            Act::Secret => self.act_on_secret(object, rng).await,
            Act::DeleteNamespace => {
                let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource("v1", "Namespace", None));
                all.delete(Self::namespace(object), &DeleteParams::default()).await.map(drop)
            }
            Act::RemoveFinalizers => self.patch(object, json!({"metadata": {"finalizers": null}})).await,
            Act::RolloutRestart => {
                let annotations = json!({"kubectl.kubernetes.io/restartedAt": rng.u32(..).to_string()});
                let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
                self.patch_child("deployments.apps", object, patch, rng).await
            }
            _ => self.act_on_child(act, object, rng).await,
        };
        if let Err(error) = result {
            self.trace.note(format!("  user: {error}"));
        }
        self.model.version() != before
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

    /// Draws the resource of a child. This must be the first draw from the seed, so that each caller gets the same result.
    pub(crate) fn kind_of_child(&self, rng: &mut Rng) -> Option<&'static str> {
        rng.choice(self.subject.children()).copied()
    }

    async fn act_on_child(&self, act: Act, object: usize, rng: &mut Rng) -> Result<(), kube::Error> {
        let Some(resource) = self.kind_of_child(rng) else { return Ok(()) };
        match act {
            Act::DamageChild => match self.subject.damage(resource, rng) {
                Some(patch) => self.patch_child(resource, object, patch, rng).await,
                None => Ok(()),
            },
            Act::SeizeChild => {
                let (Some(patch), Some(child)) =
                    (self.subject.damage(resource, rng), self.child(resource, object, rng))
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
                let all = self.subject.children().iter().flat_map(|resource| self.model.objects(resource));
                match all.into_iter().find(|child| child["metadata"]["labels"][FOREIGN] == "yes") {
                    Some(foreign) => self.delete_child(&foreign).await,
                    None => Ok(()),
                }
            }
            _ => {
                if let Some(pod) = self.child("pods", object, rng) {
                    let (namespace, name) = (text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
                    self.model.take("pods", &namespace, &name);
                }
                Ok(())
            }
        }
    }

    /// Creates, changes or deletes a Secret to which objects refer.
    async fn act_on_secret(&self, object: usize, rng: &mut Rng) -> Result<(), kube::Error> {
        let Some((name, keys)) = rng.choice(self.subject.secrets()) else { return Ok(()) };
        let namespace = Self::namespace(object);
        let metadata = json!({"name": name, "namespace": namespace});
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
        if rng.u8(..4) == 0 {
            let is_there = self.model.object("secrets", namespace, name).is_some();
            return if is_there { self.delete_child(&secret).await } else { Ok(()) };
        }
        let contents = ["YTph", "YTpi", "YTpj"]; // a:a, a:b, a:c
        let data: Map<String, Value> =
            keys.iter().map(|key| ((*key).to_owned(), json!(contents[rng.usize(..contents.len())]))).collect();
        secret["data"] = data.into();
        self.api_of(&secret).patch(name, &PatchParams::apply("kubectl").force(), &Patch::Apply(&secret)).await.map(drop)
    }

    /// Draws one of the children of an object. For `pods`, draws one of the pods of its children.
    pub(crate) fn child(&self, resource: &str, object: usize, rng: &mut Rng) -> Option<Value> {
        let (name, namespace) = (Self::name(object), Self::namespace(object));
        let has_label = |child: &Value| {
            let metadata = &child["metadata"];
            metadata["namespace"] == namespace && metadata["labels"]["app.kubernetes.io/instance"] == *name
        };
        let mut all = self.model.objects(resource);
        if resource == "pods" {
            let makers = self.subject.children().iter().flat_map(|resource| self.model.objects(resource));
            let makers: Vec<Value> = makers.filter(has_label).map(|it| it["metadata"]["uid"].clone()).collect();
            all.retain(|pod| makers.contains(&pod["metadata"]["ownerReferences"][0]["uid"]));
        } else {
            all.retain(has_label);
        }
        (!all.is_empty()).then(|| all.swap_remove(rng.usize(..all.len())))
    }

    /// Returns the stored object with this number.
    pub(crate) fn object(&self, number: usize) -> Option<Value> {
        self.model.object(self.subject.resource(), Self::namespace(number), &Self::name(number))
    }

    /// The key of an annotation in the operator's group.
    pub(crate) fn own(&self, name: &str) -> String {
        let (api_version, _) = self.subject.kind();
        format!("{}/{name}", api_version.split_once('/').map_or("", |(group, _)| group))
    }

    async fn apply(&self, object: usize, rng: &mut Rng) -> Result<(), kube::Error> {
        let ((api_version, kind), name) = (self.subject.kind(), Self::name(object));
        let applied = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": self.subject.spec(&name, rng),
        });
        let force = PatchParams::apply("kubectl").force();
        self.api(object).patch(&name, &force, &Patch::Apply(applied)).await.map(drop)
    }

    async fn scale(&self, object: usize, rng: &mut Rng) -> Result<(), kube::Error> {
        let patch = json!({"spec": {"replicas": rng.u8(..5)}});
        self.api(object).patch_scale(&Self::name(object), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    async fn annotate(&self, object: usize, key: &str, value: Value) -> Result<(), kube::Error> {
        self.patch(object, json!({"metadata": {"annotations": {key: value}}})).await
    }

    async fn patch(&self, object: usize, patch: Value) -> Result<(), kube::Error> {
        self.api(object).patch(&Self::name(object), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    async fn delete(&self, object: usize, how: DeleteParams) -> Result<(), kube::Error> {
        self.api(object).delete(&Self::name(object), &how).await.map(drop)
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
        let (api_version, kind) = self.subject.kind();
        let plural = self.subject.resource().split('.').next().unwrap_or_default();
        let resource = resource(api_version, kind, Some(plural));
        Api::namespaced_with(self.client.clone(), Self::namespace(object), &resource)
    }

    /// The API for the kind and the namespace of this object.
    fn api_of(&self, child: &Value) -> Api<DynamicObject> {
        let resource = resource(&text(&child["apiVersion"]), &text(&child["kind"]), None);
        Api::namespaced_with(self.client.clone(), &text(&child["metadata"]["namespace"]), &resource)
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
