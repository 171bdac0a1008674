//! Keeps the certificates, which all replicas share in a Secret, and the clients' trust in them up to date.
//!
//! Every replica does this, standbys too. They need no lock: the API server refuses a second create and an update of an old
//! version, and the replica that lost reads the Secret again.

use std::{collections::BTreeMap, future::Future, time::Duration};

use api_errors::Class;
use fastrand::Rng;
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::time::Instant;

use crate::{CertificateBundle, Error, Pair, Policy, Propagation, ask, plan};

/// Brings the bundle of authorities to those who have to trust it.
pub trait Distribution {
    /// Makes sure that clients get `bundle`, and returns what it found. It is called in each round, also with the same bundle.
    ///
    /// # Errors
    ///
    /// The bundle could not be read or written where clients read it.
    fn establish(&mut self, bundle: &str) -> impl Future<Output = Result<TrustState, Error>> + Send;
}

/// The state of the bundle where clients read it, after a check.
#[derive(Debug, Default)]
pub struct TrustState {
    /// The bundle was in place everywhere already, so nothing was written.
    pub settled: bool,
    /// The bundle as read back; `None` when it is stored nowhere.
    pub bundle: Option<String>,
    /// A problem for the administrator, such as a missing object.
    pub remark: Option<String>,
}

/// Clients read the bundle from the Secret itself, so it is in place as soon as it is stored.
#[derive(Debug, Clone, Copy)]
pub struct InSecret;

impl Distribution for InSecret {
    async fn establish(&mut self, bundle: &str) -> Result<TrustState, Error> {
        Ok(TrustState { settled: true, bundle: Some(bundle.to_owned()), remark: None })
    }
}

/// The storage of the certificates.
pub enum CertificateStore {
    /// In a Secret that the replicas share.
    Secret {
        /// The Secrets of its namespace.
        api: Api<Secret>,
        /// Its name.
        name: String,
    },
    /// In this process only, outside of a cluster.
    Memory(Option<CertificateBundle>),
}

/// Renews the certificates and the trust in them, in rounds.
pub struct CertificateManager<D> {
    store: CertificateStore,
    /// The settings of the certificates.
    pub policy: Policy,
    /// Where clients read the bundle.
    pub distribution: D,
    /// The certificates of the last round.
    served: Option<CertificateBundle>,
    /// How long clients have had the bundle.
    propagation: Propagation,
    random: Rng,
}

/// The result of a round.
#[derive(Debug)]
pub struct Round {
    /// The stored certificates.
    pub material: CertificateBundle,
    /// The bundle that clients trust, as read back; `None` when it is stored nowhere.
    pub trusted: Option<String>,
    /// A problem that an administrator may have to fix, though we can continue.
    pub remark: Option<String>,
}

/// Attempts per round. Replicas that begin at the same moment lose at most once against each other replica.
const ATTEMPTS: usize = 10;

impl<D: Distribution> CertificateManager<D> {
    /// Creates a manager that has done nothing yet. `random` is for jitter.
    pub fn new(store: CertificateStore, policy: Policy, distribution: D, random: Rng) -> Self {
        Self { store, policy, distribution, served: None, propagation: Propagation::default(), random }
    }

    /// Reads the stored certificates and the clients' trust, and brings both one step further.
    ///
    /// # Errors
    ///
    /// The API server refuses a request or does not answer, or other clients keep changing the Secret.
    pub async fn round(&mut self, now: Timestamp) -> Result<Round, Error> {
        let round = self.step(now).await?;
        self.served = Some(round.material.clone());
        Ok(round)
    }

    async fn step(&mut self, now: Timestamp) -> Result<Round, Error> {
        for _ in 0..ATTEMPTS {
            let (stored, version) = self.store.load().await?;
            let trust = match &stored {
                Some(material) => Some(self.distribution.establish(&material.bundle()).await?),
                None => None,
            };
            let trusted = stored.as_ref().zip(trust.as_ref()).is_some_and(|(material, trust)| {
                self.propagation.look(&material.bundle(), trust.settled, &self.policy, Instant::now())
            });
            let Some(planned) = plan(stored.as_ref(), self.served.as_ref(), &self.policy, now, trusted)? else {
                let Some((material, trust)) = stored.zip(trust) else { continue };
                return Ok(Round { material, trusted: trust.bundle, remark: trust.remark });
            };
            if self.store.save(&planned, version).await? {
                let trust = self.distribution.establish(&planned.bundle()).await?;
                self.propagation.look(&planned.bundle(), trust.settled, &self.policy, Instant::now());
                return Ok(Round { material: planned, trusted: trust.bundle, remark: trust.remark });
            }
        }
        Err(Error::Contended(self.store.describe()))
    }

    /// The wait before the next round, after this many failed rounds in a row.
    pub fn pause(&mut self, failures: u32) -> Duration {
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
    /// A Secret with this name.
    pub fn secret(client: Client, namespace: &str, name: &str) -> Self {
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

    fn policy() -> Policy {
        Policy { purpose: "webhooks", names: vec!["a".to_owned()], lifetime: SignedDuration::from_hours(24) }
    }

    #[test]
    fn stored_material_round_trips() {
        let policy = policy();
        let now: Timestamp = "2026-11-21T00:00:00Z".parse().expect("a time");
        let first = plan(None, None, &policy, now, false).expect("plans").expect("a change");
        let normal = |material: &CertificateBundle| super::material(&data(material)).expect("is complete");
        let stored = normal(&first);
        assert_eq!(stored, normal(&stored));
        assert_eq!(stored.serving, first.serving);

        let later = now + SignedDuration::from_hours(66);
        let announced = plan(Some(&stored), None, &policy, later, true).expect("plans").expect("a change");
        let stored = normal(&announced);
        assert!(stored.next.is_some() && stored.former.is_empty());
        let promoted = plan(Some(&stored), None, &policy, later, true).expect("plans").expect("a change");
        assert_eq!(normal(&promoted).former.len(), 1);
        assert_eq!(normal(&promoted), normal(&normal(&promoted)));
    }

    fn manager(model: &Model) -> CertificateManager<InSecret> {
        let store = CertificateStore::secret(model.client(), "default", "certificate");
        CertificateManager::new(store, policy(), InSecret, Rng::new())
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
        let policy = policy();
        let now: Timestamp = "2026-11-21T00:00:00Z".parse().expect("a time");
        let first = plan(None, None, &policy, now, false).expect("plans").expect("a change");
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
