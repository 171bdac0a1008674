//! Watches the objects and Deployments of a race.

use std::{collections::HashMap, fmt::Debug, pin::pin, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Resource, ResourceExt,
    api::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::wish::Pair;

/// The watched objects. Dropping this ends the watches.
pub(super) struct Seen {
    objects: Api<DynamicObject>,
    deployments: Api<Deployment>,
    state: Arc<State>,
    _watches: JoinSet<()>,
}

#[derive(Default)]
struct State {
    pairs: Mutex<HashMap<String, Pair>>,
    news: watch::Sender<()>,
}

impl Seen {
    pub(super) fn watch(objects: Api<DynamicObject>, deployments: Api<Deployment>) -> Self {
        let (state, mut watches) = (Arc::<State>::default(), JoinSet::new());
        watches.spawn(follow(objects.clone(), state.clone(), |pair, object| pair.object = object));
        watches.spawn(follow(deployments.clone(), state.clone(), |pair, object| pair.deployment = object));
        Self { objects, deployments, state, _watches: watches }
    }

    /// Waits until `difference` finds none in the pair with this name. After `limit`, reads the pair once more without the
    /// watches, and returns its difference as the error.
    pub(super) async fn until(
        &self,
        name: &str,
        limit: Duration,
        difference: impl Fn(&Pair) -> Option<String>,
    ) -> Result<(), String> {
        let (mut news, deadline) = (self.state.news.subscribe(), Instant::now() + limit);
        loop {
            news.mark_unchanged();
            if self.state.is_so(name, |pair| difference(pair).is_none()) {
                return Ok(());
            }
            if timeout_at(deadline, news.changed()).await.is_err() {
                break;
            }
        }
        let read = async || {
            let object = self.objects.get_opt(name).await?;
            let deployment = self.deployments.get_opt(name).await?;
            Ok::<_, kube::Error>(Pair { object: value(&object), deployment: value(&deployment) })
        };
        let pair = read().await.map_err(|error| error.to_string())?;
        difference(&pair).map_or(Ok(()), Err)
    }
}

impl State {
    fn is_so(&self, name: &str, is_so: impl FnOnce(&Pair) -> bool) -> bool {
        let pairs = self.pairs.lock();
        pairs.get(name).is_some_and(is_so)
    }
}

async fn follow<K>(api: Api<K>, state: Arc<State>, put: fn(&mut Pair, Value))
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug + Send + 'static,
{
    let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    while let Some(event) = events.next().await {
        let Ok(object) = event else { continue };
        let mut pairs = state.pairs.lock();
        put(pairs.entry(object.name_any()).or_default(), value(&object));
        drop(pairs);
        state.news.send_replace(());
    }
}

fn value(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
