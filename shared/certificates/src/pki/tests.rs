//! Tests of issuing and renewing certificates, and of the API server's trust in them while replicas act at different times.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const DAY: SignedDuration = SignedDuration::from_hours(24);

fn policy(names: &[&str]) -> Policy {
    Policy { purpose: "webhooks", names: names.iter().map(|name| (*name).to_owned()).collect(), lifetime: DAY * 90 }
}

fn start() -> Timestamp {
    "2026-11-21T00:00:00Z".parse().expect("a time")
}

fn after(days: i32) -> Timestamp {
    start() + DAY * days
}

fn made(names: &[&str]) -> CertificateBundle {
    plan(None, None, &policy(names), start(), false).expect("is made").expect("a change")
}

#[test]
fn first_replica_creates_ca_and_certificate() {
    let material = made(&["webhooks.operators.svc", "127.0.0.1"]);
    let facts = Certificate::read(&material.serving.certificate).expect("reads");
    assert!(facts.covers(&["webhooks.operators.svc".to_owned(), "127.0.0.1".to_owned()]));
    assert_eq!(facts.not_after, after(90));
    assert_eq!(material.bundle(), material.authority.certificate);
}

#[test]
fn certificates_are_kept_until_renewal_is_due() {
    let material = made(&["a"]);
    for (day, trusted) in [(0, true), (59, false), (59, true)] {
        assert_eq!(
            plan(Some(&material), None, &policy(&["a"]), after(day), trusted).expect("plans"),
            None,
            "day {day}"
        );
    }
}

#[test]
fn the_serving_certificate_is_renewed_by_the_same_authority() {
    let material = made(&["a"]);
    let renewed = plan(Some(&material), None, &policy(&["a"]), after(61), true).expect("plans").expect("a change");
    assert_eq!(renewed.authority, material.authority);
    assert_eq!(renewed.bundle(), material.bundle());
    assert_ne!(renewed.serving, material.serving);
}

#[test]
fn added_name_reissues_the_certificate() {
    let material = made(&["a"]);
    let renewed = plan(Some(&material), None, &policy(&["a", "b"]), start(), true).expect("plans").expect("a change");
    assert!(Certificate::read(&renewed.serving.certificate).expect("reads").covers(&["b".to_owned()]));
    assert_eq!(renewed.authority, material.authority);
}

#[test]
fn a_new_authority_signs_only_after_it_is_trusted() {
    let policy = policy(&["a"]);
    let step = |material: &CertificateBundle, day, trusted| {
        plan(Some(material), None, &policy, after(day), trusted).expect("plans")
    };
    let old = made(&["a"]);
    let announced = step(&old, 245, true).expect("a change");
    let next = announced.next.clone().expect("a next authority");
    assert_eq!(announced.authority, old.authority, "it does not sign yet");
    assert!(announced.bundle().contains(&next.certificate));

    let waiting = step(&announced, 246, false);
    assert!(waiting.is_none_or(|waiting| waiting.authority == old.authority), "the bundle is not in place yet");

    let taken_over = step(&announced, 246, true).expect("a change");
    assert_eq!(taken_over.authority, next);
    assert!(taken_over.bundle().contains(&old.authority.certificate), "replicas may still serve what it signed");

    let later = step(&taken_over, 361, true).expect("a change");
    assert!(!later.bundle().contains(&old.authority.certificate), "the old CA has expired");
}

#[test]
fn expired_or_broken_certificates_are_replaced() {
    let material = made(&["a"]);
    let policy = policy(&["a"]);
    let anew = plan(Some(&material), None, &policy, after(400), false).expect("plans").expect("a change");
    assert_ne!(anew.authority, material.authority);
    let nothing = || Pair { certificate: "-".to_owned(), key: String::new() };
    let broken = CertificateBundle { serving: nothing(), ..material.clone() };
    let mended = plan(Some(&broken), None, &policy, start(), true).expect("plans").expect("a change");
    assert_eq!(mended.authority, material.authority, "only the broken part is replaced");
    let broken = CertificateBundle { authority: nothing(), ..material };
    assert!(plan(Some(&broken), None, &policy, start(), true).expect("plans").is_some());
}

/// The certificates are intact, so only the keys tell. Such a pair cannot serve, and such an authority cannot sign.
#[test]
fn damaged_or_exchanged_keys_are_replaced() {
    let (material, other, policy) = (made(&["a"]), made(&["a"]), policy(&["a"]));
    for key in [String::new(), "garbage".to_owned(), other.serving.key.clone()] {
        let damaged = |pair: &Pair| Pair { key: key.clone(), ..pair.clone() };
        let planned = |stored: &CertificateBundle, served| {
            let planned = plan(Some(stored), served, &policy, start(), true).expect("plans").expect("a change");
            assert!(planned.serving.read().is_some() && planned.authority.read().is_some(), "{key:?}");
            planned
        };
        let serving = CertificateBundle { serving: damaged(&material.serving), ..material.clone() };
        assert_eq!(planned(&serving, None).authority, material.authority, "only the broken part is replaced");

        let authority = CertificateBundle { authority: damaged(&material.authority), ..material.clone() };
        let anew = planned(&authority, None);
        assert!(anew.bundle().contains(&material.authority.certificate), "what replicas serve stays trusted");
        assert_eq!(planned(&authority, Some(&material)).authority, material.authority, "this process has the key");

        let next = CertificateBundle { next: Some(damaged(&other.authority)), ..material.clone() };
        assert_eq!(planned(&next, None), material, "it has signed nothing yet");
    }
}

#[test]
fn lost_ca_stays_trusted_until_its_successor_takes_over() {
    let (served, policy) = (made(&["a"]), policy(&["a"]));
    let announced = plan(None, Some(&served), &policy, start(), false).expect("plans").expect("a change");
    assert_eq!((&announced.authority, &announced.serving), (&served.authority, &served.serving));
    let next = announced.next.clone().expect("another authority");
    assert!(announced.bundle().contains(&next.certificate));
    let taken_over = plan(Some(&announced), Some(&served), &policy, start(), true).expect("plans").expect("a change");
    assert_eq!(taken_over.authority, next);
    assert!(taken_over.bundle().contains(&served.authority.certificate));

    let expired = plan(None, Some(&served), &policy, after(400), false).expect("plans").expect("a change");
    assert!(!expired.bundle().contains(&served.authority.certificate));
}

/// Three replicas with different intervals between rounds, and API servers that see a bundle some time after it was stored, but
/// within a step. Any replica may restart at any time.
#[derive(Debug)]
struct World {
    policy: Policy,
    zero: Instant,
    stored: Option<CertificateBundle>,
    /// Every bundle that was stored for the API servers, with its time.
    told: Vec<(Duration, String)>,
    /// The CA of each serving certificate.
    signed: HashMap<String, String>,
    replicas: [Replica; 3],
}

#[derive(Debug, Default)]
struct Replica {
    served: Option<CertificateBundle>,
    settled: Propagation,
}

impl World {
    /// One round of a replica, as its manager does it.
    fn round(&mut self, number: usize, at: Duration) {
        let now = start() + SignedDuration::try_from(at).expect("it fits");
        let replica = &mut self.replicas[number];
        let trusted = self.stored.as_ref().is_some_and(|stored| {
            let in_place = self.told.last().is_some_and(|(_, told)| *told == stored.bundle());
            if !in_place {
                self.told.push((at, stored.bundle()));
            }
            replica.settled.look(&stored.bundle(), in_place, &self.policy, self.zero + at)
        });
        let planned = plan(self.stored.as_ref(), replica.served.as_ref(), &self.policy, now, trusted).expect("plans");
        if let Some(planned) = planned {
            let authority = planned.authority.certificate.clone();
            self.signed.entry(planned.serving.certificate.clone()).or_insert(authority);
            let in_place = self.told.last().is_some_and(|(_, told)| *told == planned.bundle());
            self.told.push((at, planned.bundle()));
            replica.settled.look(&planned.bundle(), in_place, &self.policy, self.zero + at);
            self.stored = Some(planned);
        }
        replica.served.clone_from(&self.stored);
    }

    /// Whether an API server that lags by `late` trusts the certificate of each replica.
    fn is_trusted(&self, at: Duration, late: Duration) -> bool {
        let heard = at.checked_sub(late).and_then(|heard| self.told.iter().rev().find(|(told, _)| *told <= heard));
        let Some((_, heard)) = heard.or(self.told.first()) else { return true };
        let served = self.replicas.iter().filter_map(|replica| replica.served.as_ref());
        served.map(|served| &self.signed[&served.serving.certificate]).all(|authority| heard.contains(&**authority))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn lagging_api_server_trusts_every_served_certificate(
        rhythms in prop::array::uniform3(54_000..66_000_u64),
        starts in prop::array::uniform3(0..60_000_u64),
        restarts in prop::collection::vec((0..3_usize, 0..12_000_000_u64), 0..6),
        late in 0..60_000_u64,
    ) {
        let policy = Policy { purpose: "webhooks", names: vec!["a".to_owned()], lifetime: SignedDuration::from_mins(20) };
        prop_assert_eq!(policy.step(), Duration::from_mins(1));
        let zero = Instant::now();
        let mut world = World {
            policy, zero, stored: None, told: Vec::new(), signed: HashMap::new(), replicas: Default::default(),
        };
        // Long enough for two CAs to come and go.
        let mut rounds: Vec<(u64, usize, bool)> = restarts.into_iter().map(|(number, at)| (at, number, true)).collect();
        for (number, (start, rhythm)) in starts.into_iter().zip(rhythms).enumerate() {
            rounds.extend((0..).map(|n| start + n * rhythm).take_while(|at| *at < 12_000_000).map(|at| (at, number, false)));
        }
        rounds.sort_unstable();
        for (at, number, restarts) in rounds {
            let at = Duration::from_millis(at);
            if restarts {
                world.replicas[number] = Replica::default();
            }
            world.round(number, at);
            prop_assert!(world.is_trusted(at, Duration::from_millis(late)), "at {at:?} by replica {number}");
        }
        let authorities: std::collections::HashSet<&String> = world.signed.values().collect();
        prop_assert!(authorities.len() >= 3, "too few CAs took over: {}", authorities.len());
    }
}
