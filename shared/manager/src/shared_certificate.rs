//! The certificate of another workload, which this process issues and trusts: it stands in a Secret of its own namespace, which
//! the other workload mounts.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use certificates::{CertificateManager, CertificateStore, InSecret, Policy};
use jiff::SignedDuration;
use kube::Client;
use tokio::{sync::watch, time::sleep};

use crate::{clock::Clock, context::Environment, election::pod_namespace, error::Error, random::Random};

/// The lifetime of a certificate. It is renewed after two thirds of it.
const LIFETIME: SignedDuration = SignedDuration::from_hours(90 * 24);

/// The certificate in a Secret of this process's namespace; see
/// [`Manager::shared_certificate`](crate::Manager::shared_certificate). Clones share one bundle.
#[derive(Clone)]
pub struct SharedCertificate(Arc<Inner>);

struct Inner {
    secret: String,
    names: Vec<String>,
    /// Empty until [`SharedCertificate::connect`] sets it.
    place: OnceLock<Place>,
    /// The bundle of the last round that succeeded, or why none has succeeded yet. `None` before the first round.
    bundle: watch::Sender<Option<Bundle>>,
}

type Bundle = Result<Arc<str>, String>;

struct Place {
    client: Client,
    /// `None` outside of a cluster.
    namespace: Option<String>,
    clock: Clock,
    random: Random,
}

impl SharedCertificate {
    pub(crate) fn new(secret: String, names: Vec<String>) -> Self {
        Self(Arc::new(Inner { secret, names, place: OnceLock::new(), bundle: watch::Sender::new(None) }))
    }

    /// Sets the client and the namespace, once the process has an API server.
    pub(crate) fn connect(&self, environment: &Environment) {
        let namespace = pod_namespace().or_else(|| environment.settings.leader_election_namespace.clone());
        let Environment { client, clock, random, .. } = environment;
        let (client, clock, random) = (client.clone(), clock.clone(), random.clone());
        self.0.place.get_or_init(|| Place { client, namespace, clock, random });
    }

    /// Returns the authorities that clients of the other workload have to trust, in PEM, at most half a minute old. Waits for
    /// the first look at the Secret. While the API server is down, returns the last known ones.
    ///
    /// # Errors
    ///
    /// The Secret could not be read or created yet, or the namespace is unknown, outside of a cluster.
    pub async fn authorities(&self) -> Result<Arc<str>, Error> {
        let mut bundle = self.0.bundle.subscribe();
        let known = bundle.wait_for(Option::is_some).await.ok().and_then(|known| (*known).clone());
        let known = known.unwrap_or_else(|| Err("the process ends".to_owned()));
        known.map_err(|why| Error::Other(format!("Secret \"{}\": {why}", self.0.secret).into()))
    }

    /// Issues and renews the certificate, for ever. Each replica does this, a standby too.
    pub(crate) async fn keep(&self) {
        let Some((mut manager, clock)) = self.manager() else {
            let why = "outside of a cluster, set its namespace by --leader-election-namespace";
            self.0.bundle.send_replace(Some(Err(why.to_owned())));
            return;
        };
        let mut failures = 0;
        loop {
            match manager.round(clock()).await {
                Ok(round) => {
                    failures = 0;
                    self.0.bundle.send_replace(Some(Ok(round.material.bundle().into())));
                }
                Err(error) => {
                    failures += 1;
                    let why = error.to_string();
                    let secret = &*self.0.secret;
                    tracing::warn!(secret, error = why, "Cannot read, create or renew the shared certificate yet");
                    self.0.bundle.send_if_modified(|bundle| match bundle {
                        Some(Ok(_)) => false, // the last known one stays
                        other => other.replace(Err(why)).is_none(),
                    });
                }
            }
            // A new authority signs after a step. Each replica has to know it by then, so it looks twice as often.
            let pause = manager.pause(failures);
            sleep(if failures == 0 { pause / 2 } else { pause }).await;
        }
    }

    fn manager(&self) -> Option<(CertificateManager<InSecret>, Clock)> {
        let Place { client, namespace, clock, random } = self.0.place.get()?;
        let store = CertificateStore::secret(client.clone(), namespace.as_deref()?, &self.0.secret);
        let policy = Policy { purpose: "services", names: self.0.names.clone(), lifetime: LIFETIME };
        Some((CertificateManager::new(store, policy, InSecret, random.rng()), clock.clone()))
    }
}

impl fmt::Debug for SharedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCertificate").field("secret", &self.0.secret).field("names", &self.0.names).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use jiff::Timestamp;
    use k8s_openapi::ByteString;
    use model_apiserver::{Model, NoFaults, Planned};
    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(500);

    /// A cluster, the time of day, and replicas that keep the certificate of one provider.
    struct World {
        model: Model,
        now: Arc<Mutex<Timestamp>>,
    }

    impl World {
        fn new() -> Self {
            let now = "2026-11-21T00:00:00Z".parse().expect("a time");
            Self { model: Model::new(), now: Arc::new(Mutex::new(now)) }
        }

        fn replica(&self, namespace: Option<&str>) -> SharedCertificate {
            let certificate = SharedCertificate::new("provider".to_owned(), vec!["provider.default.svc".to_owned()]);
            let (client, namespace, now) = (self.model.client(), namespace.map(str::to_owned), self.now.clone());
            let (clock, random): (Clock, _) = (Arc::new(move || *now.lock()), Random::default());
            certificate.0.place.get_or_init(|| Place { client, namespace, clock, random });
            let kept = certificate.clone();
            tokio::spawn(async move { kept.keep().await });
            certificate
        }

        /// The text of a key of the Secret.
        fn stored(&self, key: &str) -> String {
            let secret = self.model.object("secrets", "default", "provider").expect("a Secret");
            let value: ByteString = serde_json::from_value(secret["data"][key].clone()).expect("base64");
            String::from_utf8(value.0).expect("text")
        }

        /// The authority that has signed the stored serving certificate.
        fn signer(&self) -> String {
            let bundle = self.stored("ca.crt");
            let (first, _) = bundle.split_once("-----END").expect("PEM");
            first.to_owned()
        }
    }

    async fn bundle(certificate: &SharedCertificate) -> String {
        certificate.authorities().await.expect("a bundle").to_string()
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_that_start_together_share_one_certificate() {
        let world = World::new();
        let replicas: Vec<_> = (0..4).map(|_| world.replica(Some("default"))).collect();
        let mut bundles = BTreeSet::new();
        for replica in &replicas {
            bundles.insert(bundle(replica).await);
        }
        assert_eq!(bundles, BTreeSet::from([world.stored("ca.crt")]));
        assert!(world.stored("tls.crt").starts_with("-----BEGIN CERTIFICATE"));
        assert!(world.stored("tls.key").starts_with("-----BEGIN PRIVATE KEY"));
    }

    #[tokio::test(start_paused = true)]
    async fn every_replica_trusts_a_new_authority_before_it_signs() {
        let world = World::new();
        let replicas: Vec<_> = (0..3).map(|_| world.replica(Some("default"))).collect();
        for replica in &replicas {
            bundle(replica).await;
        }
        let old = world.signer();
        *world.now.lock() += SignedDuration::from_hours(245 * 24); // the authority lives 360 days
        let begun = Instant::now();
        while world.signer() == old {
            assert!(begun.elapsed() < Duration::from_mins(5), "no new authority has taken over");
            sleep(MOMENT).await;
        }
        assert!(begun.elapsed() > Duration::from_secs(55), "it took over after {:?}", begun.elapsed());
        for replica in &replicas {
            let bundle = bundle(replica).await;
            assert!(bundle.contains(&world.signer()) && bundle.contains(&old), "{bundle}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn deleted_secret_comes_back_and_its_authority_stays_trusted() {
        let world = World::new();
        let replica = world.replica(Some("default"));
        bundle(&replica).await;
        let old = world.signer();
        world.model.take("secrets", "default", "provider").expect("a Secret");
        while world.model.object("secrets", "default", "provider").is_none() {
            sleep(MOMENT).await;
        }
        sleep(Duration::from_mins(3)).await;
        assert_ne!(world.signer(), old, "who deletes the Secret wants another authority");
        assert!(bundle(&replica).await.contains(&old), "the other workload may still have the old certificate");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_told_until_the_first_success_and_then_the_last_bundle_stays() {
        let world = World::new();
        world.model.set_faults(Planned::new(&"before * secrets.core #1..3 -> answer 403".parse().expect("a plan")));
        let replica = world.replica(Some("default"));
        let error = replica.authorities().await.expect_err("it is forbidden").to_string();
        assert!(error.starts_with("Secret \"provider\": cannot read Secret provider"), "{error}");
        let begun = Instant::now();
        while replica.authorities().await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(15), "it is permitted now");
            sleep(MOMENT).await;
        }
        let known = bundle(&replica).await;
        world.model.set_faults(Planned::new(&"before * secrets.core -> answer 503".parse().expect("a plan")));
        sleep(Duration::from_mins(10)).await;
        assert_eq!(bundle(&replica).await, known);
        world.model.set_faults(NoFaults);
    }

    #[tokio::test(start_paused = true)]
    async fn outside_of_a_cluster_the_error_names_the_flag() {
        let replica = World::new().replica(None);
        let error = replica.authorities().await.expect_err("no namespace").to_string();
        assert!(error.contains("--leader-election-namespace"), "{error}");
        assert!(!format!("{replica:?}").contains("BEGIN"));
    }
}
