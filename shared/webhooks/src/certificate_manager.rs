//! Keeps the certificate, which all replicas share in a Secret, and the API server's trust in it up to date.
//!
//! Every replica does this, standbys too. They need no lock: the API server refuses a second create and an update of an old
//! version, and the replica that lost reads the Secret again.

use std::{collections::BTreeMap, time::Duration};

use api_errors::Class;
use fastrand::Rng;
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::time::Instant;

use super::{
    pki::{self, CertificateBundle, Pair, Policy, Propagation},
    request::{Error, ask},
    trust::Trust,
};

/// The storage of the certificate.
pub(super) enum CertificateStore {
    /// In a Secret that the replicas share.
    Secret { api: Api<Secret>, name: String },
    /// In this process only, outside of a cluster.
    Memory(Option<CertificateBundle>),
}

/// Renews certificate and trust, in rounds.
pub(super) struct CertificateManager {
    pub(super) store: CertificateStore,
    pub(super) policy: Policy,
    pub(super) trust: Trust,
    /// The certificates of the last round.
    pub(super) served: Option<CertificateBundle>,
    /// How long the API server has had the bundle.
    pub(super) propagation: Propagation,
    pub(super) random: Rng,
}

/// The result of a round.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) material: CertificateBundle,
    /// The bundle that the API server trusts, as read back; `None` when it is stored nowhere.
    pub(super) trusted: Option<String>,
    /// A problem that an administrator may have to fix, though we can continue.
    pub(super) remark: Option<String>,
}

/// Attempts per round. Replicas that begin at the same moment lose at most once against each other replica.
const ATTEMPTS: usize = 10;

impl CertificateManager {
    /// Reads the stored certificate and the API server's trust, and brings both one step further.
    pub(super) async fn round(&mut self, now: Timestamp) -> Result<Round, Error> {
        let round = self.step(now).await?;
        self.served = Some(round.material.clone());
        Ok(round)
    }

    async fn step(&mut self, now: Timestamp) -> Result<Round, Error> {
        for _ in 0..ATTEMPTS {
            let (stored, version) = self.store.load().await?;
            let trust = match &stored {
                Some(material) => Some(self.trust.establish(&material.bundle()).await?),
                None => None,
            };
            let trusted = stored.as_ref().zip(trust.as_ref()).is_some_and(|(material, trust)| {
                self.propagation.look(&material.bundle(), trust.settled, &self.policy, Instant::now())
            });
            let Some(planned) = pki::plan(stored.as_ref(), self.served.as_ref(), &self.policy, now, trusted)? else {
                let Some((material, trust)) = stored.zip(trust) else { continue };
                return Ok(Round { material, trusted: trust.bundle, remark: trust.remark });
            };
            if self.store.save(&planned, version).await? {
                let trust = self.trust.establish(&planned.bundle()).await?;
                self.propagation.look(&planned.bundle(), trust.settled, &self.policy, Instant::now());
                return Ok(Round { material: planned, trusted: trust.bundle, remark: trust.remark });
            }
        }
        Err(Error::Contended(self.store.describe()))
    }

    /// The wait before the next round, after this many failed rounds in a row.
    pub(super) fn pause(&mut self, failures: u32) -> Duration {
        // Longer than a step, so that a bundle has settled by the next round.
        let usual = self.policy.step().mul_f64(self.random.f64().mul_add(0.2, 1.0));
        let Some(doublings) = failures.checked_sub(1) else { return usual };
        let soon = FIRST_PAUSE.saturating_mul(1 << doublings.min(8)).min(LONGEST_PAUSE);
        soon.mul_f64(self.random.f64().mul_add(0.5, 0.75)).min(usual)
    }
}

/// The wait after the first failed round. It doubles with each further one up to [`LONGEST_PAUSE`], with jitter, because replicas
/// tend to fail together.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

impl CertificateStore {
    pub(super) fn secret(client: Client, namespace: &str, name: &str) -> Self {
        Self::Secret { api: Api::namespaced(client, namespace), name: name.to_owned() }
    }

    fn describe(&self) -> String {
        match self {
            Self::Secret { name, .. } => name.clone(),
            Self::Memory(_) => "in memory".to_owned(),
        }
    }

    /// The stored certificates, and the whole Secret in the version that was read.
    async fn load(&self) -> Result<(Option<CertificateBundle>, Option<Secret>), Error> {
        match self {
            Self::Memory(material) => Ok((material.clone(), None)),
            Self::Secret { api, name } => {
                let found = ask(&format!("cannot read Secret {name}"), api.get_opt(name)).await?;
                let Some(found) = found else { return Ok((None, None)) };
                Ok((found.data.as_ref().and_then(material), Some(found)))
            }
        }
    }

    /// Stores the certificates if the Secret still has the version that was read. Returns false when another replica was faster.
    async fn save(&mut self, planned: &CertificateBundle, version: Option<Secret>) -> Result<bool, Error> {
        match self {
            Self::Memory(stored) => {
                *stored = Some(planned.clone());
                Ok(true)
            }
            Self::Secret { api, name } => {
                let parameters = PostParams::default();
                let written = if let Some(mut secret) = version {
                    // Keep the data of others: labels, and keys of a newer version of this program.
                    let stored = secret.data.get_or_insert_default();
                    stored.remove(NEXT_KEY);
                    stored.extend(data(planned));
                    ask(&format!("cannot update Secret {name}"), api.replace(name, &parameters, &secret)).await
                } else {
                    let secret = Secret {
                        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
                        type_: Some("kubernetes.io/tls".to_owned()),
                        data: Some(data(planned)),
                        ..Secret::default()
                    };
                    ask(&format!("cannot create Secret {name}"), api.create(&parameters, &secret)).await
                };
                match written {
                    Ok(_) => Ok(true),
                    Err(error) if matches!(error.class(), Class::AlreadyExists | Class::Conflict | Class::NotFound) => {
                        Ok(false)
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }
}

/// The keys of the Secret: those of `kubernetes.io/tls`, the bundle, and the private keys of its first CAs, in the same order.
const BUNDLE: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const NEXT_KEY: &str = "next-ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

fn data(material: &CertificateBundle) -> BTreeMap<String, ByteString> {
    let mut data: BTreeMap<&str, String> = BTreeMap::from([
        (BUNDLE, material.bundle()),
        (AUTHORITY_KEY, material.authority.key.clone()),
        (CERTIFICATE, material.serving.certificate.clone()),
        (KEY, material.serving.key.clone()),
    ]);
    if let Some(next) = &material.next {
        data.insert(NEXT_KEY, next.key.clone());
    }
    data.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes()))).collect()
}

/// Parses the Secret. `None` when anything is missing: then new certificates are made.
fn material(data: &BTreeMap<String, ByteString>) -> Option<CertificateBundle> {
    let text = |key: &str| data.get(key).and_then(|value| String::from_utf8(value.0.clone()).ok());
    let mut certificates = blocks(&text(BUNDLE)?).into_iter();
    let authority = Pair { certificate: certificates.next()?, key: text(AUTHORITY_KEY)? };
    let next = match text(NEXT_KEY) {
        Some(key) => Some(Pair { certificate: certificates.next()?, key }),
        None => None,
    };
    let serving = Pair { certificate: text(CERTIFICATE)?, key: text(KEY)? };
    Some(CertificateBundle { authority, next, former: certificates.collect(), serving })
}

/// The PEM blocks of a text.
fn blocks(text: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    text.split_inclusive(END).filter(|block| block.contains(END)).map(|block| format!("{}\n", block.trim())).collect()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use model_apiserver::Model;

    use super::*;
    use crate::configuration::Endpoint;

    impl CertificateManager {
        /// A certificate manager with a model API server, which calls no webhooks.
        pub(crate) fn for_tests(model: &Model, policy: Policy) -> Self {
            let client = model.client();
            let trust = Trust {
                client: client.clone(),
                endpoint: Endpoint::Service { namespace: "default".to_owned(), name: "webhooks".to_owned() },
                configuration: "webhooks".to_owned(),
                webhooks: Vec::new(),
                before: Vec::new(),
            };
            let store = CertificateStore::secret(client, "default", "certificate");
            Self { store, policy, trust, served: None, propagation: Propagation::default(), random: Rng::new() }
        }
    }

    #[test]
    fn stored_material_round_trips() {
        let policy = Policy { names: vec!["a".to_owned()], lifetime: SignedDuration::from_hours(24) };
        let now: Timestamp = "2026-11-21T00:00:00Z".parse().expect("a time");
        let first = pki::plan(None, None, &policy, now, false).expect("plans").expect("a change");
        let normal = |material: &CertificateBundle| super::material(&data(material)).expect("is complete");
        let stored = normal(&first);
        assert_eq!(stored, normal(&stored));
        assert_eq!(stored.serving, first.serving);

        let later = now + SignedDuration::from_hours(66);
        let announced = pki::plan(Some(&stored), None, &policy, later, true).expect("plans").expect("a change");
        let stored = normal(&announced);
        assert!(stored.next.is_some() && stored.former.is_empty());
        let promoted = pki::plan(Some(&stored), None, &policy, later, true).expect("plans").expect("a change");
        assert_eq!(normal(&promoted).former.len(), 1);
        assert_eq!(normal(&promoted), normal(&normal(&promoted)));
    }

    fn manager(model: &Model) -> CertificateManager {
        CertificateManager::for_tests(
            model,
            Policy { names: vec!["a".to_owned()], lifetime: SignedDuration::from_hours(24) },
        )
    }

    #[tokio::test(start_paused = true)]
    async fn ca_announced_by_another_replica_waits_for_a_full_step() {
        let model = Model::new();
        let (mut one, mut other) = (manager(&model), manager(&model));
        let now: Timestamp = "2026-11-21T00:00:00Z".parse().expect("a time");
        for manager in [&mut one, &mut other] {
            manager.round(now).await.expect("a round");
        }
        let later = now + SignedDuration::from_hours(66);
        let announced = one.round(later).await.expect("a round").material;
        assert!(announced.next.is_some());
        tokio::time::advance(Duration::from_millis(5)).await;
        // Not `assert_eq`, which would print private keys.
        assert!(other.round(later).await.expect("a round").material == announced, "the bundle was stored just now");
        tokio::time::advance(one.policy.step() * 9 / 10).await;
        assert!(other.round(later).await.expect("a round").material == announced);
        assert!(one.round(later).await.expect("a round").material == announced);
        tokio::time::advance(one.policy.step() / 10).await;
        let promoted = other.round(later).await.expect("a round").material;
        assert!(Some(promoted.authority) == announced.next);
    }

    #[tokio::test]
    async fn secret_keys_of_a_newer_version_are_kept() {
        let model = model_apiserver::Model::new();
        let mut store = CertificateStore::secret(model.client(), "default", "webhooks");
        let policy = Policy { names: vec!["a".to_owned()], lifetime: SignedDuration::from_hours(24) };
        let now: Timestamp = "2026-11-21T00:00:00Z".parse().expect("a time");
        let first = pki::plan(None, None, &policy, now, false).expect("plans").expect("a change");
        assert!(store.save(&first, None).await.expect("a Secret is created"));

        let mut of_newer = model.object("secrets", "default", "webhooks").expect("a Secret");
        of_newer["metadata"]["labels"] = serde_json::json!({"backup": "yes"});
        of_newer["data"]["format"] = serde_json::json!("Mg==");
        of_newer["data"][NEXT_KEY] = serde_json::json!("Mg==");
        model.put(of_newer);
        let (_, found) = store.load().await.expect("is read");
        assert!(store.save(&first, found).await.expect("the Secret is replaced"));
        let stored = model.object("secrets", "default", "webhooks").expect("a Secret");
        assert_eq!(stored["metadata"]["labels"], serde_json::json!({"backup": "yes"}));
        assert_eq!(stored["data"]["format"], "Mg==");
        assert!(stored["data"].get(NEXT_KEY).is_none(), "the key belongs to a CA that is not in the bundle");
        let read = store.load().await.expect("is read").0.expect("is complete");
        assert_eq!(read.serving, first.serving);
    }

    #[test]
    fn incomplete_secret_yields_no_material() {
        assert_eq!(material(&BTreeMap::from([(BUNDLE.to_owned(), ByteString(b"x".to_vec()))])), None);
    }
}
