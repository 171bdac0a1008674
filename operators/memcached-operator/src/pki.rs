//! The certificates of a Memcached with `tls.generate`. Pure: takes the stored certificates and the time, returns the ones to store.
//!
//! An authority of the Memcached's own signs the serving certificate. The authority keeps its key and its name when its certificate
//! is renewed, so clients that trust the earlier certificate trust what it signs until that certificate expires.
//!
//! An authority with another key, or with another name, replaces one that is lost or not usable. Clients first get its certificate,
//! beside the former one. Only after that does it sign, because during the rolling update nodes with a former certificate and nodes
//! with a new one serve at the same time. The age of the authority does not tell since when clients have its certificate: a user may
//! have restored it from a backup, and the write that gives it to clients may have failed for a while.

use certificates::{Certificate, Validity};
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
/// An authority with another key signs after this time, in which the kubelet gives its certificate to clients that mount it.
const ANNOUNCED: SignedDuration = SignedDuration::from_mins(5);
/// How many former authorities clients trust at most. Each of them was lost before it expired.
const MOST_FORMER: usize = 4;
/// The end of a certificate in PEM.
const END: &str = "-----END CERTIFICATE-----\n";

/// Returns the authority to store instead of `stored`; `None` if nothing has to change. Without a usable key, it is a new one. Only the
/// name of an authority stays: that of another certificate, such as a serving one, may be the name in what the authority signs.
pub(crate) fn authority(stored: Option<&Pair>, policy: &Policy, now: Timestamp) -> Result<Option<Pair>, Error> {
    let known = stored.and_then(|pair| Some((pair, pair.read()?)));
    // A serving certificate that is made today must not outlive the authority.
    let lasts = |it: &Certificate| it.not_after.duration_since(now) >= policy.validity + policy.renewal;
    if known.as_ref().is_some_and(|(_, it)| it.is_authority() && lasts(it)) {
        return Ok(None);
    }
    // Clients look up an authority by its name: those of two Memcacheds and those of two keys differ, and it stays at each renewal.
    let new = || format!("authority {} of {}", now.as_second(), policy.names.first().map_or("", |name| name));
    let earlier = known.as_ref().map(|(_, it)| it).filter(|it| it.is_authority());
    let name = earlier.and_then(|it| it.common_name.clone()).unwrap_or_else(new);
    let validity = Validity { from: now, lifetime: policy.validity * AUTHORITY_LIVES };
    Pair::authority(&name, known.map(|(pair, _)| pair.key.as_str()), validity).map(Some)
}

/// Returns the certificates in PEM that clients have to trust: that of the authority, and those of former authorities in `stored`,
/// the text so far, until they expire. Nodes may still serve certificates of these.
pub(crate) fn trusted(authority: &Pair, stored: Option<&str>, now: Timestamp) -> String {
    let present = authority.read();
    let is_former = |text: &&str| {
        let is_other = |it: &Certificate| present.as_ref().is_some_and(|present| !it.has_key_and_name_of(present));
        Certificate::read(text).is_ok_and(|it| it.not_after > now && is_other(&it))
    };
    let former = stored.unwrap_or_default().split_inclusive(END).filter(is_former).take(MOST_FORMER);
    former.fold(authority.certificate.clone(), |all, text| format!("{}\n{}\n", all.trim_end(), text.trim()))
}

/// Returns since when clients can read the certificate of the authority: from now on, if none in `stored`, the text that they read so
/// far, has its key and name. Otherwise returns `noted`, the earlier result.
///
/// A note that is missing or in the future does not tell. Then the time begins now if `serving`, the stored certificate of the nodes,
/// is still one of a former authority. Otherwise the result is `None`: the authority has signed already.
pub(crate) fn trusted_since(
    authority: &Pair,
    (stored, serving): (Option<&str>, Option<&Pair>),
    noted: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let read = |text: &str| Certificate::read(text).ok();
    let all: Vec<Certificate> = stored.unwrap_or_default().split_inclusive(END).filter_map(read).collect();
    let present = authority.read().filter(|present| all.iter().any(|it| it.has_key_and_name_of(present)));
    let Some(present) = present else { return Some(now) };
    let is_of_former = |serving: Certificate| !serving.is_of(&present) && all.iter().any(|it| serving.is_of(it));
    let waits = serving.and_then(Pair::read).is_some_and(is_of_former);
    noted.filter(|noted| *noted <= now).or(waits.then_some(now))
}

/// Returns the serving certificate to store instead of `stored`; `None` if that one is still good: signed by the authority, for
/// these names and not due for renewal. `trusted` are the certificates that clients trust from now on, and `since` is the result of
/// [`trusted_since`]. While that is recent, a certificate that a trusted former authority has signed is good, too.
pub(crate) fn serving(
    authority: &Pair,
    (trusted, since): (&str, Option<Timestamp>),
    stored: Option<&Pair>,
    policy: &Policy,
    now: Timestamp,
) -> Result<Option<Pair>, Error> {
    let good = stored.and_then(Pair::read).zip(authority.read()).is_some_and(|(serving, authority)| {
        let is_new = since.is_some_and(|since| now.duration_since(since) < ANNOUNCED);
        let mut former = trusted.split_inclusive(END).filter_map(|text| Certificate::read(text).ok());
        (serving.is_of(&authority) || is_new && former.any(|it| serving.is_of(&it)))
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
