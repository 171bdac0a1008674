//! The durations of the protocol, and the number of slots.

use std::num::NonZeroU16;
use std::time::Duration;

/// The durations of the protocol, and the number of slots.
///
/// All replicas must have the same durations. The speeds of two machines' clocks may differ by at most lease duration / renew
/// deadline.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Config {
    /// The number of slots of a map that this replica creates. An existing map keeps its own number.
    pub slots: NonZeroU16,
    /// How long another replica's lease must stay unchanged, on this replica's clock, before this replica fences it.
    pub lease_duration: Duration,
    /// How long this replica may work after it sent the last renewal that it has seen in the view.
    pub renew_deadline: Duration,
    /// How often this replica renews its lease.
    pub retry_period: Duration,
}

/// Why a [`Config`] is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Another replica could take a slot before its holder has stopped.
    #[error("the lease duration ({lease:?}) must be longer than the renew deadline ({renew:?})")]
    Lease {
        /// [`Config::lease_duration`].
        lease: Duration,
        /// [`Config::renew_deadline`].
        renew: Duration,
    },
    /// A replica would stop before its first renewal.
    #[error("the renew deadline ({renew:?}) must be longer than the retry period ({retry:?})")]
    Renew {
        /// [`Config::renew_deadline`].
        renew: Duration,
        /// [`Config::retry_period`].
        retry: Duration,
    },
}

impl Config {
    /// A configuration with the durations of the leader election: 15 s, 10 s and 2 s.
    pub fn new(slots: NonZeroU16) -> Self {
        Self {
            slots,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// Checks the durations.
    ///
    /// # Errors
    ///
    /// The first problem, see [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self { slots: _, lease_duration: lease, renew_deadline: renew, retry_period: retry } = self;
        if lease <= renew {
            return Err(ConfigError::Lease { lease: *lease, renew: *renew });
        }
        if renew <= retry {
            return Err(ConfigError::Renew { renew: *renew, retry: *retry });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inconsistent_durations_are_rejected() {
        let with = |lease: u64, renew: u64, retry: u64| {
            let [lease_duration, renew_deadline, retry_period] = [lease, renew, retry].map(Duration::from_secs);
            let config = Config { lease_duration, renew_deadline, retry_period, ..Config::new(NonZeroU16::MIN) };
            config.validate().map_err(|error| error.to_string())
        };
        assert_eq!(Config::new(NonZeroU16::MIN).validate(), Ok(()));
        assert_eq!(with(3, 2, 1), Ok(()));
        assert_eq!(with(2, 2, 1).unwrap_err(), "the lease duration (2s) must be longer than the renew deadline (2s)");
        assert_eq!(with(3, 2, 2).unwrap_err(), "the renew deadline (2s) must be longer than the retry period (2s)");
    }
}
