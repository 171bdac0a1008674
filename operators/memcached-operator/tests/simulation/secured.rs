//! The Secrets that a spec names: certificates and passwords. What users draw of them, and what the pods have of them.

use fastrand::Rng;
use model_apiserver::Model;
use serde_json::{Value, json};
use simulation::oracle::beside;

use super::{SECRET, one_of};

/// A Secret with a certificate, its key and, most of the time, the authority of clients.
pub(crate) const CERTIFICATES: &str = "certs";

/// Draws `spec.tls`, or null. No certificate is generated: its key would differ in each run.
pub(super) fn draw_tls(rng: &mut Rng) -> Value {
    let client_auth = one_of(rng, &["None", "Request", "Require"]);
    if rng.u8(..5) == 0 { json!({"secretName": CERTIFICATES, "clientAuth": client_auth}) } else { Value::Null }
}

/// Draws the Secret with the certificate. Some have no authority, which only specs without `clientAuth` accept.
pub(super) fn draw_certificates(rng: &mut Rng) -> Value {
    let mut data = json!({"tls.crt": one_of(rng, &["YQ==", "Yg=="]), "tls.key": "aw=="});
    if rng.u8(..4) > 0 {
        data["ca.crt"] = one_of(rng, &["Yw==", "ZA=="]).into();
    }
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": CERTIFICATES}, "data": data})
}

/// A Secret whose keys are files of the pods.
pub(super) struct Mounted {
    /// The name of the volume, and of the folder.
    pub(super) folder: &'static str,
    pub(super) secret: String,
    pub(super) keys: Vec<&'static str>,
    /// Whether users make it.
    pub(super) is_named: bool,
}

/// Sections 2.1 and 2.3 of the specification: the Secrets that the pods of this spec have.
pub(super) fn mounted(name: &str, spec: &Value) -> Vec<Mounted> {
    let mut all = Vec::new();
    if has_tls(spec) {
        let mut keys = vec!["tls.crt", "tls.key"];
        keys.extend(verify_mode(spec).map(|_| "ca.crt"));
        all.push(Mounted { folder: "tls", secret: CERTIFICATES.to_owned(), keys, is_named: true });
    }
    if !spec["auth"].is_null() {
        let is_named = spec["auth"]["generate"] != true;
        let secret = if is_named { SECRET.to_owned() } else { format!("{name}-auth") };
        all.push(Mounted { folder: "passwords", secret, keys: vec!["password-file"], is_named });
    }
    all
}

/// Whether all Secrets of users that the spec names exist and have the keys that it needs.
pub(super) fn are_complete(object: &Value, mounted: &[Mounted], cluster: &Model) -> bool {
    mounted.iter().filter(|it| it.is_named).all(|it| {
        let secret = beside(object, cluster, "secrets", &it.secret).unwrap_or_default();
        it.keys.iter().all(|key| !secret["data"][key].is_null())
    })
}

pub(super) fn has_tls(spec: &Value) -> bool {
    !spec["tls"]["secretName"].is_null()
}

/// `ssl_verify_mode`, if memcached checks certificates of clients.
pub(super) fn verify_mode(spec: &Value) -> Option<u8> {
    match spec["tls"]["clientAuth"].as_str() {
        Some("Request") if has_tls(spec) => Some(1),
        Some("Require") if has_tls(spec) => Some(2),
        _ => None,
    }
}

/// Section 2.3 of the specification: the flags of TLS follow those of passwords.
pub(super) fn tls_flags(spec: &Value) -> Vec<String> {
    if !has_tls(spec) {
        return Vec::new();
    }
    let folder = "/etc/memcached/tls";
    let verify = |mode| format!(",ssl_ca_cert={folder}/ca.crt,ssl_verify_mode={mode}");
    let verify = verify_mode(spec).map(verify).unwrap_or_default();
    let options = format!("ssl_chain_cert={folder}/tls.crt,ssl_key={folder}/tls.key{verify}");
    vec!["-Z".to_owned(), "-o".to_owned(), options]
}

/// Adds the volumes of these Secrets to a pod, and mounts them in memcached.
pub(super) fn mount(pod: &mut Value, mounted: &[Mounted]) {
    if mounted.is_empty() {
        return;
    }
    let volume = |it: &Mounted| {
        let items: Vec<Value> = it.keys.iter().map(|key| json!({"key": key, "path": key})).collect();
        json!({"name": it.folder, "secret": {"secretName": it.secret, "items": items}})
    };
    let mount = |it: &Mounted| {
        let path = format!("/etc/memcached/{}", it.folder);
        json!({"name": it.folder, "mountPath": path, "readOnly": true})
    };
    pod["volumes"] = mounted.iter().map(volume).collect();
    pod["containers"][0]["volumeMounts"] = mounted.iter().map(mount).collect();
}
