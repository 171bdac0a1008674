//! Messages from outside of the cluster, and writes to what is not a child: a Track restarts a Deployment of another owner whenever
//! a new version of its program is published, and keeps it at a size.
//!
//! A webhook writes the default of a field into a Track.
//!
//! A message only wakes the object; the reconciler then asks the [`Registry`]. So a message may come twice, late or for an object
//! that does not exist.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use clap::{Args, Command};
use k8s_openapi::{
    api::apps::v1::Deployment, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, CustomResource, CustomResourceExt, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
};
use manager::{
    Action, Context, Controller, Error, Health, Manager, ObjectKey, Operator, Permission, StandardStatus, Verdict,
    Webhook,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use workloads::{As, ViewOf};

use crate::registry::Registry;

/// The annotation of pods that names their version.
const VERSION: &str = "examples.example.com/version";
/// The index of Tracks by their Deployment.
const DEPLOYMENT: &str = "deployment";
/// How often to look whether a Deployment is free.
const TAKEN: Duration = Duration::from_secs(30);

/// Keeps a Deployment at the newest version of its program.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "examples.example.com", version = "v1", kind = "Track", namespaced, status = "StandardStatus")]
pub struct TrackSpec {
    /// The Deployment. It may belong to a user or to another operator. Only the oldest Track of a Deployment writes it. Default:
    /// the one with the name of the Track.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    deployment: Option<String>,
    /// The number of replicas. Default: as the Deployment's owner wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 99))]
    replicas: Option<i32>,
}

impl Track {
    /// Returns the name of the Deployment. A cluster may run no webhook, so the default is also known here.
    fn deployment(&self) -> String {
        self.spec.deployment.clone().unwrap_or_else(|| self.name_any())
    }
}

/// Writes the default into a Track, so that users see it. No schema can express it, because it is the value of another field. The
/// API server may make up the name later (`generateName`).
fn set_default(track: &mut Track) {
    if track.spec.deployment.is_none() {
        track.spec.deployment = track.metadata.name.clone().filter(|name| !name.is_empty());
    }
}

/// The part of a Deployment that the reconciler reads.
#[derive(Debug, PartialEq, Deserialize)]
pub struct Versioned {
    spec: Spec,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Spec {
    replicas: Option<i32>,
    template: Pod,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Pod {
    #[serde(default)]
    metadata: ObjectMeta,
}

impl Versioned {
    fn version(&self) -> Option<&String> {
        self.spec.template.metadata.annotations.as_ref()?.get(VERSION)
    }
}

impl ViewOf<Deployment> for Versioned {}

type Tracked = As<Deployment, Versioned>;

/// The flags of the operator.
#[derive(Debug, Args)]
struct Flags {
    /// Address on which to take versions, in lines `NAMESPACE/NAME VERSION`
    #[arg(long, value_name = "ADDRESS")]
    tracks_listen: Option<SocketAddr>,
}

/// The operator of [`Track`].
#[derive(Debug, Default)]
pub struct Tracks {
    /// Where the versions come from.
    pub registry: Arc<Registry>,
}

impl Operator for Tracks {
    fn name(&self) -> &'static str {
        "tracks"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![Track::crd()]
    }

    fn sample(&self) -> &'static str {
        "{apiVersion: examples.example.com/v1, kind: Track, metadata: {name: browser}, spec: {deployment: browser}}"
    }

    fn args(&self, command: Command) -> Command {
        Flags::augment_args(command)
    }

    fn webhooks(&self) -> Vec<Webhook> {
        vec![Webhook::defaulting(set_default)]
    }

    fn setup(&self, manager: &mut Manager) {
        if let Some(address) = manager.args::<Flags>().tracks_listen {
            let registry = self.registry.clone();
            manager.run("registry of versions", move |stop| async move {
                drop(stop.run_until_cancelled(registry.listen(address)).await);
            });
        }
        let (messages, registry) = (self.registry.clone(), self.registry.clone());
        manager.add(
            Controller::of::<Track>()
                .watches_referenced::<Tracked>(|track| vec![track.deployment()])
                .index(DEPLOYMENT, |track| vec![track.deployment()])
                .permits(Permission::on::<Deployment>(&["patch"]))
                .permits(Permission::on::<Deployment>(&["patch"]).subresource("scale"))
                .wakes_from(move || messages.subscribe())
                .config(registry)
                .reconcile(reconcile),
        );
    }
}

async fn reconcile(track: Arc<Track>, ctx: Context<Track, Arc<Registry>>) -> Result<Action, Error> {
    let (namespace, name, target) = (track.namespace().unwrap_or_default(), track.name_any(), track.deployment());
    if let Some(older) = oldest(&ctx, &target).filter(|oldest| *oldest != name) {
        let says = format!("Track \"{older}\" keeps Deployment \"{target}\"");
        ctx.apply_status(Health::of(Verdict::no("DeploymentTaken", says)).into()).await?;
        return Ok(Action::After(TAKEN)); // nothing wakes this Track when the older one goes
    }
    let deployment = ctx.get::<Tracked>(&target);
    let version = ctx.config().version(&ObjectKey::new(&*namespace, name));
    let verdict = match (deployment, version) {
        (None, _) => Verdict::no("NoDeployment", format!("Deployment \"{target}\" is not there")),
        (_, None) => Verdict::no("NoVersion", "the registry has published no version"),
        (Some(deployment), Some(version)) => {
            let deployments: Api<Deployment> = Api::namespaced(ctx.client(), &namespace);
            let by = PatchParams::default();
            if deployment.version() != Some(&version) {
                let patch = json!({"spec": {"template": {"metadata": {"annotations": {VERSION: version}}}}});
                deployments.patch(&deployment.name, &by, &Patch::Merge(patch)).await?;
            }
            if track.spec.replicas.is_some() && track.spec.replicas != deployment.spec.replicas {
                let patch = json!({"spec": {"replicas": track.spec.replicas}});
                deployments.patch_scale(&deployment.name, &by, &Patch::Merge(patch)).await?;
            }
            Verdict::yes("Ready", format!("the newest version is {version}"))
        }
    };
    ctx.apply_status(Health::of(verdict).into()).await?;
    Ok(Action::Done)
}

/// Returns the oldest Track of a Deployment that is not being deleted. Two that write it would undo each other's writes for ever.
fn oldest(ctx: &Context<Track, Arc<Registry>>, deployment: &str) -> Option<String> {
    let age = |track: &Arc<Track>| (track.metadata.creation_timestamp.as_ref().map(|time| time.0), track.name_any());
    let stays = |track: &&Arc<Track>| track.metadata.deletion_timestamp.is_none();
    ctx.indexed(DEPLOYMENT, deployment).iter().filter(stays).map(age).min().map(|(_, name)| name)
}
