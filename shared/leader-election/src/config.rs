//! The configuration of an election: the lease, the identity and the durations.

use std::time::Duration;

/// Jitter: a standby waits for the retry period plus up to this factor of it, as in client-go.
pub(crate) const JITTER: f64 = 1.2;

/// The configuration of an election: the lease, the identity and the durations.
///
/// All candidates for a lease should have the same durations. Different ones are still safe, because a candidate waits for the
/// longer of its own lease duration and the holder's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The namespace of the lease.
    pub namespace: String,
    /// The name of the lease.
    pub name: String,
    /// The identity of this process. Each start of a process must have its own: two with the same identity would both lead.
    pub identity: String,
    /// How long a candidate waits after the last renewal that it saw before it takes over.
    pub lease_duration: Duration,
    /// How long a leader leads after its last renewal.
    pub renew_deadline: Duration,
    /// How often the leader renews.
    pub retry_period: Duration,
}

/// Why a [`Config`] is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A second leader could begin before the first has ended.
    #[error("the lease duration ({lease:?}) must be longer than the renew deadline ({renew:?})")]
    Lease {
        /// [`Config::lease_duration`].
        lease: Duration,
        /// [`Config::renew_deadline`].
        renew: Duration,
    },
    /// A leader would have no second try.
    #[error("the renew deadline ({renew:?}) must be longer than {JITTER} times the retry period ({retry:?})")]
    Renew {
        /// [`Config::renew_deadline`].
        renew: Duration,
        /// [`Config::retry_period`].
        retry: Duration,
    },
    /// A Lease counts whole seconds, up to 68 years. A shorter retry period would flood the API server with requests.
    #[error("the lease duration must be at least 1s and the retry period at least 10ms")]
    Short,
    /// The named field is empty.
    #[error("the {0} of the leader election must not be empty")]
    Empty(&'static str),
}

impl Config {
    /// A configuration with the usual durations: 15 s, 10 s and 2 s. The identity is the host name and a random UUID.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: format!("{host}_{}", uuid::Uuid::new_v4()),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// The time-out of one request.
    pub(crate) fn call_timeout(&self) -> Duration {
        call_timeout(self.renew_deadline)
    }

    /// Checks the fields and durations.
    ///
    /// # Errors
    ///
    /// The first problem, see [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self { namespace, name, identity, lease_duration: lease, renew_deadline: renew, retry_period: retry } =
            self;
        for (value, what) in [(namespace, "namespace"), (name, "name"), (identity, "identity")] {
            if value.is_empty() {
                return Err(ConfigError::Empty(what));
            }
        }
        if lease <= renew {
            return Err(ConfigError::Lease { lease: *lease, renew: *renew });
        }
        if *renew <= retry.mul_f64(JITTER) {
            return Err(ConfigError::Renew { renew: *renew, retry: *retry });
        }
        if *lease < Duration::from_secs(1)
            || *retry < Duration::from_millis(10)
            || i32::try_from(lease.as_secs() + 1).is_err()
        {
            return Err(ConfigError::Short);
        }
        Ok(())
    }
}

/// The time-out of one request, as in client-go: a leader whose request hangs has time for another one before its deadline.
pub(crate) fn call_timeout(renew_deadline: Duration) -> Duration {
    (renew_deadline / 2).max(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(lease: u64, renew: u64, retry: u64) -> Result<(), ConfigError> {
        let [lease_duration, renew_deadline, retry_period] = [lease, renew, retry].map(Duration::from_millis);
        Config { lease_duration, renew_deadline, retry_period, ..Config::new("operators", "manager") }.validate()
    }

    #[test]
    fn inconsistent_durations_are_rejected() {
        assert_eq!(with(15_000, 10_000, 2_000), Ok(()));
        assert_eq!(with(2_000, 1_200, 300), Ok(()));
        let says = |result: Result<(), ConfigError>| result.unwrap_err().to_string();
        assert_eq!(
            says(with(10_000, 10_000, 2_000)),
            "the lease duration (10s) must be longer than the renew deadline (10s)"
        );
        assert_eq!(
            says(with(15_000, 2_400, 2_000)),
            "the renew deadline (2.4s) must be longer than 1.2 times the retry period (2s)"
        );
        assert_eq!(with(900, 500, 100), Err(ConfigError::Short));
        assert_eq!(with(15_000, 10_000, 0), Err(ConfigError::Short));
        assert_eq!(with(u64::MAX, 10_000, 2_000), Err(ConfigError::Short));
    }

    #[test]
    fn identity_is_unique_and_must_not_be_empty() {
        assert_ne!(Config::new("a", "b").identity, Config::new("a", "b").identity);
        assert_eq!(
            Config { identity: String::new(), ..Config::new("a", "b") }.validate(),
            Err(ConfigError::Empty("identity"))
        );
    }
}
