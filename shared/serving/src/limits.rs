//! Limits on what a client may use.

use std::time::Duration;

/// Limits on what a client may use. The defaults suit metrics and webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's head; more is answered with 431. At least 8 KiB.
    pub header_size: usize,
    /// Header fields of a request; more is answered with 431.
    pub headers: usize,
    /// Time from the first byte of a request's head, or from the beginning of a connection, to the end of the head.
    pub header_read: Duration,
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How long a connection may stay open between two requests.
    pub idle: Duration,
    /// Bytes of a request's body; more is answered with 413.
    pub body_size: usize,
    /// Time from the first read of a request's body to its end. After it, reading fails with [`crate::BodyTimeout`].
    pub body_read: Duration,
    /// How long output may wait for a client that does not read. It applies to each piece of a long answer, not to the whole.
    pub write: Duration,
    /// Open connections. For one more, the one that has been without a request for the longest time is closed.
    pub connections: usize,
    /// How long running requests may go on after the stop.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_size: 16 * 1024,
            headers: 64,
            header_read: Duration::from_secs(10),
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            body_size: 1024 * 1024,
            body_read: Duration::from_secs(10),
            write: Duration::from_secs(30),
            connections: 1024,
            drain: Duration::from_secs(30),
        }
    }
}

/// Offers HTTP/2 beside HTTP/1.1, on TLS connections only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http2 {
    /// Concurrent requests on one connection.
    pub max_concurrent_streams: u32,
    /// Flow-control window of one stream, in bytes.
    pub stream_window: u32,
}

impl Default for Http2 {
    fn default() -> Self {
        Self { max_concurrent_streams: 100, stream_window: 256 * 1024 }
    }
}
