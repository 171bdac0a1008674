//! What the server reports about itself, for metrics.

use std::time::Duration;

/// One conversion of an object to another version. Anyone who reaches the port can send any version, so the names are limited to
/// those that the webhook declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conversion<'a> {
    /// The kind.
    pub kind: &'a str,
    /// The version of the object, without the group; `unknown` if the webhook declares no such version.
    pub from: &'a str,
    /// The requested version, as in `from`.
    pub to: &'a str,
    /// Whether the object could be converted.
    pub succeeded: bool,
}

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

    /// The server converts objects like this. Called once for each kind, pair of versions and result, at the start.
    fn converts(&self, conversion: &Conversion<'_>);

    /// An object was converted, or could not be.
    fn converted(&self, conversion: &Conversion<'_>);
}
