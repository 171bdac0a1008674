//! The operator's own flags.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::{ArgAction, Args};
use http::Uri;
use manager::duration;

/// The provider, and how to reach it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "FlightTicket")]
#[group(id = "flightticket")] // must be unique among the operators of one binary
pub struct Config {
    /// Address of the booking provider, such as `https://booking.example.com`. Without it, the operator books nothing. Plain
    /// `http` is only for addresses within the cluster: loopback addresses, names without a dot, and names that end with `.svc`
    /// or `.cluster.local`.
    #[arg(long = "booking-url", env = "BOOKING_URL", value_name = "URL", value_parser = address)]
    pub url: Option<Uri>,

    /// Allow plain `http` for any address of the provider. Any machine on the way can then read the token, and book and cancel
    /// with it.
    #[arg(
        long = "booking-allow-plain-http",
        env = "BOOKING_ALLOW_PLAIN_HTTP",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub allow_plain_http: bool,

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

    /// Name of a Secret in the operator's own namespace with a certificate for the provider's host name, in its keys `tls.crt`
    /// and `tls.key`. The operator issues and renews the certificate, and trusts only its authority. It needs the permissions to
    /// `get` and `update` this Secret and to `create` Secrets, and overwrites what else is in it.
    #[arg(
        long = "booking-certificate-secret",
        env = "BOOKING_CERTIFICATE_SECRET",
        value_name = "NAME",
        conflicts_with = "ca_file"
    )]
    pub certificate_secret: Option<String>,

    /// Time limit for each phase of a request to the provider: the connection, the head of the answer, and its body.
    #[arg(long = "booking-timeout", env = "BOOKING_TIMEOUT", default_value = "10s", value_parser = duration)]
    pub timeout: Duration,

    /// Interval at which the operator compares each booking with the provider's data, ± 10 %.
    #[arg(long = "booking-poll-interval", env = "BOOKING_POLL_INTERVAL", default_value = "5m", value_parser = duration)]
    pub poll_interval: Duration,

    /// How many tickets may use the provider at once. Tickets of one namespace get at most half of it. The operator sends at most
    /// 20 requests per second.
    #[arg(
        long = "booking-concurrency",
        env = "BOOKING_CONCURRENCY",
        default_value = "16",
        value_parser = clap::value_parser!(u16).range(1..=100)
    )]
    pub concurrency: u16,
}

impl Config {
    /// Returns the address of the provider.
    ///
    /// # Errors
    ///
    /// If there is none, or if the token would leave the cluster without encryption. The message is for users.
    pub fn provider(&self) -> Result<&Uri, String> {
        let url = self.url.as_ref().ok_or("the operator has no booking provider; set --booking-url")?;
        if url.scheme_str() == Some("http") && !self.allow_plain_http && !is_local(url.host().unwrap_or_default()) {
            let why = "plain http outside of the cluster; use https, or set --booking-allow-plain-http";
            return Err(format!("the operator refuses --booking-url {url}: {why}"));
        }
        Ok(url)
    }
}

/// Whether the host is within the cluster or on this machine.
fn is_local(host: &str) -> bool {
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return address.is_loopback();
    }
    let name = host.trim_end_matches('.').to_lowercase();
    !name.contains('.') || [".svc", ".cluster.local", ".localhost"].iter().any(|end| name.ends_with(end))
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
    use clap::{Command, FromArgMatches};

    use super::*;

    fn provider(flags: &[&str]) -> Result<String, String> {
        let command = Config::augment_args(Command::new("run").no_binary_name(true));
        let config = Config::from_arg_matches(&command.get_matches_from(flags)).expect("a config");
        config.provider().map(Uri::to_string)
    }

    #[test]
    fn token_leaves_the_cluster_only_encrypted() {
        for local in [
            "http://booking-server",
            "http://booking-server.operators.svc",
            "http://booking-server.operators.svc:8080",
            "http://Booking-Server.operators.svc.cluster.local.",
            "http://127.0.0.1:8080",
            "http://[::1]:80",
            "http://localhost:8080",
            "https://booking.example.com",
            "https://192.0.2.1",
        ] {
            assert!(provider(&["--booking-url", local]).is_ok(), "{local}");
        }
        for outside in [
            "http://booking.example.com",
            "http://booking-server.operators",
            "http://192.0.2.1",
            "http://10.0.0.1",
            "http://[2001:db8::1]",
            "http://svc.example.com",
            "http://evilcluster.local",
        ] {
            let refused = provider(&["--booking-url", outside]).expect_err(outside);
            assert!(refused.contains("use https, or set --booking-allow-plain-http"), "{refused}");
            assert!(provider(&["--booking-url", outside, "--booking-allow-plain-http=true"]).is_ok(), "{outside}");
            assert!(provider(&["--booking-url", outside, "--booking-allow-plain-http"]).is_ok(), "{outside}");
        }
        assert!(provider(&[]).expect_err("no provider").contains("set --booking-url"));
    }

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
