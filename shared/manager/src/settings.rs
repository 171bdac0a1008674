//! The flags of `controller-manager run`.

use std::{collections::BTreeMap, fmt, net::SocketAddr, str::FromStr, time::Duration};

use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser as _},
};
pub use metrics_proxy::duration; // operators use it for their own flags too
use workloads::{SecurityPolicy, SecurityProfile};

/// The parsed flags of `run`. Each setting also has an environment variable.
#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags are on or off")]
pub struct Settings {
    /// Operators to run, a comma-separated list; `*` is all, `-name` excludes one, as in `*,-name`.
    #[arg(
        long,
        env = "OPERATOR_OPERATORS",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true,
        help_heading = "Scope"
    )]
    pub(crate) operators: Vec<String>,

    /// Namespaces to watch, a comma-separated list; all if not given.
    #[arg(long, env = "WATCH_NAMESPACE", value_delimiter = ',', help_heading = "Scope")]
    pub(crate) watch_namespaces: Vec<String>,

    /// Label selector of the namespaces to watch, such as `team=a,env in (test,prod)`. Namespaces that get or lose the labels
    /// join and leave at run time. Needs all permissions in the whole cluster.
    #[arg(
        long,
        env = "OPERATOR_WATCH_NAMESPACE_SELECTOR",
        value_name = "SELECTOR",
        value_parser = clap::builder::NonEmptyStringValueParser::new(),
        conflicts_with = "watch_namespaces",
        help_heading = "Scope"
    )]
    pub(crate) watch_namespace_selector: Option<String>,

    /// Concurrent reconciles per kind: a number, and `KIND=N` for single kinds, as in `2,MyKind=8`.
    #[arg(long, env = "OPERATOR_MAX_CONCURRENT_RECONCILES", default_value = "2", help_heading = "Reconciling")]
    pub(crate) max_concurrent_reconciles: Concurrency,

    /// Interval at which every object is reconciled again, ± 10 %, unless a requeue is due within it. This alone sends no request
    /// to the API server.
    #[arg(long, env = "OPERATOR_RESYNC_INTERVAL", default_value = "10m", value_parser = duration, help_heading = "Reconciling")]
    pub(crate) resync_interval: Duration,

    /// Time limit of a reconcile. One that takes longer is cancelled and retried.
    #[arg(long, env = "OPERATOR_RECONCILE_TIMEOUT", default_value = "2m", value_parser = duration, help_heading = "Reconciling")]
    pub(crate) reconcile_timeout: Duration,

    /// Time after which a cache that is not filled no longer holds readiness back; /readyz?verbose says which and why.
    #[arg(long, env = "OPERATOR_CACHE_SYNC_TIMEOUT", default_value = "2m", value_parser = duration, help_heading = "Reconciling")]
    pub(crate) cache_sync_timeout: Duration,

    /// How long running reconciles may take to finish when the process stops.
    #[arg(long, env = "OPERATOR_GRACEFUL_SHUTDOWN_TIMEOUT", default_value = "30s", value_parser = duration, help_heading = "Reconciling")]
    pub(crate) graceful_shutdown_timeout: Duration,

    /// Registry prefix for default images, never for an image in a spec or in another flag: for a mirror in clusters without
    /// internet.
    #[arg(long, env = "OPERATOR_IMAGE_REGISTRY", help_heading = "Reconciling")]
    pub image_registry: Option<String>,

    /// Run default images as fixed users. With false, their pods name no user: for clusters that give each namespace its own
    /// users, and for images that name a numeric user themselves.
    #[arg(long, env = "OPERATOR_FIXED_USER_IDS", help_heading = "Reconciling", num_args = 0..=1, default_value_t = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    pub fixed_user_ids: bool,

    /// Security profile for user-supplied images when the object sets none.
    #[arg(
        long,
        env = "OPERATOR_DEFAULT_SECURITY_PROFILE",
        default_value = "Restricted",
        value_parser = PossibleValuesParser::new(SecurityProfile::NAMES).try_map(|name| name.parse::<SecurityProfile>()),
        help_heading = "Reconciling"
    )]
    default_security_profile: SecurityProfile,

    /// Weakest security profile that an object may set. Objects with a weaker one are refused.
    #[arg(
        long,
        env = "OPERATOR_WEAKEST_SECURITY_PROFILE",
        default_value = "Baseline",
        value_parser = PossibleValuesParser::new(SecurityProfile::NAMES).try_map(|name| name.parse::<SecurityProfile>()),
        help_heading = "Reconciling"
    )]
    weakest_security_profile: SecurityProfile,

    /// Elect a leader among several replicas. Only the leader reconciles; the others stand by with filled caches.
    #[arg(long, alias = "enable-leader-election", env = "OPERATOR_LEADER_ELECT", help_heading = "Leader election",
          num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) leader_elect: bool,

    /// How long a standby waits after the last renewal of the lease before it takes over.
    #[arg(long, env = "OPERATOR_LEADER_ELECT_LEASE_DURATION", default_value = "15s", value_parser = duration, help_heading = "Leader election")]
    pub(crate) leader_elect_lease_duration: Duration,

    /// How long a leader goes on working after its last renewal of the lease; shorter than the lease duration.
    #[arg(long, env = "OPERATOR_LEADER_ELECT_RENEW_DEADLINE", default_value = "10s", value_parser = duration, help_heading = "Leader election")]
    pub(crate) leader_elect_renew_deadline: Duration,

    /// How often the leader renews the lease.
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

    /// Namespace of the lease; if not given, the namespace of the pod.
    #[arg(long, env = "OPERATOR_LEADER_ELECTION_NAMESPACE", help_heading = "Leader election")]
    pub(crate) leader_election_namespace: Option<String>,

    /// Address of the Prometheus metrics; `0` turns them off.
    #[arg(long, env = "OPERATOR_METRICS_BIND_ADDRESS", default_value = "127.0.0.1:8080", help_heading = "Serving")]
    pub(crate) metrics_bind_address: BindAddress,

    /// Serve metrics over TLS, and only to clients that the API server authorizes to `get` the path. This needs no sidecar.
    #[arg(long, env = "OPERATOR_METRICS_SECURE", help_heading = "Serving",
          num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) metrics_secure: bool,

    /// Folder with tls.crt and tls.key for --metrics-secure, watched for changes; without it, a self-signed certificate is used.
    #[arg(long, env = "OPERATOR_METRICS_CERT_DIR", help_heading = "Serving")]
    pub(crate) metrics_cert_dir: Option<std::path::PathBuf>,

    /// For a kind with more objects than this, metrics of conditions and replicas do not name the objects.
    #[arg(long, env = "OPERATOR_METRICS_MAX_OBJECTS", default_value_t = 1_000, help_heading = "Serving")]
    pub(crate) metrics_max_objects: usize,

    /// Address of /healthz and /readyz; `0` turns them off.
    #[arg(long, env = "OPERATOR_HEALTH_PROBE_BIND_ADDRESS", default_value = ":8081", help_heading = "Serving")]
    pub(crate) health_probe_bind_address: BindAddress,

    /// Serve webhooks: validation, defaults and conversion of objects before they are stored.
    #[arg(long, env = "ENABLE_WEBHOOKS", help_heading = "Webhooks",
          num_args = 0..=1, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) enable_webhooks: bool,

    /// Address of the webhooks; `0` turns them off.
    #[arg(long, env = "OPERATOR_WEBHOOK_BIND_ADDRESS", default_value = ":9443", help_heading = "Webhooks")]
    pub(crate) webhook_bind_address: BindAddress,

    /// Service through which the API server calls the webhooks: NAME, or NAMESPACE/NAME. Required in a cluster.
    #[arg(long, env = "OPERATOR_WEBHOOK_SERVICE", help_heading = "Webhooks", conflicts_with = "webhook_client_url")]
    pub(crate) webhook_service: Option<String>,

    /// URL at which the API server calls the webhooks of a process outside of the cluster: https://HOST:PORT. The process
    /// writes the configurations, and the conversion of kinds with several versions, at the start and takes them back at the
    /// end.
    #[arg(long, env = "OPERATOR_WEBHOOK_CLIENT_URL", help_heading = "Webhooks")]
    pub(crate) webhook_client_url: Option<String>,

    /// Name of the webhook configurations into which the process writes its certificate authority.
    #[arg(
        long,
        env = "OPERATOR_WEBHOOK_CONFIGURATION",
        default_value = "controller-manager",
        help_heading = "Webhooks"
    )]
    pub(crate) webhook_configuration: String,

    /// Name of the Secret in which the replicas share their certificate; created if it does not exist.
    #[arg(
        long,
        env = "OPERATOR_WEBHOOK_CERT_SECRET",
        default_value = "webhook-server-cert",
        help_heading = "Webhooks"
    )]
    pub(crate) webhook_cert_secret: String,

    /// Lifetime of a webhook certificate; it is renewed after two thirds of it.
    #[arg(long, env = "OPERATOR_WEBHOOK_CERT_LIFETIME", default_value = "2160h", value_parser = duration, help_heading = "Webhooks")]
    pub(crate) webhook_cert_lifetime: Duration,

    /// Folder with tls.crt and tls.key, such as cert-manager's, instead of a self-managed certificate. Watched for changes.
    #[arg(long, env = "OPERATOR_WEBHOOK_CERT_DIR", help_heading = "Webhooks")]
    pub(crate) webhook_cert_dir: Option<std::path::PathBuf>,

    /// Format of the log.
    #[arg(long, env = "OPERATOR_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json, help_heading = "Logging")]
    pub(crate) log_format: LogFormat,

    /// Log level, or levels per target (`info,manager=debug,cache=debug`).
    #[arg(long, env = "OPERATOR_LOG_LEVEL", default_value = "info", help_heading = "Logging")]
    pub(crate) log_level: String,

    /// Receiver of traces by OTLP over gRPC, `http://HOST:PORT` or `https://HOST:PORT`; no traces if not given. The standard
    /// `OTEL_*` variables work. With `https`, the receiver's certificate must come from an authority of the system, or from one
    /// in the file that the variable `SSL_CERT_FILE` names.
    #[arg(long, env = "OPERATOR_OTLP_ENDPOINT", help_heading = "Logging")]
    pub(crate) otlp_endpoint: Option<String>,

    /// Limit of requests to the API server per second; no limit if not given, since the API server protects itself. Renewals
    /// of the lease and the reviews of --metrics-secure do not count.
    #[arg(long, env = "OPERATOR_KUBE_API_QPS", value_parser = rate, help_heading = "Cluster")]
    pub(crate) kube_api_qps: Option<f64>,

    /// Limit of requests at once after a quiet time; twice --kube-api-qps if not given.
    #[arg(long, env = "OPERATOR_KUBE_API_BURST", value_parser = clap::value_parser!(u32).range(1..), requires = "kube_api_qps",
          help_heading = "Cluster")]
    pub(crate) kube_api_burst: Option<u32>,

    /// Print the configuration that results from these flags and the environment, and exit.
    #[arg(long, help_heading = "Cluster")]
    pub(crate) dry_run_config: bool,

    /// The cluster to connect to.
    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,
}

/// Format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Readable text, in colour on a terminal.
    Text,
}

/// An address to listen on, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BindAddress(pub(crate) Option<SocketAddr>);

/// The number of workers per kind: for all kinds, and for single ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Concurrency {
    all: usize,
    kinds: BTreeMap<String, usize>,
}

impl Settings {
    /// Returns which security profiles users' pods may have.
    pub fn security_policy(&self) -> SecurityPolicy {
        SecurityPolicy::new(self.default_security_profile, self.weakest_security_profile)
    }

    /// Whether `--operators` chooses the operator of this name.
    pub(crate) fn selects(&self, name: &str) -> bool {
        selects(&self.operators, name)
    }

    /// Returns the first name in `--operators` that is not known.
    pub(crate) fn unknown_operator(&self, known: &[&str]) -> Option<String> {
        unknown_operator(&self.operators, known)
    }
}

/// Whether a list such as `*,-flightticket` chooses `name`. The last entry that applies to it decides.
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

/// Returns the first name in a list that is not known.
pub(crate) fn unknown_operator(list: &[String], known: &[&str]) -> Option<String> {
    let name = |entry: &String| entry.strip_prefix('-').unwrap_or(entry).to_owned();
    list.iter().map(name).find(|name| name != "*" && !known.contains(&name.as_str()))
}

impl Concurrency {
    /// Returns the number of workers for `kind` of `group`. If the flag does not name the kind, this is the controller's `own`
    /// number, or else the number for all kinds.
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

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate @ 0.001..=1_000_000.0) => Ok(rate),
        _ => Err("expected a number of requests in a second, such as 20 or 0.5".to_owned()),
    }
}

/// The flags that choose the cluster.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ClusterFlags {
    /// Path of a kubeconfig. Default: `KUBECONFIG`, the pod's service account, or the home directory's, in that order.
    #[arg(long, env = "OPERATOR_KUBECONFIG", help_heading = "Cluster")]
    pub(crate) kubeconfig: Option<std::path::PathBuf>,

    /// Context of the kubeconfig.
    #[arg(long, env = "OPERATOR_CONTEXT", help_heading = "Cluster")]
    pub(crate) context: Option<String>,
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
    fn operators_are_selected_by_name() {
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
    fn concurrency_of_a_kind_overrides_the_global_value() {
        let settings =
            parse(&["--max-concurrent-reconciles", "3,Memcached=8,CronTab.stable.example.com=1"]).expect("parses");
        let concurrency = settings.max_concurrent_reconciles;
        assert_eq!(concurrency.of("Memcached", "g", Some(20)), 8);
        assert_eq!(concurrency.of("CronTab", "stable.example.com", None), 1);
        assert_eq!(concurrency.of("CronTab", "other", None), 3);
        assert_eq!(concurrency.of("FlightTicket", "g", Some(20)), 20, "its own, unless the flag names the kind");
    }

    #[test]
    fn port_alone_binds_all_addresses() {
        let settings = parse(&["--metrics-bind-address", "10.0.0.1:8080"]).expect("parses");
        assert_eq!(settings.metrics_bind_address.to_string(), "10.0.0.1:8080");
        assert_eq!(settings.health_probe_bind_address.to_string(), "[::]:8081");
        assert_eq!(settings.webhook_bind_address.to_string(), "[::]:9443");
    }

    #[test]
    fn invalid_flag_error_names_the_allowed_values() {
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
