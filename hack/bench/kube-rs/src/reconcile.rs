//! What kube's Controller calls for each Memcached.

use std::{fmt::Debug, sync::Arc, time::Duration};

use futures::future::{BoxFuture, Shared};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::Deployment,
        core::v1::{ObjectReference, Service},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{
        controller::Action,
        events::{Event, EventType},
        reflector::{ObjectRef, Store},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::sync::{mpsc::UnboundedSender, watch};

use crate::{
    PEER,
    api::{Memcached, MemcachedStatus},
    children,
};

/// How often an object is reconciled although nothing has changed, as the documentation of kube advises.
const AGAIN: Duration = Duration::from_secs(3_600);
const AFTER_ERROR: Duration = Duration::from_secs(1);

pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) memcacheds: Store<Memcached>,
    pub(crate) deployments: Store<Deployment>,
    pub(crate) services: Store<Service>,
    pub(crate) disruption_budgets: Store<PodDisruptionBudget>,
    /// Whether this process leads and the stores of the children are filled.
    pub(crate) works: watch::Receiver<bool>,
    /// Ends when this process has to end.
    pub(crate) stop: Shared<BoxFuture<'static, ()>>,
    pub(crate) events: UnboundedSender<(Event, ObjectReference)>,
}

impl Context {
    /// Waits until this process may work. Returns false if it ends before.
    ///
    /// The Controller goes on reading the watches while its reconciles wait here, so the stores of a standby are filled.
    async fn may_work(&self) -> bool {
        let mut works = self.works.clone();
        let begun = async { works.wait_for(|works| *works).await.is_ok() };
        tokio::select! {
            begun = begun => begun,
            () = self.stop.clone() => false,
        }
    }
}

/// Creates the three children, corrects those that differ, and writes the status.
pub(crate) async fn reconcile(memcached: Arc<Memcached>, context: Arc<Context>) -> Result<Action, kube::Error> {
    if !context.may_work().await {
        return Ok(Action::await_change());
    }
    // During a long wait for the lease, the object may have changed.
    let Some(memcached) = context.memcacheds.get(&ObjectRef::from_obj(memcached.as_ref())) else {
        return Ok(Action::await_change());
    };
    let wanted = children::deployment(&memcached);
    let deployment = ensure(&context, &memcached, &context.deployments, wanted).await?;
    ensure(&context, &memcached, &context.services, children::service(&memcached)).await?;
    let wanted = children::disruption_budget(&memcached);
    ensure(&context, &memcached, &context.disruption_budgets, wanted).await?;
    report(&context, &memcached, &deployment).await?;
    Ok(Action::requeue(AGAIN))
}

/// The Controller has no back-off for failed reconciles, and does not say how often one has failed.
pub(crate) fn after_error(_: Arc<Memcached>, _: &kube::Error, _: Arc<Context>) -> Action {
    Action::requeue(AFTER_ERROR)
}

/// Applies the child, unless the stored object has all wanted fields already. Returns the live object.
async fn ensure<K>(context: &Context, owner: &Memcached, store: &Store<K>, wanted: K) -> Result<Arc<K>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + 'static,
{
    let live = store.get(&ObjectRef::from_obj(&wanted));
    if let Some(live) = &live {
        let fields = |object: &K| serde_json::to_value(object).map_err(kube::Error::SerdeError);
        if covers(&fields(live)?, &fields(&wanted)?) {
            return Ok(Arc::clone(live));
        }
    }
    let api = Api::<K>::namespaced(context.client.clone(), &owner.namespace().unwrap_or_default());
    let applied = api.patch(&wanted.name_any(), &PatchParams::apply(PEER).force(), &Patch::Apply(&wanted)).await?;
    if live.is_none() {
        let event = Event {
            type_: EventType::Normal,
            reason: "Created".to_owned(),
            action: "Create".to_owned(),
            note: Some(format!("Created {} {:?}", K::kind(&()), applied.name_any())),
            secondary: Some(applied.object_ref(&())),
        };
        // Fails only if the process ends.
        let _ = context.events.send((event, owner.object_ref(&())));
    }
    Ok(Arc::new(applied))
}

/// Whether the live object has all wanted fields, whatever others it has.
fn covers(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| live.get(name).is_some_and(|live| covers(live, wanted)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| covers(live, wanted))
        }
        _ => live == wanted,
    }
}

/// Writes the status, unless it is up to date.
async fn report(context: &Context, memcached: &Memcached, deployment: &Deployment) -> Result<(), kube::Error> {
    let (generation, size) = (memcached.metadata.generation, memcached.spec.size);
    let of_deployment = deployment.status.clone().unwrap_or_default();
    let ready_replicas = of_deployment.ready_replicas.unwrap_or_default();
    let is_current = of_deployment.observed_generation == deployment.metadata.generation;
    let is_ready = is_current && of_deployment.available_replicas.unwrap_or_default() == size;
    let (state, reason) = if is_ready { ("True", "Ready") } else { ("False", "Progressing") };
    let mut known = memcached.status.iter().flat_map(|status| &status.conditions);
    let unchanged = known.find(|condition| condition.type_ == "Ready" && condition.status == state);
    let condition = Condition {
        type_: "Ready".to_owned(),
        status: state.to_owned(),
        reason: reason.to_owned(),
        message: format!("{ready_replicas} of {size} nodes are ready"),
        observed_generation: generation,
        last_transition_time: unchanged
            .map_or_else(|| Time(Timestamp::now()), |condition| condition.last_transition_time.clone()),
    };
    let status = MemcachedStatus {
        observed_generation: generation,
        replicas: of_deployment.replicas.unwrap_or_default(),
        ready_replicas,
        conditions: vec![condition],
    };
    if memcached.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let api = Api::<Memcached>::namespaced(context.client.clone(), &memcached.namespace().unwrap_or_default());
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(&memcached.name_any(), &PatchParams::default(), &patch).await?;
    Ok(())
}
