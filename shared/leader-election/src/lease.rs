//! Reads and builds Lease objects. Pure functions.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};

/// The duration of a released lease, in addition to an empty holder; the same as in client-go.
const RELEASED_SECONDS: i32 = 1;

/// A new lease, for a create.
pub(crate) fn first(namespace: &str, name: &str, identity: &str, duration: Duration, wall: Timestamp) -> Lease {
    let metadata = ObjectMeta { namespace: Some(namespace.into()), name: Some(name.into()), ..ObjectMeta::default() };
    claimed(&Lease { metadata, spec: None }, identity, duration, 0, wall)
}

/// The lease, newly acquired by `identity`.
pub(crate) fn claimed(lease: &Lease, identity: &str, duration: Duration, transitions: i32, wall: Timestamp) -> Lease {
    let acquired =
        Lease { spec: Some(LeaseSpec { acquire_time: Some(MicroTime(wall)), ..spec(lease) }), ..lease.clone() };
    renewed(&acquired, identity, duration, transitions, wall)
}

/// The lease, renewed by `identity`. `wall` must differ from that of its last write, or the API server would change nothing.
pub(crate) fn renewed(lease: &Lease, identity: &str, duration: Duration, transitions: i32, wall: Timestamp) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(identity.into()),
        lease_duration_seconds: Some(seconds(duration)),
        lease_transitions: Some(transitions),
        renew_time: Some(MicroTime(wall)),
        ..spec(lease)
    };
    Lease { spec: Some(spec), ..lease.clone() }
}

/// The lease, released: any candidate may take it at once.
pub(crate) fn released(lease: &Lease, wall: Timestamp) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(RELEASED_SECONDS),
        acquire_time: Some(MicroTime(wall)),
        renew_time: Some(MicroTime(wall)),
        ..spec(lease)
    };
    Lease { spec: Some(spec), ..lease.clone() }
}

/// Whether its holder has released it. An empty holder alone is not enough: a user who empties the field does not know whether
/// the leader has stopped.
pub(crate) fn is_released(lease: &Lease) -> bool {
    holder(lease).is_empty() && spec(lease).lease_duration_seconds == Some(RELEASED_SECONDS)
}

pub(crate) fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// The holder's lease duration; zero if it is missing or negative.
pub(crate) fn duration(lease: &Lease) -> Duration {
    Duration::from_secs(spec(lease).lease_duration_seconds.unwrap_or_default().try_into().unwrap_or_default())
}

pub(crate) fn transitions(lease: &Lease) -> i32 {
    spec(lease).lease_transitions.unwrap_or_default().max(0)
}

pub(crate) fn uid(lease: &Lease) -> &str {
    lease.metadata.uid.as_deref().unwrap_or_default()
}

pub(crate) fn version(lease: &Lease) -> &str {
    lease.metadata.resource_version.as_deref().unwrap_or_default()
}

pub(crate) fn acquired_at(lease: &Lease) -> Option<Timestamp> {
    lease.spec.as_ref()?.acquire_time.as_ref().map(|time| time.0)
}

pub(crate) fn renewed_at(lease: &Lease) -> Option<Timestamp> {
    lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0)
}

/// Rounds to microseconds, as the API server stores times.
pub(crate) fn in_micros(wall: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(wall.as_microsecond()).unwrap_or(wall)
}

/// Whether no client wrote in between. Any write counts, even of an annotation, because a manual edit could make two renewals
/// look alike.
pub(crate) fn same(one: &Lease, other: &Lease) -> bool {
    uid(one) == uid(other) && version(one) == version(other)
}

fn spec(lease: &Lease) -> LeaseSpec {
    lease.spec.clone().unwrap_or_default()
}

fn seconds(duration: Duration) -> i32 {
    let whole = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(whole).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_duration_is_rounded_up_to_seconds() {
        for (milliseconds, expected) in [(0, 0), (1, 1), (1_999, 2), (2_000, 2), (u64::MAX, i32::MAX)] {
            assert_eq!(seconds(Duration::from_millis(milliseconds)), expected, "{milliseconds} ms");
        }
    }
}
