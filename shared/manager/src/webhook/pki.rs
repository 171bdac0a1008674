//! Which certificate is made when. Pure: what is stored and the time go in, what is to be stored comes out.
//!
//! A certificate authority of our own signs the serving certificate. Both are renewed when two thirds of their life are
//! over. A new authority is made one step before it signs anything: it is first added to the bundle that the API server
//! trusts, and only when that has been read back everywhere it takes over; the old one stays in the bundle until it
//! expires. So there is no moment in which a replica's certificate is not trusted.

use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use x509_parser::{extensions::GeneralName, pem::Pem};

/// A certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// All that the replicas share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Material {
    /// Who signs.
    pub(crate) authority: Pair,
    /// Who will sign, and is already trusted or about to be.
    pub(crate) next: Option<Pair>,
    /// Authorities that have signed and may still be met, in PEM; without the two above.
    pub(crate) former: Vec<String>,
    pub(crate) serving: Pair,
}

/// What is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// DNS names or addresses under which the API server calls.
    pub(crate) names: Vec<String>,
    /// Life of the serving certificate; that of the authority is four times as long.
    pub(crate) lifetime: SignedDuration,
}

const AUTHORITY_LIVES: i32 = 4;

/// What certificates could not be made or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot make a certificate for {names}: {source}")]
    Make { names: String, source: rcgen::Error },
    #[error("cannot read a stored certificate: {0}")]
    Read(String),
}

impl Material {
    /// What the API server is to trust.
    pub(crate) fn bundle(&self) -> String {
        let present = [Some(&self.authority), self.next.as_ref()];
        let present = present.into_iter().flatten().map(|pair| pair.certificate.as_str());
        present.chain(self.former.iter().map(String::as_str)).collect()
    }
}

/// What is to be stored instead of `stored`, if anything. `served` is what this process has last read or made; `trusted`
/// says that the bundle of `stored` has been read back from everywhere the API server reads it.
pub(crate) fn plan(
    stored: Option<&Material>,
    served: Option<&Material>,
    policy: &Policy,
    now: Timestamp,
    trusted: bool,
) -> Result<Option<Material>, Error> {
    let living = |material: Option<&Material>| {
        let material = material?.clone();
        let authority = Facts::of(&material.authority.certificate).ok()?;
        (authority.not_after > now).then_some((material, authority))
    };
    let Some((mut planned, authority)) = living(stored) else {
        // Lost or damaged: what replicas serve has to be trusted until all of them have another certificate.
        let planned = match living(served) {
            Some((served, _)) => announce(served, policy, now),
            None => fresh(policy, now),
        };
        return planned.map(Some);
    };
    planned.former.retain(|former| Facts::of(former).is_ok_and(|facts| facts.not_after > now));
    if trusted && let Some(next) = planned.next.take() {
        planned.former.insert(0, std::mem::replace(&mut planned.authority, next).certificate);
        planned.serving = serve(&planned.authority, policy, now)?;
    } else if authority.is_due(now) {
        planned = announce(planned, policy, now)?;
    }
    let serving = Facts::of(&planned.serving.certificate);
    if !serving.is_ok_and(|serving| !serving.is_due(now) && serving.covers(&policy.names)) {
        planned.serving = serve(&planned.authority, policy, now)?;
    }
    Ok((stored != Some(&planned)).then_some(planned))
}

/// Adds the authority that will take over, unless there is one.
fn announce(mut material: Material, policy: &Policy, now: Timestamp) -> Result<Material, Error> {
    if material.next.is_none() {
        material.next = Some(sign_itself(policy, now)?);
    }
    Ok(material)
}

fn fresh(policy: &Policy, now: Timestamp) -> Result<Material, Error> {
    let authority = sign_itself(policy, now)?;
    let serving = serve(&authority, policy, now)?;
    Ok(Material { authority, next: None, former: Vec::new(), serving })
}

fn sign_itself(policy: &Policy, now: Timestamp) -> Result<Pair, Error> {
    let made = || {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // Authorities of one name but different keys would be taken for each other.
        params.distinguished_name = called(&format!("webhook authority of {now}"));
        live(&mut params, now, policy.lifetime * AUTHORITY_LIVES);
        let key = KeyPair::generate()?;
        Ok(Pair { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
    };
    made().map_err(|source| Error::Make { names: "an authority".to_owned(), source })
}

fn serve(authority: &Pair, policy: &Policy, now: Timestamp) -> Result<Pair, Error> {
    let made = || {
        let issuer = Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key)?)?;
        let mut params = CertificateParams::new(policy.names.clone())?;
        params.distinguished_name = called("webhooks of controller-manager");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        live(&mut params, now, policy.lifetime);
        let key = KeyPair::generate()?;
        Ok(Pair { certificate: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
    };
    made().map_err(|source| Error::Make { names: policy.names.join(", "), source })
}

fn called(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// Valid from a little earlier on, for API servers whose clock is late.
fn live(params: &mut CertificateParams, now: Timestamp, lifetime: SignedDuration) {
    let late = SignedDuration::from_mins(5).min(lifetime / 10);
    params.not_before = SystemTime::from(now.saturating_sub(late).unwrap_or(now)).into();
    params.not_after = SystemTime::from(now.saturating_add(lifetime).unwrap_or(now)).into();
}

/// What a certificate says of itself.
struct Facts {
    not_before: Timestamp,
    not_after: Timestamp,
    names: Vec<String>,
}

impl Facts {
    fn of(pem: &str) -> Result<Self, Error> {
        let read = |error: &dyn std::fmt::Display| Error::Read(error.to_string());
        let pem = Pem::iter_from_buffer(pem.as_bytes()).next().ok_or_else(|| read(&"it is empty"))?;
        let pem = pem.map_err(|error| read(&error))?;
        let certificate = pem.parse_x509().map_err(|error| read(&error))?;
        let time = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp());
        let validity = certificate.validity();
        let names = certificate.subject_alternative_name().ok().flatten();
        let name = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => address(bytes),
            _ => None,
        };
        Ok(Self {
            not_before: time(validity.not_before).map_err(|error| read(&error))?,
            not_after: time(validity.not_after).map_err(|error| read(&error))?,
            names: names.into_iter().flat_map(|names| names.value.general_names.iter().filter_map(name)).collect(),
        })
    }

    /// Whether two thirds of its life are over.
    fn is_due(&self, now: Timestamp) -> bool {
        let life = self.not_after.duration_since(self.not_before);
        now.duration_since(self.not_before) * 3 >= life * 2
    }

    fn covers(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(std::net::IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).map(std::net::IpAddr::from);
    v4().or_else(|_| v6()).ok().map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: SignedDuration = SignedDuration::from_hours(24);

    fn policy(names: &[&str]) -> Policy {
        Policy { names: names.iter().map(|name| (*name).to_owned()).collect(), lifetime: DAY * 90 }
    }

    fn start() -> Timestamp {
        "2026-11-21T00:00:00Z".parse().expect("a time")
    }

    fn after(days: i32) -> Timestamp {
        start() + DAY * days
    }

    fn made(names: &[&str]) -> Material {
        plan(None, None, &policy(names), start(), false).expect("is made").expect("a change")
    }

    #[test]
    fn the_first_replica_makes_everything() {
        let material = made(&["webhooks.operators.svc", "127.0.0.1"]);
        let facts = Facts::of(&material.serving.certificate).expect("reads");
        assert!(facts.covers(&["webhooks.operators.svc".to_owned(), "127.0.0.1".to_owned()]));
        assert_eq!(facts.not_after, after(90));
        assert_eq!(material.bundle(), material.authority.certificate);
    }

    #[test]
    fn nothing_changes_before_its_time() {
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
    fn another_name_needs_another_certificate() {
        let material = made(&["a"]);
        let renewed =
            plan(Some(&material), None, &policy(&["a", "b"]), start(), true).expect("plans").expect("a change");
        assert!(Facts::of(&renewed.serving.certificate).expect("reads").covers(&["b".to_owned()]));
        assert_eq!(renewed.authority, material.authority);
    }

    #[test]
    fn a_new_authority_signs_only_after_it_is_trusted() {
        let policy = policy(&["a"]);
        let step = |material: &Material, day, trusted| {
            plan(Some(material), None, &policy, after(day), trusted).expect("plans")
        };
        let old = made(&["a"]);
        let announced = step(&old, 245, true).expect("a change");
        let next = announced.next.clone().expect("a next authority");
        assert_eq!(announced.authority, old.authority, "it does not sign yet");
        assert!(announced.bundle().contains(&next.certificate));

        let waiting = step(&announced, 246, false);
        assert!(waiting.is_none_or(|waiting| waiting.authority == old.authority), "not read back yet");

        let taken_over = step(&announced, 246, true).expect("a change");
        assert_eq!(taken_over.authority, next);
        assert!(taken_over.bundle().contains(&old.authority.certificate), "replicas may still serve what it signed");

        let later = step(&taken_over, 361, true).expect("a change");
        assert!(!later.bundle().contains(&old.authority.certificate), "expired");
    }

    #[test]
    fn what_has_expired_or_is_broken_is_made_anew() {
        let material = made(&["a"]);
        let policy = policy(&["a"]);
        let anew = plan(Some(&material), None, &policy, after(400), false).expect("plans").expect("a change");
        assert_ne!(anew.authority, material.authority);
        let nothing = || Pair { certificate: "-".to_owned(), key: String::new() };
        let broken = Material { serving: nothing(), ..material.clone() };
        let mended = plan(Some(&broken), None, &policy, start(), true).expect("plans").expect("a change");
        assert_eq!(mended.authority, material.authority, "only what is broken");
        let broken = Material { authority: nothing(), ..material };
        assert!(plan(Some(&broken), None, &policy, start(), true).expect("plans").is_some());
    }

    #[test]
    fn what_is_lost_while_it_is_served_stays_trusted_until_another_has_taken_over() {
        let (served, policy) = (made(&["a"]), policy(&["a"]));
        let announced = plan(None, Some(&served), &policy, start(), false).expect("plans").expect("a change");
        assert_eq!((&announced.authority, &announced.serving), (&served.authority, &served.serving));
        let next = announced.next.clone().expect("another authority");
        assert!(announced.bundle().contains(&next.certificate));
        let taken_over =
            plan(Some(&announced), Some(&served), &policy, start(), true).expect("plans").expect("a change");
        assert_eq!(taken_over.authority, next);
        assert!(taken_over.bundle().contains(&served.authority.certificate));

        let expired = plan(None, Some(&served), &policy, after(400), false).expect("plans").expect("a change");
        assert!(!expired.bundle().contains(&served.authority.certificate));
    }
}
