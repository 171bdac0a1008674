//! The operator's own flags.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use http::Uri;
use manager::duration;

/// The provider, and how to reach it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "FlightTicket")]
#[group(id = "flightticket")] // must be unique among the operators of one binary
pub struct Config {
    /// Address of the booking provider, such as `https://booking.example.com`. Without it, the operator books nothing.
    #[arg(long = "booking-url", env = "BOOKING_URL", value_name = "URL", value_parser = address)]
    pub url: Option<Uri>,

    /// File with the token for the provider. The operator reads it for each request.
    #[arg(long = "booking-token-file", env = "BOOKING_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Name of a Secret in the operator's own namespace with the token for the provider in its key `token`. The operator reads it
    /// every minute, and creates it with a random token if it does not exist. It needs the permissions to `get` this Secret and
    /// to `create` Secrets.
    #[arg(
        long = "booking-token-secret",
        env = "BOOKING_TOKEN_SECRET",
        value_name = "NAME",
        conflicts_with = "token_file"
    )]
    pub token_secret: Option<String>,

    /// File with the certificate authorities to trust for the provider. Without it, those of the system.
    #[arg(long = "booking-ca-file", env = "BOOKING_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// Time limit for each phase of a request to the provider: the connection, the head of the answer, and its body.
    #[arg(long = "booking-timeout", env = "BOOKING_TIMEOUT", default_value = "10s", value_parser = duration)]
    pub timeout: Duration,

    /// Interval at which the operator compares each booking with the provider's data, ± 10 %.
    #[arg(long = "booking-poll-interval", env = "BOOKING_POLL_INTERVAL", default_value = "5m", value_parser = duration)]
    pub poll_interval: Duration,

    /// How many requests may wait for the provider at once. The operator sends at most 20 requests per second.
    #[arg(
        long = "booking-concurrency",
        env = "BOOKING_CONCURRENCY",
        default_value = "8",
        value_parser = clap::value_parser!(u16).range(1..=100)
    )]
    pub concurrency: u16,
}

fn address(text: &str) -> Result<Uri, String> {
    let expected =
        || "expected an address such as https://booking.example.com, without user, query or fragment".to_owned();
    let uri: Uri = text.parse().map_err(|_| expected())?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_host = uri.authority().is_some_and(|host| !host.as_str().contains('@') && !host.host().is_empty());
    if is_web && has_host && uri.query().is_none() && !text.contains('#') { Ok(uri) } else { Err(expected()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booking_url_must_be_plain_http_or_https() {
        for good in
            ["http://booking-server", "https://booking.example.com/api/", "http://127.0.0.1:8080", "http://[::1]:80"]
        {
            assert!(address(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "booking-server",
            "ftp://a",
            "https://",
            "https://user:secret@a",
            "https://a/?b",
            "https://a/#b",
            "/v1",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
