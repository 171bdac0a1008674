//! The flags of `controller-manager run`, and what they mean.

use std::{collections::BTreeMap, fmt, net::SocketAddr, str::FromStr, time::Duration};

use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser as _},
};
use workloads::SecurityProfile;

use crate::client::Where;

/// The flags, as typed. Each has an environment variable.
#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags are on or off")]
pub struct Settings {
    /// Which operators run: a comma list; `*` is all, `-name` takes one out (`*,-flightticket`).
    #[arg(
        long,
        env = "OPERATOR_OPERATORS",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true,
        help_heading = "Scope"
    )]
    pub(crate) operators: Vec<String>,

    /// Namespaces to work in, a comma list; all when not given.
    #[arg(long, env = "WATCH_NAMESPACE", value_delimiter = ',', help_heading = "Scope")]
    pub(crate) watch_namespaces: Vec<String>,

    /// How many objects of a kind are worked on at once: a number, and `KIND=N` for single kinds (`2,Memcached=8`).
    #[arg(long, env = "OPERATOR_MAX_CONCURRENT_RECONCILES", default_value = "2", help_heading = "Reconciling")]
    pub(crate) max_concurrent_reconciles: Concurrency,

    /// Every object is looked at again after this time, ± 10 %. Sends nothing to the API server.
    #[arg(long, env = "OPERATOR_RESYNC_INTERVAL", default_value = "10m", value_parser = duration, help_heading = "Reconciling")]
    pub(crate) resync_interval: Duration,

    /// A reconcile that takes longer is cancelled and tried again.
    #[arg(long, env = "OPERATOR_RECONCILE_TIMEOUT", default_value = "2m", value_parser = duration, help_heading = "Reconciling")]
    pub(crate) reconcile_timeout: Duration,

    /// A cache that is not filled by then no longer holds readiness back; /readyz?verbose says which and why.
    #[arg(long, env = "OPERATOR_CACHE_SYNC_TIMEOUT", default_value = "2m", value_parser = duration, help_heading = "Reconciling")]
    pub(crate) cache_sync_timeout: Duration,

    /// How long running reconciles may take to finish when the process is told to stop.
    #[arg(long, env = "OPERATOR_GRACEFUL_SHUTDOWN_TIMEOUT", default_value = "30s", value_parser = duration, help_heading = "Reconciling")]
    pub(crate) graceful_shutdown_timeout: Duration,

    /// Prefix for default images, never for an image in a spec: a mirror for clusters without internet.
    #[arg(long, env = "OPERATOR_IMAGE_REGISTRY", help_heading = "Reconciling")]
    pub image_registry: Option<String>,

    /// What pods may do whose image is the user's, when the object does not say.
    #[arg(
        long,
        env = "OPERATOR_DEFAULT_SECURITY_PROFILE",
        default_value = "Restricted",
        value_parser = PossibleValuesParser::new(SecurityProfile::NAMES).try_map(|name| name.parse::<SecurityProfile>()),
        help_heading = "Reconciling"
    )]
    pub default_security_profile: SecurityProfile,

    /// Let one of several replicas work, and the others stand by with warm caches.
    #[arg(long, alias = "enable-leader-election", env = "OPERATOR_LEADER_ELECT", help_heading = "Leader election",
          num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) leader_elect: bool,

    /// How long a standby waits after the leader's last sign of life before it takes over.
    #[arg(long, env = "OPERATOR_LEADER_ELECT_LEASE_DURATION", default_value = "15s", value_parser = duration, help_heading = "Leader election")]
    pub(crate) leader_elect_lease_duration: Duration,

    /// How long a leader works after its last sign of life; shorter than the lease.
    #[arg(long, env = "OPERATOR_LEADER_ELECT_RENEW_DEADLINE", default_value = "10s", value_parser = duration, help_heading = "Leader election")]
    pub(crate) leader_elect_renew_deadline: Duration,

    /// How often the leader gives a sign of life.
    #[arg(long, env = "OPERATOR_LEADER_ELECT_RETRY_PERIOD", default_value = "2s", value_parser = duration, help_heading = "Leader election")]
    pub(crate) leader_elect_retry_period: Duration,

    /// Name of the lease.
    #[arg(
        long,
        env = "OPERATOR_LEADER_ELECTION_ID",
        default_value = "controller-manager.operators",
        help_heading = "Leader election"
    )]
    pub(crate) leader_election_id: String,

    /// Namespace of the lease; in a cluster that of the pod, when not given.
    #[arg(long, env = "OPERATOR_LEADER_ELECTION_NAMESPACE", help_heading = "Leader election")]
    pub(crate) leader_election_namespace: Option<String>,

    /// Where Prometheus metrics are served; `0` turns them off.
    #[arg(long, env = "OPERATOR_METRICS_BIND_ADDRESS", default_value = "127.0.0.1:8080", help_heading = "Serving")]
    pub(crate) metrics_bind_address: BindAddress,

    /// Serve metrics over TLS, and only to those whom the API server lets `get` the path: no sidecar is needed then.
    #[arg(long, env = "OPERATOR_METRICS_SECURE", help_heading = "Serving",
          num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) metrics_secure: bool,

    /// Folder with tls.crt and tls.key for --metrics-secure, watched for changes; without it nobody has signed the certificate.
    #[arg(long, env = "OPERATOR_METRICS_CERT_DIR", help_heading = "Serving")]
    pub(crate) metrics_cert_dir: Option<std::path::PathBuf>,

    /// Of a kind with more objects than this, metrics count the conditions and do not name the objects.
    #[arg(long, env = "OPERATOR_METRICS_MAX_OBJECTS", default_value_t = 1_000, help_heading = "Serving")]
    pub(crate) metrics_max_objects: usize,

    /// Where /healthz and /readyz are served; `0` turns them off.
    #[arg(long, env = "OPERATOR_HEALTH_PROBE_BIND_ADDRESS", default_value = ":8081", help_heading = "Serving")]
    pub(crate) health_probe_bind_address: BindAddress,

    /// Serve webhooks: validation, defaults and conversion of objects before they are stored.
    #[arg(long, env = "ENABLE_WEBHOOKS", help_heading = "Webhooks",
          num_args = 0..=1, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) enable_webhooks: bool,

    /// Where webhooks are served; `0` turns them off.
    #[arg(long, env = "OPERATOR_WEBHOOK_BIND_ADDRESS", default_value = ":9443", help_heading = "Webhooks")]
    pub(crate) webhook_bind_address: BindAddress,

    /// The Service through which the API server calls: NAME, or NAMESPACE/NAME. Needed in a cluster.
    #[arg(long, env = "OPERATOR_WEBHOOK_SERVICE", help_heading = "Webhooks", conflicts_with = "webhook_client_url")]
    pub(crate) webhook_service: Option<String>,

    /// Where the API server calls a process outside of the cluster: https://HOST:PORT. The configurations, and the
    /// conversion of kinds with several versions, are written at the start and taken back at the end.
    #[arg(long, env = "OPERATOR_WEBHOOK_CLIENT_URL", help_heading = "Webhooks")]
    pub(crate) webhook_client_url: Option<String>,

    /// Name of the webhook configurations that the API server's trust is written into.
    #[arg(
        long,
        env = "OPERATOR_WEBHOOK_CONFIGURATION",
        default_value = "controller-manager",
        help_heading = "Webhooks"
    )]
    pub(crate) webhook_configuration: String,

    /// Name of the Secret in which the replicas share their certificate; made if it is not there.
    #[arg(
        long,
        env = "OPERATOR_WEBHOOK_CERT_SECRET",
        default_value = "webhook-server-cert",
        help_heading = "Webhooks"
    )]
    pub(crate) webhook_cert_secret: String,

    /// How long a webhook certificate lives; it is renewed when two thirds are over.
    #[arg(long, env = "OPERATOR_WEBHOOK_CERT_LIFETIME", default_value = "2160h", value_parser = duration, help_heading = "Webhooks")]
    pub(crate) webhook_cert_lifetime: Duration,

    /// Folder with tls.crt and tls.key, such as cert-manager's, instead of a certificate of our own. Watched for changes.
    #[arg(long, env = "OPERATOR_WEBHOOK_CERT_DIR", help_heading = "Webhooks")]
    pub(crate) webhook_cert_dir: Option<std::path::PathBuf>,

    /// Form of the log.
    #[arg(long, env = "OPERATOR_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json, help_heading = "Logging")]
    pub(crate) log_format: LogFormat,

    /// What is logged: a level, or levels per target (`info,manager=debug`).
    #[arg(long, env = "OPERATOR_LOG_LEVEL", default_value = "info", help_heading = "Logging")]
    pub(crate) log_level: String,

    /// Where traces go by OTLP over gRPC, `http://HOST:PORT`; nowhere when not given. The standard `OTEL_*` variables work.
    #[arg(long, env = "OPERATOR_OTLP_ENDPOINT", help_heading = "Logging")]
    pub(crate) otlp_endpoint: Option<String>,

    /// At most so many requests to the API server in a second; no limit when not given, since the API server protects itself.
    /// The leader's signs of life do not count.
    #[arg(long, env = "OPERATOR_KUBE_API_QPS", value_parser = rate, help_heading = "Cluster")]
    pub(crate) kube_api_qps: Option<f64>,

    /// So many requests at once after a quiet time; twice --kube-api-qps when not given.
    #[arg(long, env = "OPERATOR_KUBE_API_BURST", value_parser = clap::value_parser!(u32).range(1..), requires = "kube_api_qps",
          help_heading = "Cluster")]
    pub(crate) kube_api_burst: Option<u32>,

    /// Print the configuration that these flags and the environment make, and exit.
    #[arg(long, help_heading = "Cluster")]
    pub(crate) dry_run_config: bool,

    /// Which cluster.
    #[command(flatten)]
    pub(crate) cluster: Where,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people; in colour on a terminal.
    Text,
}

/// An address to listen on, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BindAddress(pub(crate) Option<SocketAddr>);

/// Workers: for all kinds, and for single ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Concurrency {
    all: usize,
    kinds: BTreeMap<String, usize>,
}

impl Settings {
    /// Whether the operator of this name is to run; an unknown name in the list is an error that lists the known ones.
    pub(crate) fn selects(&self, name: &str) -> bool {
        selects(&self.operators, name)
    }

    /// The first entry of `--operators` that names nothing.
    pub(crate) fn unknown_operator(&self, known: &[&str]) -> Option<String> {
        unknown_operator(&self.operators, known)
    }
}

/// Whether a list such as `*,-flightticket` chooses `name`: the last entry that speaks of it decides.
pub(crate) fn selects(list: &[String], name: &str) -> bool {
    let mut selected = false;
    for entry in list {
        match entry.strip_prefix('-') {
            Some(excluded) if excluded == name => selected = false,
            None if entry == "*" || entry == name => selected = true,
            _ => {}
        }
    }
    selected
}

/// The first entry of a list that names nothing.
pub(crate) fn unknown_operator(list: &[String], known: &[&str]) -> Option<String> {
    let name = |entry: &String| entry.strip_prefix('-').unwrap_or(entry).to_owned();
    list.iter().map(name).find(|name| name != "*" && !known.contains(&name.as_str()))
}

impl Concurrency {
    /// Workers for `kind` of `group`.
    /// For a kind that is not named, its own number or else that of all.
    pub(crate) fn of(&self, kind: &str, group: &str, own: Option<usize>) -> usize {
        let qualified = format!("{kind}.{group}");
        let named = self.kinds.get(&qualified).or_else(|| self.kinds.get(kind)).copied();
        named.or(own).unwrap_or(self.all)
    }
}

impl FromStr for Concurrency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut concurrency = Self { all: 2, kinds: BTreeMap::new() };
        for part in text.split(',') {
            let (kind, number) = match part.split_once('=') {
                Some((kind, number)) => (Some(kind), number),
                None => (None, part),
            };
            let Ok(number @ 1..=1_000) = number.trim().parse() else {
                return Err(format!("\"{part}\" is not a number from 1 to 1000, nor KIND=NUMBER"));
            };
            match kind {
                Some(kind) => drop(concurrency.kinds.insert(kind.trim().to_owned(), number)),
                None => concurrency.all = number,
            }
        }
        Ok(concurrency)
    }
}

impl FromStr for BindAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if matches!(text, "0" | "") {
            return Ok(Self(None));
        }
        match serving::parse_address(text) {
            Ok(address) => Ok(Self(Some(address))),
            Err(_) => Err("expected ADDRESS:PORT, :PORT for all addresses, or 0 to turn it off".to_owned()),
        }
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("0"),
        }
    }
}

/// Reads the value of a flag such as `30s`, `10m` or `1h30m`; for flags of operators too.
///
/// # Errors
///
/// Says what is expected.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Result<jiff::SignedDuration, _> = text.parse();
    match parsed.map(Duration::try_from) {
        Ok(Ok(duration)) if duration > Duration::ZERO => Ok(duration),
        _ => Err("expected a time such as 30s, 10m or 1h30m".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate @ 0.001..=1_000_000.0) => Ok(rate),
        _ => Err("expected a number of requests in a second, such as 20 or 0.5".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Settings, clap::Error> {
        let command = Settings::augment_args(Command::new("run").no_binary_name(true));
        Settings::from_arg_matches(&command.try_get_matches_from(arguments)?)
    }

    #[test]
    fn operators_are_chosen_by_name() {
        let chosen = |list: &str| {
            let settings = parse(&["--operators", list]).expect(list);
            ["memcached", "crontab"].into_iter().filter(|name| settings.selects(name)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(chosen("*"), "memcached crontab");
        assert_eq!(chosen("memcached"), "memcached");
        assert_eq!(chosen("*,-memcached"), "crontab");
        let settings = parse(&["--operators", "memcached,cronjob"]).expect("parses");
        assert_eq!(settings.unknown_operator(&["memcached", "crontab"]).as_deref(), Some("cronjob"));
    }

    #[test]
    fn concurrency_is_by_kind_then_global() {
        let settings =
            parse(&["--max-concurrent-reconciles", "3,Memcached=8,CronTab.stable.example.com=1"]).expect("parses");
        let concurrency = settings.max_concurrent_reconciles;
        assert_eq!(concurrency.of("Memcached", "g", Some(20)), 8);
        assert_eq!(concurrency.of("CronTab", "stable.example.com", None), 1);
        assert_eq!(concurrency.of("CronTab", "other", None), 3);
        assert_eq!(concurrency.of("FlightTicket", "g", Some(20)), 20, "its own, as long as nobody names the kind");
    }

    #[test]
    fn a_port_alone_is_all_addresses_of_both_families() {
        let settings = parse(&["--metrics-bind-address", "10.0.0.1:8080"]).expect("parses");
        assert_eq!(settings.metrics_bind_address.to_string(), "10.0.0.1:8080");
        assert_eq!(settings.health_probe_bind_address.to_string(), "[::]:8081");
        assert_eq!(settings.webhook_bind_address.to_string(), "[::]:9443");
    }

    #[test]
    fn wrong_values_say_what_is_allowed() {
        for (arguments, says) in [
            (["--default-security-profile", "Privileged"], "Restricted, RootAllowed, Baseline"),
            (["--max-concurrent-reconciles", "0"], "from 1 to 1000"),
            (["--resync-interval", "soon"], "30s, 10m or 1h30m"),
            (["--metrics-bind-address", "8080"], "0 to turn it off"),
            (["--kube-api-qps", "0"], "such as 20 or 0.5"),
            (["--kube-api-burst", "9"], "--kube-api-qps"),
        ] {
            let error = parse(&arguments).expect_err("is refused").to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
