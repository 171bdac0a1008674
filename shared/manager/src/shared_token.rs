//! A token that this process shares with another workload: it stands in a Secret of its own namespace, which the other
//! workload mounts.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use api_errors::Class;
use cache::ObjectKey;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};

use crate::{
    api::Requests, context::Environment, election::pod_namespace, error::Error, leading::Term, random::Random,
};

/// The key of the token in the Secret.
const KEY: &str = "token";
/// How long a token is cached, and so how soon a changed one is noticed.
const FRESH: Duration = Duration::from_mins(1);
/// The wait before the second try to create the Secret; doubles up to [`FRESH`].
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The token in a Secret of this process's namespace; see [`Manager::shared_token`](crate::Manager::shared_token). Clones share
/// one cache.
#[derive(Clone)]
pub struct SharedToken(Arc<Inner>);

struct Inner {
    secret: String,
    /// Empty until [`SharedToken::connect`] sets it.
    place: OnceLock<Place>,
    known: Mutex<Option<Known>>,
}

struct Place {
    requests: Requests,
    /// `None` outside of a cluster.
    namespace: Option<String>,
    random: Random,
}

struct Known {
    token: String,
    at: Instant,
}

impl SharedToken {
    pub(crate) fn new(secret: String) -> Self {
        Self(Arc::new(Inner { secret, place: OnceLock::new(), known: Mutex::default() }))
    }

    /// Sets the client and the namespace, once the process has an API server.
    pub(crate) fn connect(&self, environment: &Environment) {
        // Any replica may create the Secret, a standby too: its name is the lock.
        let requests = Requests::of::<Secret>(environment.client.clone(), "controller-manager", Term::default());
        let namespace = pod_namespace().or_else(|| environment.settings.leader_election_namespace.clone());
        self.0.place.get_or_init(|| Place { requests, namespace, random: environment.random.clone() });
    }

    /// Returns the token, at most a minute old. If the Secret does not exist, creates it with a random token. While the API
    /// server is down, returns the last known token.
    ///
    /// # Errors
    ///
    /// The API server is down and no token is cached, or it refuses the request; the Secret has no usable token; or the
    /// namespace is unknown, outside of a cluster or before the process has an API server.
    pub async fn read(&self) -> Result<String, Error> {
        let mut known = self.0.known.lock().await;
        if let Some(known) = known.as_ref().filter(|known| known.at.elapsed() < FRESH) {
            return Ok(known.token.clone());
        }
        let token = match (self.find_or_make().await, known.take()) {
            (Ok(token), _) => token,
            (Err(error), Some(known)) if is_away(&error) => known.token,
            (Err(error), _) => return Err(error),
        };
        *known = Some(Known { token: token.clone(), at: Instant::now() });
        Ok(token)
    }

    /// Retries until the Secret exists, because the other workload may wait for it.
    pub(crate) async fn make_sure(&self) {
        let mut wait = FIRST_WAIT;
        while let Err(error) = self.read().await {
            tracing::warn!(secret = self.0.secret, error = error.chain(), "Cannot read or create the shared token yet");
            sleep(wait).await;
            wait = (wait * 2).min(FRESH);
        }
    }

    async fn find_or_make(&self) -> Result<String, Error> {
        let name = &*self.0.secret;
        let place = self.0.place.get().ok_or_else(|| other(format!("Secret \"{name}\": not connected yet")))?;
        let namespace = place.namespace.as_deref().ok_or_else(|| {
            other(format!("Secret \"{name}\": outside of a cluster, set its namespace by --leader-election-namespace"))
        })?;
        let (requests, key) = (&place.requests, ObjectKey::new(namespace, name));
        match requests.get(&key).await {
            Err(error) if error.class() == Class::NotFound => {}
            found => return token_in(requests, &key, &found?),
        }
        let token = place.random.token();
        let (api_version, kind) = requests.type_meta();
        let secret = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace},
            "type": "Opaque", "stringData": {KEY: token},
        });
        match requests.create(&key, &secret).await {
            // Another replica created it first.
            Err(error) if error.class() == Class::AlreadyExists => token_in(requests, &key, &requests.get(&key).await?),
            made => made.map(|_| token),
        }
    }
}

impl fmt::Debug for SharedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedToken").field(&self.0.secret).finish()
    }
}

fn token_in(requests: &Requests, key: &ObjectKey, answer: &str) -> Result<String, Error> {
    let data =
        serde_json::from_str::<Secret>(answer).map_err(requests.undecodable("read", key))?.data.unwrap_or_default();
    let token = data.get(KEY).and_then(|value| std::str::from_utf8(&value.0).ok()).map(str::trim).unwrap_or_default();
    if token.is_empty() {
        return Err(other(format!("Secret \"{}\" has no key \"{KEY}\" with a token in it", key.name)));
    }
    Ok(token.to_owned())
}

/// Whether the request failed without an answer about the Secret: the API server is down or overloaded.
fn is_away(error: &Error) -> bool {
    matches!(error, Error::Api { .. } | Error::Deadline { .. }) && error.class() == Class::Transient
}

fn other(words: String) -> Error {
    Error::Other(words.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model_apiserver::{Model, NoFaults, Planned};
    use tokio::time::advance;

    use super::*;

    fn token(model: &Model) -> SharedToken {
        let token = SharedToken::new("shared".to_owned());
        let requests = Requests::of::<Secret>(model.client(), "controller-manager", Term::default());
        token.0.place.get_or_init(|| Place {
            requests,
            namespace: Some("default".to_owned()),
            random: Random::default(),
        });
        token
    }

    fn put(model: &Model, data: &serde_json::Value) {
        let metadata = json!({"name": "shared", "namespace": "default"});
        model.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}));
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_that_start_together_share_one_token() {
        let model = Model::new();
        let read = |token: SharedToken| async move { token.read().await.expect("a token") };
        let tokens: BTreeSet<String> =
            futures::future::join_all((0..5).map(|_| read(token(&model)))).await.into_iter().collect();
        assert_eq!(tokens.len(), 1);
        assert_eq!(tokens.first().map(String::len), Some(64));
    }

    #[tokio::test(start_paused = true)]
    async fn token_is_cached_for_a_minute_and_then_read_again() {
        let model = Model::new();
        put(&model, &json!({"token": "b25lCg=="}));
        let token = token(&model);
        assert_eq!(token.read().await.expect("a token"), "one");
        put(&model, &json!({"token": "dHdv"}));
        assert_eq!((token.read().await.expect("a token").as_str(), model.requests().len()), ("one", 1));
        advance(FRESH).await;
        assert_eq!(token.read().await.expect("a token"), "two");
        model.set_faults(Planned::new(&"before get secrets.core -> answer 503".parse().expect("a plan")));
        advance(FRESH).await;
        assert_eq!(token.read().await.expect("the cached token"), "two");
        model.set_faults(NoFaults);
        put(&model, &json!({"tokken": "dHdv"}));
        advance(FRESH).await;
        let error = token.read().await.expect_err("the key is missing");
        assert_eq!(error.to_string(), "Secret \"shared\" has no key \"token\" with a token in it");
    }

    #[tokio::test(start_paused = true)]
    async fn token_creation_at_start_is_retried_until_permitted() {
        let model = Model::new();
        model.set_faults(Planned::new(&"before * secrets.core #1..8 -> answer 403".parse().expect("a plan")));
        let (token, begun) = (token(&model), Instant::now());
        token.make_sure().await;
        assert_eq!(begun.elapsed().as_secs(), 1 + 2 + 4 + 8 + 16 + 32 + 60 + 60);
        assert_eq!(model.objects("secrets").len(), 1);
        assert!(token.read().await.is_ok());
    }

    #[tokio::test]
    async fn token_is_not_printed_and_needs_a_namespace() {
        let token = SharedToken::new("shared".to_owned());
        assert!(token.read().await.is_err());
        let model = Model::new();
        let requests = Requests::of::<Secret>(model.client(), "controller-manager", Term::default());
        token.0.place.get_or_init(|| Place { requests, namespace: None, random: Random::default() });
        let error = token.read().await.expect_err("outside of a cluster").to_string();
        assert!(error.contains("--leader-election-namespace"), "{error}");
        let token = self::token(&model);
        token.read().await.expect("a token");
        assert_eq!(format!("{token:?}"), "SharedToken(\"shared\")");
    }
}
