//! The operator's own flags.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use http::Uri;
use manager::duration;

/// Where tickets are booked, and how.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "FlightTicket")]
#[group(id = "flightticket")] // of all operators in one binary
pub struct Config {
    /// Address of the booking provider, such as `https://booking.example.com`. Without it nothing is booked.
    #[arg(long = "booking-url", env = "BOOKING_URL", value_name = "URL", value_parser = address)]
    pub url: Option<Uri>,

    /// File with the token for the provider. A new one is used at once.
    #[arg(long = "booking-token-file", env = "BOOKING_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Secret in the operator's own namespace with the token for the provider in its key `token`, read every minute; made
    /// with a random one when there is none. Needs the right to `get` it, and to `create` Secrets.
    #[arg(
        long = "booking-token-secret",
        env = "BOOKING_TOKEN_SECRET",
        value_name = "NAME",
        conflicts_with = "token_file"
    )]
    pub token_secret: Option<String>,

    /// File with the authorities that the provider's certificate may come from; those of the system when not given.
    #[arg(long = "booking-ca-file", env = "BOOKING_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// How long each may take: connecting to the provider, its answer, and the end of that.
    #[arg(long = "booking-timeout", env = "BOOKING_TIMEOUT", default_value = "10s", value_parser = duration)]
    pub timeout: Duration,

    /// Every booking is compared with the provider's after this time, ± 10 %.
    #[arg(long = "booking-poll-interval", env = "BOOKING_POLL_INTERVAL", default_value = "5m", value_parser = duration)]
    pub poll_interval: Duration,

    /// How many requests may wait for the provider at once; there are at most 20 in a second.
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
    fn an_address_is_a_plain_one_of_the_web() {
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
