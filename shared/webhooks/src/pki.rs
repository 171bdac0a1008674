//! Decides when to issue which certificate. Pure: takes the stored certificates and the time, returns the ones to store.
//!
//! A self-signed certificate authority (CA) signs the serving certificate. Both are renewed after two thirds of their lifetime. A
//! new CA signs nothing at first: it is added to the bundle that the API server trusts. It takes over when that bundle has been
//! in place everywhere for a whole step ([`Propagation`]). The old CA stays in the bundle until it expires. So the API server
//! trusts the certificates of all replicas at any time.

use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tokio::time::Instant;
use x509_parser::{extensions::GeneralName, pem::Pem};

/// A certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The certificates that all replicas share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateBundle {
    /// The current CA, which signs.
    pub(crate) authority: Pair,
    /// The next CA: it is in the bundle, but does not sign yet.
    pub(crate) next: Option<Pair>,
    /// Former CAs in PEM, without the two above. Replicas may still serve certificates of them.
    pub(crate) former: Vec<String>,
    pub(crate) serving: Pair,
}

/// The settings of the certificates.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// The DNS names or addresses at which the API server calls the webhooks.
    pub(crate) names: Vec<String>,
    /// The lifetime of the serving certificate; that of a CA is four times as long.
    pub(crate) lifetime: SignedDuration,
}

const AUTHORITY_LIVES: i32 = 4;

impl Policy {
    /// The duration of one step: a twentieth of the lifetime, between 200 ms and 1 min, so that all steps of a renewal fit.
    pub(crate) fn step(&self) -> Duration {
        let step = Duration::try_from(self.lifetime / 20).unwrap_or(Duration::from_mins(1));
        step.clamp(Duration::from_millis(200), Duration::from_mins(1))
    }
}

/// A bundle, and the time since which each look has found it in place.
///
/// A stored bundle is not in use at once: each API server gets it from its own watch, a moment later.
#[derive(Debug, Default)]
pub(crate) struct Propagation(Option<(String, Instant)>);

impl Propagation {
    /// Records that `bundle` is stored where the API server reads it: it was found there (`already`), or was just written.
    /// Returns whether it has been in place for a whole step.
    pub(crate) fn look(&mut self, bundle: &str, already: bool, policy: &Policy, now: Instant) -> bool {
        match &self.0 {
            Some((known, since)) if already && known == bundle => {
                now.saturating_duration_since(*since) >= policy.step()
            }
            _ => {
                self.0 = Some((bundle.to_owned(), now));
                false
            }
        }
    }
}

/// A certificate could not be made or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot make a certificate for {names}: {source}")]
    Make { names: String, source: rcgen::Error },
    #[error("cannot read a stored certificate: {0}")]
    Read(String),
}

impl CertificateBundle {
    /// The `caBundle` for the API server: all CAs in PEM, the current one first.
    pub(crate) fn bundle(&self) -> String {
        let present = [Some(&self.authority), self.next.as_ref()];
        let present = present.into_iter().flatten().map(|pair| pair.certificate.as_str());
        present.chain(self.former.iter().map(String::as_str)).collect()
    }
}

/// Returns the certificates to store instead of `stored`; `None` if nothing has to change. `served` are the ones that this
/// process last read or made. `trusted` means that the bundle of `stored` has been in place for a whole step, everywhere the API
/// server reads it ([`Propagation`]).
pub(crate) fn plan(
    stored: Option<&CertificateBundle>,
    served: Option<&CertificateBundle>,
    policy: &Policy,
    now: Timestamp,
    trusted: bool,
) -> Result<Option<CertificateBundle>, Error> {
    let living = |material: Option<&CertificateBundle>| {
        let material = material?.clone();
        let authority = ParsedCertificate::of(&material.authority.certificate).ok()?;
        (authority.not_after > now).then_some((material, authority))
    };
    let Some((mut planned, authority)) = living(stored) else {
        // Lost or damaged: the API server has to trust what replicas serve until all of them have another certificate.
        let planned = match living(served) {
            Some((served, _)) => publish_ca(served, policy, now),
            None => fresh(policy, now),
        };
        return planned.map(Some);
    };
    planned.former.retain(|former| ParsedCertificate::of(former).is_ok_and(|facts| facts.not_after > now));
    if trusted && let Some(next) = planned.next.take() {
        planned.former.insert(0, std::mem::replace(&mut planned.authority, next).certificate);
        planned.serving = serve(&planned.authority, policy, now)?;
    } else if authority.is_due(now) {
        planned = publish_ca(planned, policy, now)?;
    }
    let serving = ParsedCertificate::of(&planned.serving.certificate);
    if !serving.is_ok_and(|serving| !serving.is_due(now) && serving.covers(&policy.names)) {
        planned.serving = serve(&planned.authority, policy, now)?;
    }
    Ok((stored != Some(&planned)).then_some(planned))
}

/// Adds the next CA, unless there is one.
fn publish_ca(mut material: CertificateBundle, policy: &Policy, now: Timestamp) -> Result<CertificateBundle, Error> {
    if material.next.is_none() {
        material.next = Some(self_sign(policy, now)?);
    }
    Ok(material)
}

fn fresh(policy: &Policy, now: Timestamp) -> Result<CertificateBundle, Error> {
    let authority = self_sign(policy, now)?;
    let serving = serve(&authority, policy, now)?;
    Ok(CertificateBundle { authority, next: None, former: Vec::new(), serving })
}

fn self_sign(policy: &Policy, now: Timestamp) -> Result<Pair, Error> {
    let made = || {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // CAs need different names: clients look up a CA by name, and would find one with another key.
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

/// Sets the validity. It begins a little in the past, for API servers whose clock is late.
fn live(params: &mut CertificateParams, now: Timestamp, lifetime: SignedDuration) {
    let late = SignedDuration::from_mins(5).min(lifetime / 10);
    params.not_before = SystemTime::from(now.saturating_sub(late).unwrap_or(now)).into();
    params.not_after = SystemTime::from(now.saturating_add(lifetime).unwrap_or(now)).into();
}

/// Whether the validity of this certificate has ended.
pub(crate) fn has_expired(certificate: &str, now: Timestamp) -> bool {
    ParsedCertificate::of(certificate).is_ok_and(|facts| facts.not_after <= now)
}

/// The validity and the names of a certificate.
struct ParsedCertificate {
    not_before: Timestamp,
    not_after: Timestamp,
    names: Vec<String>,
}

impl ParsedCertificate {
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

    /// Whether two thirds of its lifetime are over.
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
mod tests;
