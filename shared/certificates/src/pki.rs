//! Decides when to issue which certificate. Pure: takes the stored certificates and the time, returns the ones to store.
//!
//! A self-signed certificate authority (CA) signs the serving certificate. Both are renewed after two thirds of their lifetime. A
//! new CA signs nothing at first: it is added to the bundle that clients trust. It takes over when that bundle has been in place
//! everywhere for a whole step ([`Propagation`]). The old CA stays in the bundle until it expires. So clients trust the
//! certificates of all replicas at any time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::certificate::{Certificate, CertificateError, Pair, Validity};

/// The certificates that all replicas share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateBundle {
    /// The current CA, which signs.
    pub authority: Pair,
    /// The next CA: it is in the bundle, but does not sign yet.
    pub next: Option<Pair>,
    /// Former CAs in PEM, without the two above. Replicas may still serve certificates of them.
    pub former: Vec<String>,
    /// The certificate that servers show.
    pub serving: Pair,
}

/// The settings of the certificates.
#[derive(Debug, Clone)]
pub struct Policy {
    /// What the certificate is for, such as `webhooks`. Part of the subject.
    pub purpose: &'static str,
    /// The DNS names or addresses at which clients call the server.
    pub names: Vec<String>,
    /// The lifetime of the serving certificate; that of a CA is four times as long.
    pub lifetime: SignedDuration,
}

const AUTHORITY_LIVES: i32 = 4;

impl Policy {
    /// The duration of one step: a twentieth of the lifetime, between 200 ms and 1 min, so that all steps of a renewal fit.
    pub fn step(&self) -> Duration {
        let step = Duration::try_from(self.lifetime / 20).unwrap_or(Duration::from_mins(1));
        step.clamp(Duration::from_millis(200), Duration::from_mins(1))
    }
}

/// A bundle, and the time since which each look has found it in place.
///
/// A stored bundle is not in use at once: each client gets it a moment later, an API server from its own watch.
#[derive(Debug, Default)]
pub(crate) struct Propagation(Option<(String, Instant)>);

impl Propagation {
    /// Records that `bundle` is stored where clients read it: it was found there (`already`), or was just written.
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

impl CertificateBundle {
    /// The CAs that clients have to trust, in PEM, the current one first.
    pub fn bundle(&self) -> String {
        let present = [Some(&self.authority), self.next.as_ref()];
        let present = present.into_iter().flatten().map(|pair| pair.certificate.as_str());
        present.chain(self.former.iter().map(String::as_str)).collect()
    }
}

/// Returns the certificates to store instead of `stored`; `None` if nothing has to change. `served` are the ones that this
/// process last read or made. `trusted` means that the bundle of `stored` has been in place for a whole step, everywhere clients
/// read it ([`Propagation`]).
pub(crate) fn plan(
    stored: Option<&CertificateBundle>,
    served: Option<&CertificateBundle>,
    policy: &Policy,
    now: Timestamp,
    trusted: bool,
) -> Result<Option<CertificateBundle>, CertificateError> {
    let living = |material: Option<&CertificateBundle>| {
        let material = material?.clone();
        let authority = material.authority.read()?;
        (authority.not_after > now).then_some((material, authority))
    };
    let Some((mut planned, authority)) = living(stored) else {
        // Lost or damaged: clients have to trust what replicas serve until all of them have another certificate.
        let planned = match living(served) {
            Some((served, _)) => publish_ca(served, policy, now),
            None => fresh(policy, now).map(|fresh| with_former(fresh, stored, now)),
        };
        return planned.map(Some);
    };
    planned.former.retain(|former| Certificate::read(former).is_ok_and(|facts| facts.not_after > now));
    planned.next.take_if(|next| next.read().is_none());
    if trusted && let Some(next) = planned.next.take() {
        planned.former.insert(0, std::mem::replace(&mut planned.authority, next).certificate);
        planned.serving = serve(&planned.authority, policy, now)?;
    } else if is_due(&authority, now) {
        planned = publish_ca(planned, policy, now)?;
    }
    if !planned.serving.read().is_some_and(|serving| !is_due(&serving, now) && serving.covers(&policy.names)) {
        planned.serving = serve(&planned.authority, policy, now)?;
    }
    Ok((stored != Some(&planned)).then_some(planned))
}

/// Adds the next CA, unless there is one.
fn publish_ca(
    mut material: CertificateBundle,
    policy: &Policy,
    now: Timestamp,
) -> Result<CertificateBundle, CertificateError> {
    if material.next.is_none() {
        material.next = Some(self_sign(policy, now)?);
    }
    Ok(material)
}

fn fresh(policy: &Policy, now: Timestamp) -> Result<CertificateBundle, CertificateError> {
    let authority = self_sign(policy, now)?;
    let serving = serve(&authority, policy, now)?;
    Ok(CertificateBundle { authority, next: None, former: Vec::new(), serving })
}

/// Keeps those authorities of the stored bundle trusted that have lost their key: replicas may still serve certificates of them.
fn with_former(fresh: CertificateBundle, stored: Option<&CertificateBundle>, now: Timestamp) -> CertificateBundle {
    let authorities =
        stored.map(|it| [Some(&it.authority), it.next.as_ref()].map(|it| it.map(|pair| &pair.certificate)));
    let authorities =
        authorities.into_iter().flatten().flatten().chain(stored.map(|it| &it.former).into_iter().flatten());
    let living = |it: &&String| Certificate::read(it).is_ok_and(|facts| facts.not_after > now);
    CertificateBundle { former: authorities.filter(living).cloned().collect(), ..fresh }
}

fn self_sign(policy: &Policy, now: Timestamp) -> Result<Pair, CertificateError> {
    let validity = Validity { from: now, lifetime: policy.lifetime * AUTHORITY_LIVES };
    // CAs need different names: clients look up a CA by name, and would find one with another key.
    Pair::authority(&format!("authority of {}, {now}", policy.purpose), None, validity)
}

fn serve(authority: &Pair, policy: &Policy, now: Timestamp) -> Result<Pair, CertificateError> {
    let validity = Validity { from: now, lifetime: policy.lifetime };
    authority.sign(&format!("{} of controller-manager", policy.purpose), &policy.names, validity)
}

/// Whether the validity of this certificate has ended.
pub fn has_expired(certificate: &str, now: Timestamp) -> bool {
    Certificate::read(certificate).is_ok_and(|read| read.not_after <= now)
}

/// Whether two thirds of its lifetime are over.
fn is_due(certificate: &Certificate, now: Timestamp) -> bool {
    let life = certificate.not_after.duration_since(certificate.not_before);
    now.duration_since(certificate.not_before) * 3 >= life * 2
}

#[cfg(test)]
mod tests;
