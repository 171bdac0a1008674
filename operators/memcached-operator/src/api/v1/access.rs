//! Which clients may connect to memcached, and how: TLS, passwords, network policy.

use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use workloads::schemas;

/// TLS between clients and memcached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!self.generate || !has(self.secretName)",
        "message": "secretName and generate exclude each other",
    },
    {
        "rule": "(has(self.renewalDays) ? self.renewalDays : 30) < (has(self.validityDays) ? self.validityDays : 365)",
        "message": "renewalDays (30 by default) must be less than validityDays (365 by default)",
    },
]))]
pub struct TlsSettings {
    /// Secret with tls.crt and tls.key, and with ca.crt if clientAuth is Request or Require. If set, memcached accepts only TLS
    /// connections. The certificate should have the names of the Service. Default: none, and no TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = secret_name()))]
    pub secret_name: Option<String>,

    /// Whether the operator makes a certificate for the names of the Service and renews it: in the Secret NAME-tls, signed by an
    /// authority of its own (the certificate ca.crt in the same Secret, the key in the Secret NAME-ca). Then memcached accepts
    /// only TLS connections. Default: false.
    pub generate: bool,

    /// For how many days a generated certificate is valid. Default: 365.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3650))]
    pub validity_days: Option<i32>,

    /// How many days before its end a generated certificate is renewed, which restarts the pods one by one. Default: 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3650))]
    pub renewal_days: Option<i32>,

    /// Whether memcached checks certificates of clients against the authorities in ca.crt: None does not request any, Request
    /// checks them but also accepts clients without one, Require accepts only clients with a valid one. Default: None.
    pub client_auth: ClientAuth,
}

/// Whether memcached checks certificates of clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum ClientAuth {
    #[default]
    None,
    Request,
    Require,
}

impl TlsSettings {
    /// `validityDays`, or its default.
    pub fn validity_days(&self) -> i32 {
        self.validity_days.unwrap_or(365)
    }

    /// `renewalDays`, or its default.
    pub fn renewal_days(&self) -> i32 {
        self.renewal_days.unwrap_or(30)
    }
}

/// Passwords for clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.generate != has(self.secretName)",
        "message": "auth needs either secretName or generate: true",
    },
    {
        "rule": "!self.generate || self.key == 'password-file'",
        "message": "key belongs to secretName",
    },
]))]
pub struct AuthSettings {
    /// Secret with a file of lines such as user:password. Default: none; then generate must be true.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = secret_name()))]
    pub secret_name: Option<String>,

    /// Whether the operator makes a user with a random password: in the keys username and password of the Secret NAME-auth.
    /// Default: false.
    pub generate: bool,

    /// The key of that file in the Secret secretName. Default: password-file.
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[-._a-zA-Z0-9]*[-_a-zA-Z0-9]$')",
        "message": "key must consist of letters, digits, '-', '_' and '.', and not end with '.'",
    }]))]
    pub key: String,
}

/// Which clients may reach the pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkPolicySettings {
    /// Whether the operator creates a NetworkPolicy. Default: false.
    pub enabled: bool,

    /// Which clients may reach memcached and, unless metrics.from is set, the exporters. Default: the pods of the namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::peers")]
    pub from: Vec<NetworkPolicyPeer>,
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self { secret_name: None, generate: false, key: "password-file".to_owned() }
    }
}

/// The rules of the name of a Secret: the API server accepts no Secret of another name.
fn secret_name() -> Value {
    json!([{
        "rule": "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
        "message": "secretName must consist of lower case letters, digits, '-' and '.', and each part between dots must begin and end with a letter or digit",
    }])
}
