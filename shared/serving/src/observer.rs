//! Who is told what happens, such as metrics.

use std::time::SystemTime;

use crate::CertificateError;

/// Is told what happens, such as metrics. Must not block; every method may be left out.
pub trait Observer: Send + Sync + 'static {
    /// A certificate is in use, at the start and after each change, until the time given.
    fn certificate(&self, not_after: SystemTime) {
        let _ = not_after;
    }

    /// Files had changed, or somebody replaced a pair or a bundle. After a failure the old ones stay in use; the same failure
    /// is told once, not at each look at the files.
    fn reloaded(&self, outcome: Result<(), &CertificateError>) {
        let _ = outcome;
    }

    /// So many connections are open now.
    fn connections(&self, open: usize) {
        let _ = open;
    }

    /// We ended a connection, or did not begin it.
    fn dropped(&self, why: Dropped) {
        let _ = why;
    }
}

/// Why we ended a connection, or did not begin it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// The TLS handshake failed or took too long.
    Handshake,
    /// No request came in time: nothing, or not all of its head.
    Waited,
    /// The client did not read its answer.
    Unread,
    /// Too many connections: this one had been without a request for the longest time, or all had one.
    Full,
    /// It had not ended when the drain had to.
    Drain,
}

impl Dropped {
    /// All reasons, for metrics that begin at zero.
    pub const ALL: [Self; 5] = [Self::Handshake, Self::Waited, Self::Unread, Self::Full, Self::Drain];

    /// As the label of a metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Waited => "waited",
            Self::Unread => "unread",
            Self::Full => "full",
            Self::Drain => "drain",
        }
    }
}

/// Tells nobody.
pub(crate) struct Nobody;

impl Observer for Nobody {}
