use std::{sync::Arc, time::Duration};

use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

use super::*;

const DAY: SignedDuration = SignedDuration::from_hours(24);

fn policy() -> Policy {
    Policy {
        names: ["cache.shop.svc", "cache", "127.0.0.1"].map(str::to_owned).to_vec(),
        validity: DAY * 365,
        renewal: DAY * 30,
    }
}

fn day(number: i32) -> Timestamp {
    let begin: Timestamp = "2026-11-21T10:00:00Z".parse().expect("a time");
    begin + DAY * number
}

/// Whether a client that trusts this authority accepts the certificate under this name.
fn accepts(authority: &Pair, serving: &Pair, name: &str, now: Timestamp) -> bool {
    is_accepted(&authority.certificate, serving, name, now)
}

/// The same for a client that trusts these certificates in PEM.
fn is_accepted(trusted: &str, serving: &Pair, name: &str, now: Timestamp) -> bool {
    let certificate = CertificateDer::from_pem_slice(serving.certificate.as_bytes()).expect("a certificate");
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots.add(authority.expect("a certificate")).expect("an authority");
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().expect("a verifier");
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().unsigned_abs()));
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    verifier.verify_server_cert(&certificate, &[], &name, &[], now).is_ok()
}

/// The serving certificate to store instead of this one, if clients trust only the present authority.
fn signed(authority: &Pair, stored: Option<&Pair>, now: Timestamp) -> Option<Pair> {
    serving(authority, (&authority.certificate, None), stored, &policy(), now).expect("no error")
}

fn fresh(now: Timestamp) -> (Pair, Pair) {
    let authority = authority(None, &policy(), now).expect("no error").expect("an authority");
    let serving = signed(&authority, None, now).expect("a certificate");
    (authority, serving)
}

#[test]
fn clients_that_trust_the_authority_accept_each_name() {
    let (authority, serving) = fresh(day(0));
    for name in policy().names {
        assert!(
            accepts(&authority, &serving, &name, day(0)) && accepts(&authority, &serving, &name, day(364)),
            "{name}"
        );
    }
    assert!(!accepts(&authority, &serving, "other.shop.svc", day(0)));
    assert!(!accepts(&fresh(day(0)).0, &serving, "cache", day(0)), "another authority");
}

#[test]
fn certificate_is_renewed_before_its_end_and_kept_until_then() {
    let (authority, old) = fresh(day(0));
    let renewed = |day| signed(&authority, Some(&old), day);
    assert_eq!((renewed(day(0)), renewed(day(334))), (None, None));
    let new = renewed(day(335)).expect("a new certificate");
    assert_ne!(new.key, old.key);
    assert!(accepts(&authority, &new, "cache", day(699)));
    assert!(renewed(day(-1)).is_some(), "a certificate from the future is not valid yet");
}

#[test]
fn renewed_authority_is_trusted_by_clients_of_the_earlier_one() {
    let (old, certificate) = fresh(day(0));
    let renewed = |day| authority(Some(&old), &policy(), day).expect("no error");
    let last = 3650 - 365 - 30;
    assert_eq!(renewed(day(last)), None);
    let new = renewed(day(last + 1)).expect("a renewed authority");
    assert_eq!(new.key, old.key);
    assert_ne!(new.certificate, old.certificate);
    assert!(accepts(&new, &certificate, "cache", day(9)), "clients that have only the new certificate");
    let next = signed(&new, None, day(last + 1)).expect("a certificate");
    assert!(accepts(&old, &next, "cache", day(last + 365)), "clients that have only the earlier certificate");
    assert_eq!(signed(&new, Some(&next), day(last + 2)), None);
    assert_eq!(trusted(&new, Some(&old.certificate), day(last + 1)), new.certificate, "one certificate for each key");
}

/// The Secret with the authority is lost. Nodes show the former and the next certificate side by side while they are replaced.
#[test]
fn authority_with_another_key_signs_when_clients_have_its_certificate() {
    let (old, certificate) = fresh(day(0));
    let new = authority(None, &policy(), day(100)).expect("no error").expect("an authority");
    let bundle = trusted(&new, Some(&old.certificate), day(100));
    assert_eq!(trusted(&new, Some(&bundle), day(101)), bundle, "it stays as it is");
    let since = trusted_since(&new, (Some(&old.certificate), Some(&certificate)), None, day(100));
    assert_eq!(trusted_since(&new, (Some(&bundle), Some(&certificate)), since, day(101)), Some(day(100)));
    let renewed_if = |trusted: &str, minutes: i64| {
        let now = day(100) + SignedDuration::from_mins(minutes);
        serving(&new, (trusted, since), Some(&certificate), &policy(), now).expect("no error")
    };
    let renewed = |minutes: i64| renewed_if(&bundle, minutes);
    assert_eq!((renewed(0), renewed(4)), (None, None), "clients get the new certificate first");
    let next = renewed(5).expect("a certificate");
    for node in [&certificate, &next] {
        assert!(is_accepted(&bundle, node, "cache", day(101)));
    }
    assert!(accepts(&new, &next, "cache", day(101)) && !accepts(&old, &next, "cache", day(101)));
    assert!(renewed_if(&new.certificate, 0).is_some(), "clients do not trust the former one any more");
    assert_eq!(trusted(&new, Some(&bundle), day(3650)), new.certificate, "the former one has expired");
    let damaged = format!("x{bundle}");
    assert_eq!(trusted(&new, Some(&damaged), day(101)), bundle, "what a user has written into it goes");
}

/// A user may have restored it from a backup.
#[test]
fn age_of_an_authority_does_not_tell_since_when_clients_trust_it() {
    let ((old, certificate), (other, _)) = (fresh(day(0)), fresh(day(0)));
    let noted = Some(day(50));
    let since = |stored: Option<&str>| trusted_since(&other, (stored, Some(&certificate)), noted, day(100));
    assert_eq!([None, Some("x"), Some(&*old.certificate)].map(since), [Some(day(100)); 3]);
    let bundle = trusted(&other, Some(&old.certificate), day(100));
    assert_eq!(since(Some(bundle.as_str())), noted);
    let replaced = |now: Timestamp| {
        serving(&other, (&bundle, Some(day(100))), Some(&certificate), &policy(), now).expect("no error").is_some()
    };
    assert_eq!((replaced(day(100)), replaced(day(101))), (false, true));
}

/// An earlier version has noted no time, or a user has removed or changed the note, or the clock was ahead.
#[test]
fn wait_begins_again_if_the_note_is_missing_or_in_the_future() {
    let ((old, certificate), now) = (fresh(day(0)), day(100));
    let new = authority(None, &policy(), now).expect("no error").expect("an authority");
    let bundle = trusted(&new, Some(&old.certificate), now);
    let since = |pair: &Pair, noted| trusted_since(&new, (Some(&bundle), Some(pair)), noted, now);
    for noted in [None, Some(day(101)), Some(day(4000))] {
        assert_eq!(since(&certificate, noted), Some(now), "{noted:?}");
    }
    assert_eq!(since(&certificate, Some(now)), Some(now), "it is noted once");
    let next = signed(&new, None, now).expect("a certificate");
    let (_, others) = fresh(day(0));
    for pair in [&next, &others] {
        let times = [None, Some(day(101))].map(|noted| since(pair, noted));
        assert_eq!(times, [None, None], "there is nothing to wait for");
    }
}

/// Clients look up an authority by its name. A user may have written one whose name has more parts than the operator keeps.
#[test]
fn former_authority_with_the_same_key_and_another_name_stays_trusted() {
    let (old, certificate) = fresh(day(0));
    let validity = Validity { from: day(1), lifetime: policy().validity * AUTHORITY_LIVES };
    let renamed = Pair::authority("another name", Some(&old.key), validity).expect("an authority");
    let bundle = trusted(&renamed, Some(&old.certificate), day(1));
    assert_eq!(bundle.matches(END).count(), 2);
    assert!(is_accepted(&bundle, &certificate, "cache", day(1)) && !accepts(&renamed, &certificate, "cache", day(1)));
    let since = trusted_since(&renamed, (Some(&old.certificate), None), Some(day(0)), day(1));
    assert_eq!(since, Some(day(1)), "clients do not have the other name");
}

#[test]
fn clients_trust_a_few_former_authorities() {
    let mut bundle = String::new();
    for number in 0..9 {
        bundle = trusted(&fresh(day(number)).0, Some(&bundle), day(number));
    }
    assert_eq!(bundle.matches(END).count(), MOST_FORMER + 1);
}

/// What a user has written into the Secret. Clients would accept nothing that it signs, and each reconcile would sign again.
#[test]
fn certificate_that_is_no_authority_is_replaced() {
    let lasting = Validity { from: day(0), lifetime: policy().validity * AUTHORITY_LIVES };
    let written = fresh(day(0)).0.sign("cache", &policy().names, lasting).expect("a certificate");
    let made = authority(Some(&written), &policy(), day(0)).expect("no error").expect("an authority");
    let certificate = signed(&made, None, day(0)).expect("a certificate");
    assert!(accepts(&made, &certificate, "cache", day(0)));
    let name = |pair: &Pair| pair.read().expect("a certificate").common_name;
    assert_ne!(name(&made), name(&written), "it is also the name of what the authority signs");
    assert_eq!(authority(Some(&made), &policy(), day(1)).expect("no error"), None);
    assert_eq!(signed(&made, Some(&certificate), day(1)), None, "it signs once");
}

#[test]
fn unusable_or_foreign_pairs_are_replaced() {
    let (good, certificate) = fresh(day(0));
    let (other, others) = fresh(day(0));
    let damaged = |pair: &Pair| Pair { certificate: "x".to_owned(), ..pair.clone() };
    let mixed = |pair: &Pair, key: &Pair| Pair { key: key.key.clone(), ..pair.clone() };
    let made = |pair: &Pair| authority(Some(pair), &policy(), day(1)).expect("no error");
    assert!(made(&damaged(&good)).is_some() && made(&mixed(&good, &other)).is_some());
    let made = |pair: &Pair| signed(&good, Some(pair), day(1));
    assert_eq!(made(&certificate), None);
    for pair in [damaged(&certificate), mixed(&certificate, &others), others] {
        assert!(made(&pair).is_some_and(|new| accepts(&good, &new, "cache", day(1))));
    }
    let more = Policy { names: vec!["cache".to_owned(), "cache.example.com".to_owned()], ..policy() };
    let missing = serving(&good, (&good.certificate, None), Some(&certificate), &more, day(1)).expect("no error");
    assert!(missing.is_some(), "a name is missing");
}
