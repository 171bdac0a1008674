//! The interface for events of the server, such as for metrics.

use std::time::SystemTime;

use crate::CertificateError;

/// Receives events of the server, such as for metrics. Must not block. Every method is optional.
pub trait Observer: Send + Sync + 'static {
    /// A certificate is now in use, until this time. Called at the start and after each change.
    fn certificate(&self, not_after: SystemTime) {
        let _ = not_after;
    }

    /// Files had changed, or a caller replaced a pair or a bundle. After a failure, the old ones stay in use. The same failure of
    /// files is reported once, not at each read.
    fn reloaded(&self, outcome: Result<(), &CertificateError>) {
        let _ = outcome;
    }

    /// The number of open connections has changed.
    fn connections(&self, open: usize) {
        let _ = open;
    }

    /// The server ended a connection, or did not admit it.
    fn dropped(&self, why: Dropped) {
        let _ = why;
    }
}

/// Why the server ended a connection, or did not admit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// The TLS handshake failed or took too long.
    Handshake,
    /// No complete head of a request arrived in time.
    Waited,
    /// The client did not read its answer, or left it no HTTP/2 window.
    Unread,
    /// At the limit of connections: this one had waited for its client for the longest time, or all were at work.
    Full,
    /// The requests in flight had used up the memory: one of this connection took the most and waited for its client.
    Memory,
    /// The client gave up too many requests in a row.
    GaveUp,
    /// The connection was still open at the deadline of the drain.
    Drain,
}

impl Dropped {
    /// All reasons, so that metrics can begin at zero.
    pub const ALL: [Self; 7] =
        [Self::Handshake, Self::Waited, Self::Unread, Self::Full, Self::Memory, Self::GaveUp, Self::Drain];

    /// The reason as the label of a metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Waited => "waited",
            Self::Unread => "unread",
            Self::Full => "full",
            Self::Memory => "memory",
            Self::GaveUp => "gave_up",
            Self::Drain => "drain",
        }
    }
}

/// Ignores all events.
pub(crate) struct NoObserver;

impl Observer for NoObserver {}
