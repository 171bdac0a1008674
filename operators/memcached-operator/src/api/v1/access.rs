//! Which clients may connect to memcached, and how: TLS, passwords, network policy.

use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::placement;

/// TLS between clients and memcached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct TlsSettings {
    /// Secret with tls.crt and tls.key, and with ca.crt if clientAuth is Request or Require. If set, memcached accepts only TLS
    /// connections. Default: none, and no TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,

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

/// Passwords for clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthSettings {
    /// Secret with a file of lines such as user:password. Required. Default: none.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,

    /// The key of that file in the Secret. Default: password-file.
    #[serde(default = "password_file")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]*[-_a-zA-Z0-9]$"))]
    pub key: String,
}

/// Which clients may reach the pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkPolicySettings {
    /// Whether the operator creates a NetworkPolicy. Default: false.
    pub enabled: bool,

    /// Which clients may reach the ports of memcached and of the exporter. Default: the pods of the namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "placement::peers")]
    pub from: Vec<NetworkPolicyPeer>,
}

fn password_file() -> String {
    "password-file".to_owned()
}
