//! The configuration of TLS: versions, cipher suites, client certificates.

use std::{str::FromStr, sync::Arc};

use parking_lot::Mutex;
use rustls::{
    CipherSuite, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion,
    crypto::ring,
    server::{NoServerSessionStorage, danger::ClientCertVerifier},
    version,
};

use crate::{Certificates, ClientAuthorities};

/// The configuration of TLS.
#[derive(Debug, Clone)]
pub struct Tls {
    certificates: Certificates,
    client_authorities: Option<ClientAuthorities>,
    min_version: MinVersion,
    cipher_suites: CipherSuites,
}

/// Why a configuration of TLS is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The version is unknown or insecure.
    #[error("unknown TLS version {0:?}: use VersionTLS12 or VersionTLS13 (older ones are broken and not offered)")]
    Version(String),
    /// The cipher suite is unknown or insecure.
    #[error("cipher suite {name:?} is not offered; choose from {}", known.join(", "))]
    CipherSuite {
        /// The name as given.
        name: String,
        /// The names that are offered.
        known: Vec<&'static str>,
    },
    /// The cipher suites leave no version of TLS.
    #[error("no TLS version is left with these cipher suites: {0}")]
    Nothing(String),
}

impl Tls {
    /// TLS 1.2 and 1.3 with all cipher suites of rustls, without client certificates.
    pub fn new(certificates: Certificates) -> Self {
        let (min_version, cipher_suites) = (MinVersion::default(), CipherSuites::default());
        Self { certificates, client_authorities: None, min_version, cipher_suites }
    }

    /// Requests certificates from clients.
    pub fn client_authorities(self, authorities: ClientAuthorities) -> Self {
        Self { client_authorities: Some(authorities), ..self }
    }

    /// Refuses older versions.
    pub fn min_version(self, min_version: MinVersion) -> Self {
        Self { min_version, ..self }
    }

    /// Offers only these cipher suites.
    pub fn cipher_suites(self, cipher_suites: CipherSuites) -> Self {
        Self { cipher_suites, ..self }
    }

    /// Makes the configurations for handshakes; fails if no TLS version is left.
    pub(crate) fn configs(self, http2: bool) -> Result<Configs, TlsError> {
        let verifier = self.client_authorities.as_ref().map(ClientAuthorities::verifier);
        let config = self.config(http2, verifier.clone())?;
        Ok(Configs { tls: self, http2, current: Mutex::new((verifier, Arc::new(config))) })
    }

    fn config(&self, http2: bool, verifier: Option<Verifier>) -> Result<ServerConfig, TlsError> {
        let mut provider = ring::default_provider();
        provider.cipher_suites.retain(|suite| self.cipher_suites.has(*suite));
        let builder = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(self.min_version.versions())
            .map_err(|error| TlsError::Nothing(error.to_string()))?;
        let asks = verifier.is_some();
        let builder = match verifier {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        let mut config = builder.with_cert_resolver(Arc::new(self.certificates.clone()));
        if asks {
            // A resumed session would admit a client whose certificate has expired or whose authority was removed.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        let h2 = http2.then(|| b"h2".to_vec());
        config.alpn_protocols = h2.into_iter().chain([b"http/1.1".to_vec()]).collect();
        Ok(config)
    }
}

type Verifier = Arc<dyn ClientCertVerifier>;

/// Returns the configuration for a handshake. Connections share one until the client authorities change.
pub(crate) struct Configs {
    tls: Tls,
    http2: bool,
    current: Mutex<(Option<Verifier>, Arc<ServerConfig>)>,
}

impl Configs {
    /// Who signs client certificates, if clients may show any.
    pub(crate) fn client_authorities(&self) -> Option<&ClientAuthorities> {
        self.tls.client_authorities.as_ref()
    }

    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock();
        if let Some(verifier) = self.tls.client_authorities.as_ref().map(ClientAuthorities::verifier)
            && !current.0.as_ref().is_some_and(|known| Arc::ptr_eq(known, &verifier))
            && let Ok(config) = self.tls.config(self.http2, Some(verifier.clone()))
        {
            *current = (Some(verifier), Arc::new(config));
        }
        current.1.clone()
    }
}

/// The oldest accepted version of TLS, by Go's names: `VersionTLS12` or `VersionTLS13`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MinVersion {
    /// TLS 1.2 and 1.3.
    #[default]
    Tls12,
    /// TLS 1.3 only.
    Tls13,
}

impl MinVersion {
    fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        const NEWEST_FIRST: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];
        match self {
            Self::Tls12 => NEWEST_FIRST,
            Self::Tls13 => &NEWEST_FIRST[..1],
        }
    }
}

impl FromStr for MinVersion {
    type Err = TlsError;

    fn from_str(text: &str) -> Result<Self, TlsError> {
        match text {
            "VersionTLS12" => Ok(Self::Tls12),
            "VersionTLS13" => Ok(Self::Tls13),
            other => Err(TlsError::Version(other.to_owned())),
        }
    }
}

/// The offered cipher suites, by the names of IANA and Go, separated by commas. The suites of TLS 1.3 stay on unless the list
/// names one of them: as in Go, a list for TLS 1.2 does not turn off TLS 1.3.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CipherSuites {
    /// Empty means all.
    named: Vec<CipherSuite>,
}

impl CipherSuites {
    fn has(&self, suite: SupportedCipherSuite) -> bool {
        let is_tls13 = |suite: CipherSuite| suite_name(suite).starts_with("TLS13_");
        let silent = !self.named.iter().any(|it| is_tls13(*it) == is_tls13(suite.suite()));
        self.named.contains(&suite.suite()) || self.named.is_empty() || (silent && is_tls13(suite.suite()))
    }
}

impl FromStr for CipherSuites {
    type Err = TlsError;

    fn from_str(text: &str) -> Result<Self, TlsError> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Self { named: names.map(cipher_suite).collect::<Result<_, _>>()? })
    }
}

fn cipher_suite(name: &str) -> Result<CipherSuite, TlsError> {
    let all = ring::ALL_CIPHER_SUITES.iter().map(SupportedCipherSuite::suite);
    let found = all.clone().find(|suite| {
        let known = iana_name(*suite);
        // Go also accepts the ChaCha20 suites by their names before RFC 7905.
        known == name || (known.contains("CHACHA20") && known.strip_suffix("_SHA256") == Some(name))
    });
    found.ok_or_else(|| TlsError::CipherSuite { name: name.to_owned(), known: all.map(iana_name).collect() })
}

fn suite_name(suite: CipherSuite) -> &'static str {
    suite.as_str().unwrap_or_default()
}

/// The name of a suite as IANA and Go write it: rustls has its own prefix for the suites of TLS 1.3.
fn iana_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => suite_name(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(text: &str) -> Vec<&'static str> {
        let suites: CipherSuites = text.parse().unwrap();
        ring::ALL_CIPHER_SUITES.iter().filter(|it| suites.has(**it)).map(|it| iana_name(it.suite())).collect()
    }

    #[test]
    fn cipher_suites_use_go_names() {
        assert_eq!(offered("").len(), 9);
        let tls13 = ["TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"];
        let one = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        assert_eq!(offered(one), [tls13[0], tls13[1], tls13[2], one], "a list for 1.2 leaves 1.3 alone");
        assert_eq!(offered("TLS_AES_128_GCM_SHA256"), ["TLS_AES_128_GCM_SHA256"]);
        let old = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305";
        assert_eq!(offered(&format!("{}, {old}", tls13[2])), [tls13[2], &format!("{old}_SHA256")]);
    }

    #[test]
    fn unsupported_suite_or_version_is_rejected() {
        let error = "TLS_RSA_WITH_AES_128_CBC_SHA".parse::<CipherSuites>().unwrap_err().to_string();
        assert!(error.starts_with("cipher suite \"TLS_RSA_WITH_AES_128_CBC_SHA\" is not offered; choose from TLS_"));
        assert!(error.contains("TLS_AES_128_GCM_SHA256, "), "{error}");
        assert_eq!("VersionTLS13".parse(), Ok(MinVersion::Tls13));
        for wrong in ["VersionTLS11", "1.2", ""] {
            assert_eq!(wrong.parse::<MinVersion>(), Err(TlsError::Version(wrong.to_owned())));
        }
    }
}
