//! The command line: kube-rbac-proxy's flags with their spelling and meaning, and a few of our own.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    time::Duration,
};

use clap::{ArgAction, Args, Parser, ValueEnum};
use http::{
    HeaderName, Uri,
    uri::{Authority, Scheme},
};
use serving::{CipherSuites, Http2, MinVersion, TlsError};

use crate::{
    CacheTtls, Rules,
    forward::IdentityHeaders,
    policy::{Authorization, ConfigError, PathError, Patterns},
};

/// Protects a metrics endpoint with TLS, `TokenReview` and `SubjectAccessReview`.
///
/// The flags are those of kube-rbac-proxy. The proxy forwards only GET and HEAD, and authorises both as the verb "get".
#[derive(Debug, Clone, Parser)]
#[command(name = "metrics-proxy", version, max_term_width = 120)]
pub struct Flags {
    /// Address to listen on with TLS, such as :8443 or 127.0.0.1:8443.
    #[arg(long, value_name = "ADDRESS", help_heading = "Serving")]
    pub secure_listen_address: Option<String>,
    /// Address to listen on without TLS: tokens can be read on the network. Deprecated, as in kube-rbac-proxy.
    #[arg(long, value_name = "ADDRESS", help_heading = "Serving")]
    pub insecure_listen_address: Option<String>,
    /// Port for the proxy's own /healthz, /readyz and /metrics, with TLS, on the host of --secure-listen-address. 0 means none.
    #[arg(long, value_name = "PORT", default_value_t = 0, help_heading = "Serving")]
    pub proxy_endpoints_port: u16,
    /// File with the serving certificate and its chain. Reloaded when it changes.
    #[arg(long, value_name = "FILE", help_heading = "Serving", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// File with the key of the certificate. Without both files, the proxy makes a self-signed certificate at each start.
    #[arg(long, value_name = "FILE", help_heading = "Serving", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Minimum version of TLS.
    #[arg(long, value_name = "VersionTLS12|VersionTLS13", default_value = "VersionTLS12", help_heading = "Serving")]
    pub tls_min_version: String,
    /// Cipher suites, by the names of Go, separated by commas. Default: all secure ones.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Serving")]
    pub tls_cipher_suites: Vec<String>,
    /// Speak HTTP/1.1 only.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true",
          action = ArgAction::Set, help_heading = "Serving")]
    pub http2_disable: bool,
    /// Concurrent requests on one HTTP/2 connection.
    #[arg(long, value_name = "N", default_value_t = 32, help_heading = "Serving")]
    pub http2_max_concurrent_streams: u32,
    /// Flow-control window of one HTTP/2 stream, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 262_144, help_heading = "Serving",
          value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    pub http2_max_size: u32,
    /// Maximum of open connections. For one more, a connection of the address that has the most is closed, the one that has waited
    /// longest for its client.
    #[arg(long, value_name = "N", default_value_t = 128, help_heading = "Serving")]
    pub max_connections: usize,
    /// How long running requests may go on after SIGTERM.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration, help_heading = "Serving")]
    pub graceful_shutdown_timeout: Duration,

    /// URL of the endpoint behind the proxy.
    #[arg(long, value_name = "http://127.0.0.1:8080/", help_heading = "Upstream")]
    pub upstream: String,
    /// Speak HTTP/2 without TLS to the upstream.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true",
          action = ArgAction::Set, help_heading = "Upstream")]
    pub upstream_force_h2c: bool,
    /// File with the authorities that sign the upstream's certificate. Default: the system's.
    #[arg(long, value_name = "FILE", help_heading = "Upstream")]
    pub upstream_ca_file: Option<PathBuf>,
    /// File with the client certificate for the upstream.
    #[arg(long, value_name = "FILE", help_heading = "Upstream", requires = "upstream_client_key_file")]
    pub upstream_client_cert_file: Option<PathBuf>,
    /// File with the key of the client certificate.
    #[arg(long, value_name = "FILE", help_heading = "Upstream", requires = "upstream_client_cert_file")]
    pub upstream_client_key_file: Option<PathBuf>,
    /// How long the upstream may take to begin an answer, and again to end it.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration, help_heading = "Upstream")]
    pub upstream_timeout: Duration,

    /// File with resource attributes, rewrites and static rules. Without it, the path of a request is authorised.
    #[arg(long, value_name = "FILE", help_heading = "Who may")]
    pub config_file: Option<PathBuf>,
    /// Patterns of allowed paths, separated by commas; all other paths get 404. * and ? do not match a /.
    #[arg(
        long,
        value_name = "PATTERNS",
        value_delimiter = ',',
        help_heading = "Who may",
        conflicts_with = "ignore_paths"
    )]
    pub allow_paths: Vec<String>,
    /// Patterns of paths without authentication, separated by commas.
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',', help_heading = "Who may")]
    pub ignore_paths: Vec<String>,
    /// File with the authorities that sign client certificates. The common name is the user, organisations are groups.
    #[arg(long, value_name = "FILE", help_heading = "Who may")]
    pub client_ca_file: Option<PathBuf>,
    /// Audiences, separated by commas. A token must be for one of them. Recommended.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Who may")]
    pub auth_token_audiences: Vec<String>,
    /// Send the user and the groups to the upstream, in headers.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true",
          action = ArgAction::Set, help_heading = "Who may")]
    pub auth_header_fields_enabled: bool,
    /// Header with the name of the user. The proxy removes it from client requests.
    #[arg(long, value_name = "NAME", default_value = "x-remote-user", help_heading = "Who may")]
    pub auth_header_user_field_name: String,
    /// Header with the user's groups. The proxy removes it from client requests.
    #[arg(long, value_name = "NAME", default_value = "x-remote-groups", help_heading = "Who may")]
    pub auth_header_groups_field_name: String,
    /// Separator between two groups.
    #[arg(long, value_name = "TEXT", default_value = "|", help_heading = "Who may")]
    pub auth_header_groups_field_separator: String,
    /// TTL of the cached user of a token.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = duration, help_heading = "Who may")]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// TTL of a cached "allowed".
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration, help_heading = "Who may")]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// TTL of a cached "denied".
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration, help_heading = "Who may")]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,

    /// Path of a kubeconfig. Default: the pod's service account.
    #[arg(long, value_name = "FILE", help_heading = "Process")]
    pub kubeconfig: Option<PathBuf>,
    /// Verbosity of the log: 2 logs each request, 5 everything, but never a token.
    #[arg(short = 'v', long = "v", value_name = "N", default_value_t = 0, help_heading = "Process")]
    pub verbosity: u8,
    /// Format of the log: json or text.
    #[arg(long, value_name = "FORMAT", default_value = "json", help_heading = "Process")]
    pub log_format: LogFormat,

    #[command(flatten)]
    others: Others,
}

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Text for a terminal.
    Text,
}

macro_rules! others {
    ($($switch:ident)*; $($field:ident)*; $($oidc:ident)*) => {
        /// Flags of kube-rbac-proxy that have no effect here, and those of OIDC, which is not supported.
        #[derive(Debug, Clone, Args)]
        struct Others {
            $(#[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
            $switch: Option<String>,)*
            $(#[arg(long, hide = true)]
            $field: Option<String>,)*
            $(#[arg(long, hide = true)]
            $oidc: Option<String>,)*
            #[arg(long = "oidc-clientID", hide = true)]
            oidc_client_id: Option<String>,
        }

        impl Others {
            fn asks_for_oidc(&self) -> bool {
                [$(&self.$oidc,)* &self.oidc_client_id].into_iter().any(Option::is_some)
            }

            /// The given flags that have no effect.
            fn ignored(&self) -> impl Iterator<Item = String> {
                let given = [$((&self.$switch, stringify!($switch)),)* $((&self.$field, stringify!($field)),)*];
                given.into_iter().filter(|(value, _)| value.is_some()).map(|(_, name)| name.replace('_', "-"))
            }
        }
    };
}

others! {
    add_dir_header alsologtostderr logtostderr one_output skip_headers skip_log_headers;
    kube_api_burst kube_api_qps log_backtrace_at log_dir log_file log_file_max_size log_flush_frequency stderrthreshold
    tls_reload_interval vmodule;
    oidc_issuer oidc_groups_claim oidc_username_claim oidc_groups_prefix oidc_sign_alg oidc_ca_file
}

/// Why the flags are refused.
#[derive(Debug, thiserror::Error)]
pub enum FlagError {
    /// There is no address to listen on.
    #[error("give --secure-listen-address (or --insecure-listen-address)")]
    NowhereToListen,
    /// The address is invalid.
    #[error("--{flag} {value:?} is no address to listen on: use for example :8443 or 127.0.0.1:8443")]
    Address {
        /// The flag.
        flag: &'static str,
        /// What was given.
        value: String,
    },
    /// The host of the endpoints is that of the secure address, which is missing.
    #[error("--proxy-endpoints-port needs --secure-listen-address")]
    EndpointsWithoutHost,
    /// The URL of the upstream is invalid.
    #[error("--upstream {0:?} is no URL of a server: use for example http://127.0.0.1:8080/ (without a path)")]
    Upstream(String),
    /// Certificates for the upstream have no effect without TLS.
    #[error("--upstream-ca-file and --upstream-client-cert-file need an --upstream that begins with https")]
    UpstreamWithoutTls,
    /// HTTP/2 without TLS contradicts an https upstream.
    #[error("--upstream-force-h2c needs an --upstream that begins with http:, as it means HTTP/2 without TLS")]
    H2cWithTls,
    /// A setting of TLS is invalid.
    #[error("{flag}: {source}")]
    Tls {
        /// The flag.
        flag: &'static str,
        /// Why.
        source: TlsError,
    },
    /// A pattern of paths is invalid.
    #[error("{flag}: {source}")]
    Paths {
        /// The flag.
        flag: &'static str,
        /// Why.
        source: PathError,
    },
    /// The name of a header is invalid.
    #[error("{flag}: {value:?} is not the name of a header")]
    Header {
        /// The flag.
        flag: &'static str,
        /// What was given.
        value: String,
    },
    /// The configuration file cannot be read.
    #[error("--config-file {}: {source}", path.display())]
    ConfigUnreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The configuration file is invalid.
    #[error("--config-file {}: {source}", path.display())]
    Config {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: ConfigError,
    },
    /// Without TLS, no client can show a certificate.
    #[error("--client-ca-file needs --secure-listen-address")]
    ClientsWithoutTls,
    /// OIDC is not supported.
    #[error("--oidc-* is not supported: configure the issuer in the API server, and the proxy accepts its tokens")]
    Oidc,
}

/// The parsed and checked flags.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) secure: Option<SocketAddr>,
    pub(crate) insecure: Option<SocketAddr>,
    pub(crate) endpoints: Option<SocketAddr>,
    pub(crate) min_version: MinVersion,
    pub(crate) cipher_suites: CipherSuites,
    pub(crate) http2: Option<Http2>,
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    pub(crate) identity: IdentityHeaders,
    pub(crate) rules: Rules,
    pub(crate) times: CacheTtls,
    /// Given flags that have no effect.
    pub(crate) ignored: Vec<String>,
}

impl Flags {
    pub(crate) fn settings(&self) -> Result<Settings, FlagError> {
        if self.others.asks_for_oidc() {
            return Err(FlagError::Oidc);
        }
        let secure = listen("secure-listen-address", self.secure_listen_address.as_deref())?;
        let insecure = listen("insecure-listen-address", self.insecure_listen_address.as_deref())?;
        match (secure, insecure) {
            (None, None) => return Err(FlagError::NowhereToListen),
            (None, _) if self.proxy_endpoints_port != 0 => return Err(FlagError::EndpointsWithoutHost),
            (None, _) if self.client_ca_file.is_some() => return Err(FlagError::ClientsWithoutTls),
            _ => {}
        }
        let port = Some(self.proxy_endpoints_port).filter(|port| *port != 0);
        let endpoints = secure.zip(port).map(|(address, port)| SocketAddr::new(address.ip(), port));
        let (scheme, authority) = self.upstream()?;
        let suites = self.tls_cipher_suites.join(",");
        let tls = |flag| move |source| FlagError::Tls { flag, source };
        let http2 = Http2 {
            max_concurrent_streams: self.http2_max_concurrent_streams,
            stream_window: self.http2_max_size,
            ..Http2::default()
        };
        Ok(Settings {
            secure,
            insecure,
            endpoints,
            min_version: self.tls_min_version.parse().map_err(tls("--tls-min-version"))?,
            cipher_suites: suites.parse().map_err(tls("--tls-cipher-suites"))?,
            http2: (!self.http2_disable).then_some(http2),
            scheme,
            authority,
            identity: IdentityHeaders {
                enabled: self.auth_header_fields_enabled,
                user: header("--auth-header-user-field-name", &self.auth_header_user_field_name)?,
                groups: header("--auth-header-groups-field-name", &self.auth_header_groups_field_name)?,
                separator: self.auth_header_groups_field_separator.clone(),
            },
            rules: Rules {
                allow_paths: patterns("--allow-paths", &self.allow_paths)?,
                ignore_paths: patterns("--ignore-paths", &self.ignore_paths)?,
                authorization: self.authorization()?,
            },
            times: CacheTtls {
                token: self.authentication_token_webhook_cache_ttl,
                allowed: self.authorization_webhook_cache_authorized_ttl,
                denied: self.authorization_webhook_cache_unauthorized_ttl,
                ..CacheTtls::default()
            },
            ignored: self.others.ignored().collect(),
        })
    }

    fn upstream(&self) -> Result<(Scheme, Authority), FlagError> {
        let wrong = || FlagError::Upstream(self.upstream.clone());
        let uri: Uri = self.upstream.parse().map_err(|_| wrong())?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else { return Err(wrong()) };
        let is_root = parts.path_and_query.is_none_or(|path| path.as_str() == "/");
        let is_tls = scheme == Scheme::HTTPS;
        if !is_root || authority.as_str().contains('@') || !(is_tls || scheme == Scheme::HTTP) {
            return Err(wrong());
        }
        match is_tls {
            true if self.upstream_force_h2c => Err(FlagError::H2cWithTls),
            false if self.upstream_ca_file.is_some() || self.upstream_client_cert_file.is_some() => {
                Err(FlagError::UpstreamWithoutTls)
            }
            _ => Ok((scheme, authority)),
        }
    }

    fn authorization(&self) -> Result<Authorization, FlagError> {
        let Some(path) = self.config_file.clone() else { return Ok(Authorization::default()) };
        match std::fs::read_to_string(&path) {
            Err(source) => Err(FlagError::ConfigUnreadable { path, source }),
            Ok(text) => Authorization::parse(&text).map_err(|source| FlagError::Config { path, source }),
        }
    }
}

/// Parses an address as Go does: without a host, it means all addresses, and the host may be a name.
fn listen(flag: &'static str, value: Option<&str>) -> Result<Option<SocketAddr>, FlagError> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    let named = || value.to_socket_addrs().ok()?.next();
    let wrong = || FlagError::Address { flag, value: value.to_owned() };
    serving::parse_address(value).ok().or_else(named).map(Some).ok_or_else(wrong)
}

fn header(flag: &'static str, value: &str) -> Result<HeaderName, FlagError> {
    HeaderName::try_from(value).map_err(|_| FlagError::Header { flag, value: value.to_owned() })
}

fn patterns(flag: &'static str, patterns: &[String]) -> Result<Patterns, FlagError> {
    Patterns::parse(patterns).map_err(|source| FlagError::Paths { flag, source })
}

/// Parses the value of a flag, a time above zero such as `30s`, `10m` or `1h30m`.
///
/// # Errors
///
/// A message that says what is expected.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Result<jiff::SignedDuration, _> = text.parse();
    match parsed.map(Duration::try_from) {
        Ok(Ok(duration)) if duration > Duration::ZERO => Ok(duration),
        _ => Err("expected a time such as 30s, 10m or 1h30m".to_owned()),
    }
}

#[cfg(test)]
mod tests;
