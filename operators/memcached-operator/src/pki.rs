//! The certificates of a Memcached with `tls.generate`. Pure: takes the stored certificates and the time, returns the ones to store.
//!
//! An authority of the Memcached's own signs the serving certificate. The authority keeps its key and its name when its certificate
//! is renewed, so clients that trust the earlier certificate trust what it signs until that certificate expires.

use certificates::Validity;
pub(crate) use certificates::{CertificateError as Error, Pair};
use jiff::{SignedDuration, Timestamp};

/// The settings of the certificates.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// The DNS names and addresses at which clients reach memcached.
    pub(crate) names: Vec<String>,
    /// The lifetime of the serving certificate.
    pub(crate) validity: SignedDuration,
    /// How long before its end it is renewed.
    pub(crate) renewal: SignedDuration,
}

/// The certificate of an authority lives for this many lifetimes of a serving certificate.
const AUTHORITY_LIVES: i32 = 10;

/// Returns the authority to store instead of `stored`; `None` if nothing has to change. Without a usable key, it is a new one.
pub(crate) fn authority(stored: Option<&Pair>, policy: &Policy, now: Timestamp) -> Result<Option<Pair>, Error> {
    let known = stored.and_then(|pair| Some((pair, pair.read()?)));
    // A serving certificate that is made today must not outlive the authority.
    if known.as_ref().is_some_and(|(_, it)| it.not_after.duration_since(now) >= policy.validity + policy.renewal) {
        return Ok(None);
    }
    // The same name at each renewal. Clients look up an authority by its name, so those of two Memcacheds differ.
    let name = format!("authority of {}", policy.names.first().map_or("", |name| name));
    let validity = Validity { from: now, lifetime: policy.validity * AUTHORITY_LIVES };
    Pair::authority(&name, known.map(|(pair, _)| pair.key.as_str()), validity).map(Some)
}

/// Returns the serving certificate to store instead of `stored`; `None` if that one is still good: signed by the authority, for
/// these names and not due for renewal.
pub(crate) fn serving(
    authority: &Pair,
    stored: Option<&Pair>,
    policy: &Policy,
    now: Timestamp,
) -> Result<Option<Pair>, Error> {
    let good = stored.and_then(Pair::read).zip(authority.read()).is_some_and(|(serving, authority)| {
        serving.is_of(&authority)
            && serving.covers(&policy.names)
            && serving.not_after.duration_since(now) > policy.renewal
            && serving.not_before <= now
    });
    if good {
        return Ok(None);
    }
    let name = policy.names.first().map_or("", |name| name);
    let validity = Validity { from: now, lifetime: policy.validity };
    authority.sign(name, &policy.names, validity).map(Some)
}

#[cfg(test)]
mod tests;
