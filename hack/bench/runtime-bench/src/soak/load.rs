//! Sends the users' changes to the API server. It retries during outages, so in the end every change has been made.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    convergence::Snapshot,
    fleet::{Change, Child, Fleet, Wanted},
    tally::Tally,
};
use crate::kind::Kind;

pub(crate) const NAMESPACE: &str = "soak";
pub(crate) const KINDS: [Kind; 2] = [Kind::Memcached, Kind::Helloapp];
/// The time limit of a request, because a frozen API server does not answer.
const REQUEST: Duration = Duration::from_secs(5);
/// The pause before the next attempt.
const AGAIN: Duration = Duration::from_millis(300);
/// How long to retry. This is longer than any outage.
const PATIENCE: Duration = Duration::from_mins(3);

pub(crate) struct Load {
    client: Client,
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Done,
    /// The object does not exist.
    Missing,
    /// An object of this name exists already, or has been replaced.
    Conflict,
}

impl Load {
    /// Creates the namespace of all objects.
    pub(crate) async fn prepare(client: Client) -> Result<Self> {
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        Ok(Self { client })
    }

    /// Makes changes at the requested rate until `end`.
    pub(crate) async fn run(
        &self,
        fleet: &mut Fleet,
        mut rng: Rng,
        pace: Pace,
        end: Instant,
        tally: &Tally,
    ) -> Result<()> {
        let mut ticks = tokio::time::interval(Duration::from_secs(1).div_f64(pace.changes));
        // Changes that an outage has delayed are not made up for.
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while Instant::now() < end {
            // The first objects are created without a pause: a run begins with a herd.
            if fleet.objects().len() * 10 >= pace.objects * 9 {
                ticks.tick().await;
            }
            let change = fleet.change(&mut rng, pace.objects);
            self.carry_out(&change).await.with_context(|| format!("{change:?}"))?;
            tally.change(&change);
        }
        Ok(())
    }

    async fn carry_out(&self, change: &Change) -> Result<()> {
        match change {
            Change::Create(name, wanted) => self.create(name, *wanted).await,
            Change::Delete { name, kind, foreground } => {
                let how = if *foreground { DeleteParams::foreground() } else { DeleteParams::background() };
                self.delete(&self.objects(*kind), name, &how).await
            }
            Change::Replace(name, wanted, kind) => {
                let objects = self.objects(*kind);
                self.delete(&objects, name, &DeleteParams::background()).await?;
                let begun = Instant::now();
                while ask(async || objects.get(name).await.map(drop)).await? != Told::Missing {
                    anyhow::ensure!(begun.elapsed() < PATIENCE, "it is never gone");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                self.create(name, *wanted).await
            }
            Change::Scale(name, wanted) => {
                self.patch(&self.objects(wanted.kind), name, &json!({"spec": {"size": wanted.size}})).await
            }
            Change::Edit(name, wanted) => {
                self.patch(&self.objects(wanted.kind), name, &json!({"spec": wanted.spec()})).await
            }
            Change::DeleteChild(name, child) => {
                self.delete(&self.children(*child), name, &DeleteParams::background()).await
            }
            Change::EditChild(name, child, patch) => self.patch(&self.children(*child), name, patch).await,
        }
    }

    async fn create(&self, name: &str, wanted: Wanted) -> Result<()> {
        let mut spec = wanted.spec();
        if let Value::Object(fields) = &mut spec {
            fields.retain(|_, value| !value.is_null()); // nulls are only for patches
        }
        let mut object = DynamicObject::new(name, &wanted.kind.resource());
        object.data = json!({"spec": spec});
        let objects = self.objects(wanted.kind);
        let begun = Instant::now();
        // A conflict means that an earlier attempt has succeeded. `Missing` means that the API server does not serve the kind
        // yet, which takes a moment after its definition.
        while ask(async || objects.create(&PostParams::default(), &object).await.map(drop)).await? == Told::Missing {
            anyhow::ensure!(begun.elapsed() < PATIENCE, "its kind is not there");
            tokio::time::sleep(AGAIN).await;
        }
        Ok(())
    }

    /// An object that is missing may have been deleted by an earlier attempt.
    async fn delete(&self, api: &Api<DynamicObject>, name: &str, how: &DeleteParams) -> Result<()> {
        ask(async || api.delete(name, how).await.map(drop)).await.map(drop)
    }

    /// A child may not exist yet. A missing object shows in the final check.
    async fn patch(&self, api: &Api<DynamicObject>, name: &str, patch: &Value) -> Result<()> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        ask(async || api.patch(name, &params, &patch).await.map(drop)).await.map(drop)
    }

    /// Reads all objects and children.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot> {
        let list = async |api: Api<DynamicObject>| {
            let objects = tokio::time::timeout(REQUEST, api.list(&ListParams::default())).await??;
            objects
                .items
                .into_iter()
                .map(serde_json::to_value)
                .collect::<Result<Vec<Value>, _>>()
                .map_err(anyhow::Error::from)
        };
        let mut snapshot = Snapshot::default();
        for kind in KINDS {
            snapshot.objects.extend(list(self.objects(kind)).await?);
        }
        for child in Child::ALL {
            let all = list(self.children(child)).await?;
            snapshot.children.extend(all.into_iter().map(|it| (child, it)));
        }
        Ok(snapshot)
    }

    fn objects(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, &kind.resource())
    }

    fn children(&self, child: Child) -> Api<DynamicObject> {
        let (group, kind) = match child {
            Child::Deployment => ("apps", "Deployment"),
            Child::Service => ("", "Service"),
            Child::DisruptionBudget => ("policy", "PodDisruptionBudget"),
            Child::NetworkPolicy => ("networking.k8s.io", "NetworkPolicy"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }
}

/// The size of the load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// The maximum number of objects at a time.
    pub(crate) objects: usize,
    /// The number of changes per second.
    pub(crate) changes: f64,
}

/// Repeats a request until there is an answer.
async fn ask(request: impl AsyncFn() -> kube::Result<()>) -> Result<Told> {
    let begun = Instant::now();
    loop {
        let error = match tokio::time::timeout(REQUEST, request()).await {
            Ok(Ok(())) => return Ok(Told::Done),
            Ok(Err(kube::Error::Api(status))) => match status.code {
                404 => return Ok(Told::Missing),
                409 => return Ok(Told::Conflict),
                400..500 if status.code != 429 => bail!("refused: {}", status.message),
                _ => status.to_string(),
            },
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {REQUEST:?}"),
        };
        if begun.elapsed() > PATIENCE {
            bail!("not within {PATIENCE:?}: {error}");
        }
        tokio::time::sleep(AGAIN).await;
    }
}
