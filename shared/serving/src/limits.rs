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
    /// Bytes of memory that all requests in flight may use together: heads, bodies, and an allowance for each request and each
    /// piece of a body. A share is taken as the bytes arrive, and given back when the answer has left. If requests wait, the next
    /// one is of the address that holds the least (of IPv6, the network of 64 bits). For it, a connection is closed that has waited
    /// for its client for a while: of the address that holds the most, the one whose request takes the most.
    pub memory: usize,
    /// How long a request waits for its share of the memory. Then it is answered with 503.
    pub share_wait: Duration,
    /// How long a handler may take, with the body. Then the request is answered with 503.
    pub handle: Duration,
    /// How long an answer may wait for a client that does not read, or that leaves HTTP/2 no window. It applies to each piece of
    /// a long answer, not to the whole.
    pub write: Duration,
    /// Open connections. For one more, a connection of the address that has the most is closed (of IPv6, of the network of 64
    /// bits): the one that has waited for its client for the longest time. If none waits, one at work of an address that has more
    /// than the new client.
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
            memory: 16 * 1024 * 1024,
            share_wait: Duration::from_secs(5),
            handle: Duration::from_mins(2),
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
    /// Flow-control window of one stream, in bytes. Never more than [`Limits::body_size`] needs.
    pub stream_window: u32,
    /// Requests in a row that a client may give up before their answers. After more, the connection is closed.
    pub given_up: usize,
    /// How often the server sends a ping. It closes a connection without an answer to it within ten seconds.
    pub ping: Duration,
}

impl Default for Http2 {
    fn default() -> Self {
        Self { max_concurrent_streams: 100, stream_window: 256 * 1024, given_up: 100, ping: Duration::from_secs(20) }
    }
}
