//! What the server reports about itself, for metrics.

use std::time::Duration;

/// Receives reports of the server: its requests, and its certificate ([`serving::Observer`]).
pub trait Observer: serving::Observer {
    /// The server answers requests at `path`. Called once for each path, at the start.
    fn serves(&self, path: &str);

    /// A request has begun.
    fn started(&self, path: &str);

    /// A request has ended with this HTTP status code.
    fn answered(&self, path: &str, code: u16, took: Duration);

    /// A function of an operator has panicked. The server answers the request with an error.
    fn panicked(&self, path: &str);
}
