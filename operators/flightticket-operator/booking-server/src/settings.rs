//! The command line. Every flag has an environment variable, too.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};
use serde_json::Value;

use crate::{
    booking::LARGEST_ROUTE,
    server::{Options, Route},
    tokens::Access,
    wire,
};

/// Sells seats over HTTP: the reference booking provider for `FlightTicket`.
#[derive(Debug, Parser)]
#[command(name = "booking-server", version, max_term_width = 110)]
#[command(
    after_help = "Try it:  booking-server --insecure --listen 127.0.0.1:8080 --admin-listen 127.0.0.1:8081 --db bookings.db\n         \
then look at http://127.0.0.1:8081/ and http://127.0.0.1:8080/booking-api.yaml"
)]
pub(crate) struct Settings {
    /// Address of the API; a port alone, such as :8080, means all IPv4 and IPv6 addresses
    #[arg(long, env = "BOOKING_LISTEN", value_name = "ADDRESS", default_value = ":8080",
          value_parser = serving::parse_address)]
    listen: SocketAddr,
    /// Address of probes, metrics and the status page
    #[arg(long, env = "BOOKING_ADMIN_LISTEN", value_name = "ADDRESS", default_value = ":8081",
          value_parser = serving::parse_address)]
    admin_listen: SocketAddr,
    /// The database file; created if it does not exist
    #[arg(long, env = "BOOKING_DB", value_name = "FILE", default_value = "/data/bookings.db")]
    db: PathBuf,
    /// File with the tokens that clients may use, one per line; changes take effect within a second
    #[arg(long, env = "BOOKING_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Accept all requests without a token
    #[arg(long, env = "BOOKING_INSECURE")]
    insecure: bool,
    /// Certificate chain of the API, PEM; reloaded when it changes
    #[arg(long, env = "BOOKING_TLS_CERT_FILE", value_name = "FILE")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, env = "BOOKING_TLS_PRIVATE_KEY_FILE", value_name = "FILE")]
    tls_private_key_file: Option<PathBuf>,
    /// Routes and their seats: `[{"from":"London","to":"Paris","seats":180}]`
    #[arg(long, env = "BOOKING_ROUTES_FILE", value_name = "FILE")]
    routes_file: Option<PathBuf>,
    /// What to do with routes that are not listed
    #[arg(long, env = "BOOKING_UNKNOWN_ROUTES", value_enum, default_value = "allow")]
    unknown_routes: UnknownRoutes,
    /// Seats of a route that is not listed
    #[arg(long, env = "BOOKING_DEFAULT_SEATS", value_name = "SEATS", default_value = "100",
          value_parser = clap::value_parser!(u32).range(0..=i64::from(LARGEST_ROUTE)))]
    default_seats: u32,
    /// How long a booking stays pending, such as 500ms, 2s or 5m; 0s confirms at once
    #[arg(long, env = "BOOKING_CONFIRM_DELAY", value_name = "TIME", default_value = "0s", value_parser = time)]
    confirm_delay: Duration,
    /// Let clients inject faults and act as the airline; for tests only
    #[arg(long, env = "BOOKING_FAULT_INJECTION")]
    fault_injection: bool,
    /// Format of the log
    #[arg(long, env = "BOOKING_LOG_FORMAT", value_enum, default_value = "json")]
    pub(crate) log_format: LogFormat,
    /// Filter of the log, such as info, debug, or `warn,booking_server=debug`
    #[arg(long, env = "BOOKING_LOG_LEVEL", value_name = "FILTER", default_value = "info")]
    pub(crate) log_level: String,
}

/// What to do with routes that are not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum UnknownRoutes {
    /// Sell them with the default number of seats
    Allow,
    /// Refuse to book them
    Reject,
}

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One JSON object per line
    Json,
    /// Text for a terminal
    Text,
}

impl Settings {
    /// Converts the flags to options. Fails if flags contradict each other, or if the routes file cannot be used.
    pub(crate) fn options(&self) -> Result<Options, String> {
        let access = match (&self.token_file, self.insecure) {
            (Some(file), false) => Access::Tokens(file.clone()),
            (None, true) => Access::Public,
            (None, false) => {
                return Err("--token-file is not set: name one, or allow all clients with --insecure".to_owned());
            }
            (Some(_), true) => {
                return Err("--token-file and --insecure contradict each other: leave one out".to_owned());
            }
        };
        let tls = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            _ => return Err("--tls-cert-file and --tls-private-key-file need each other".to_owned()),
        };
        let routes = match &self.routes_file {
            None => Vec::new(),
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .map_err(|error| format!("--routes-file {}: {error}", file.display()))?;
                routes(&text).map_err(|why| format!("--routes-file {}: {why}", file.display()))?
            }
        };
        Ok(Options {
            listen: self.listen,
            admin_listen: self.admin_listen,
            database: self.db.clone(),
            access,
            routes,
            default_seats: (self.unknown_routes == UnknownRoutes::Allow).then_some(self.default_seats),
            confirm_delay: self.confirm_delay,
            fault_injection: self.fault_injection,
            tls,
        })
    }
}

fn routes(text: &str) -> Result<Vec<Route>, String> {
    let listed: Vec<Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let route = |(n, value)| match wire::seats(value) {
        Ok(wire::Seats { date: Some(_), .. }) => Err(format!("route {n}: a route is for every day")),
        Ok(wire::Seats { from, to, total, date: None }) => Ok(Route { from, to, seats: total }),
        Err(problem) => Err(format!("route {n}: {}", problem.detail)),
    };
    (1..).zip(listed).map(route).collect()
}

fn time(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration = text.parse().map_err(|_| "not a time such as 500ms, 2s or 5m".to_owned())?;
    Duration::try_from(span).map_err(|_| "a time cannot be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Result<Options, String> {
        Settings::try_parse_from([&["booking-server"], arguments].concat()).unwrap().options()
    }

    #[test]
    fn flag_definitions_are_consistent() {
        use clap::CommandFactory as _;
        Settings::command().debug_assert();
    }

    #[test]
    fn token_file_or_insecure_is_required() {
        assert!(options(&[]).unwrap_err().starts_with("--token-file is not set"));
        assert!(options(&["--insecure", "--token-file", "a"]).unwrap_err().contains("contradict"));
        assert_eq!(options(&["--insecure"]).unwrap().access, Access::Public);
        assert_eq!(options(&["--token-file", "a"]).unwrap().access, Access::Tokens("a".into()));
    }

    #[test]
    fn unknown_routes_have_seats_or_are_refused() {
        assert_eq!(options(&["--insecure"]).unwrap().default_seats, Some(100));
        assert_eq!(options(&["--insecure", "--unknown-routes", "reject"]).unwrap().default_seats, None);
    }

    #[test]
    fn invalid_routes_are_rejected() {
        let route = Route { from: "London".into(), to: "Paris".into(), seats: 180 };
        assert_eq!(routes(r#"[{"from":"London","to":"Paris","seats":180}]"#), Ok(vec![route]));
        for (text, why) in [
            ("{}", "invalid type"),
            (r#"[{"from":"London","to":"Paris"}]"#, "route 1: seats is missing"),
            (
                r#"[{"from":"London","to":"Paris","seats":10001}]"#,
                "route 1: seats must be a whole number from 0 to 10000",
            ),
            (
                r#"[{"from":"London","to":"Paris","seats":1,"departureDate":"2030-01-01"}]"#,
                "route 1: a route is for every day",
            ),
        ] {
            assert!(routes(text).unwrap_err().starts_with(why), "{text}: {:?}", routes(text));
        }
    }

    #[test]
    fn duration_strings_are_parsed() {
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("0s"), Ok(Duration::ZERO));
        assert_eq!(time("5m"), Ok(Duration::from_mins(5)));
        assert!(time("-1s").is_err() && time("soon").is_err());
    }
}
