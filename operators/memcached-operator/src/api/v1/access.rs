//! Who may talk to the nodes, and how: TLS, passwords, the network.

use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::placement;

/// TLS between clients and nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct TlsSettings {
    /// Secret with tls.crt and tls.key, and with ca.crt if clientAuth is Request or Require. From then on nodes speak
    /// nothing but TLS. Default: none, and no TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,

    /// Whether clients show certificates, which the authorities in ca.crt have to have signed: None does not ask, Request
    /// asks, Require lets nobody in without. Default: None.
    pub client_auth: ClientAuth,
}

/// Whether clients show certificates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum ClientAuth {
    #[default]
    None,
    Request,
    Require,
}

/// Passwords that clients have to give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthSettings {
    /// Secret with a file of lines such as user:password. Default: none; it has to be given.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,

    /// The key of that file in the Secret. Default: password-file.
    #[serde(default = "password_file")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]*[-_a-zA-Z0-9]$"))]
    pub key: String,
}

/// Who reaches the nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkPolicySettings {
    /// Whether there is a NetworkPolicy. Default: false.
    pub enabled: bool,

    /// Who reaches the nodes' port, and that of their exporters. Default: the pods of the namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "placement::peers")]
    pub from: Vec<NetworkPolicyPeer>,
}

fn password_file() -> String {
    "password-file".to_owned()
}
