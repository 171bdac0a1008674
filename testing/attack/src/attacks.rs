//! The registry of attacks. Each is a small file, and knows nothing of the others, except `all_memory`, which consists of three.

use anyhow::Result;
use futures::future::BoxFuture;

use crate::{aim::Aim, requests::Requests, target::Target};

mod all_memory;
mod continuation_flood;
mod deep_bodies;
mod empty_data;
mod handshake_flood;
mod huge_bodies;
mod idle_frames;
mod long_reviews;
mod made_resets;
mod made_up_tokens;
mod ping_flood;
mod pipelined_tokens;
mod rapid_resets;
mod settings_flood;
mod silent_connections;
mod slow_bodies;
mod slow_heads;
mod small_values;
mod stream_flood;
mod tiny_chunks;
mod unfinished_handshakes;
mod unread_answers;
mod zero_windows;

/// An attack without credentials.
pub struct Attack {
    /// The name on the command line.
    pub name: &'static str,
    /// What an attacker does.
    pub about: &'static str,
    /// Which servers it makes sense against.
    pub targets: &'static [Target],
    /// Attackers at the same time.
    pub(crate) attackers: usize,
    /// Whether the attackers take no answers: the server has to give these up, which it does only after a while.
    pub(crate) leaves_answers: bool,
    /// Every tenth request of the honest client, if it is not like the others. Only a round that judges times sends it.
    pub(crate) other_honest: Option<fn(&Requests) -> String>,
    /// One attempt of one attacker. The server may refuse it at any moment.
    pub(crate) once: fn(Aim) -> BoxFuture<'static, Result<()>>,
}

impl std::fmt::Debug for Attack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// All attacks.
pub const ATTACKS: &[&Attack] = &[
    &huge_bodies::ATTACK,
    &deep_bodies::ATTACK,
    &small_values::ATTACK,
    &long_reviews::ATTACK,
    &tiny_chunks::ATTACK,
    &slow_heads::ATTACK,
    &silent_connections::ATTACK,
    &slow_bodies::ATTACK,
    &zero_windows::ATTACK,
    &unread_answers::ATTACK,
    &stream_flood::ATTACK,
    &rapid_resets::ATTACK,
    &made_resets::ATTACK,
    &continuation_flood::ATTACK,
    &settings_flood::ATTACK,
    &ping_flood::ATTACK,
    &idle_frames::ATTACK,
    &empty_data::ATTACK,
    &handshake_flood::ATTACK,
    &unfinished_handshakes::ATTACK,
    &made_up_tokens::ATTACK,
    &pipelined_tokens::ATTACK,
    &all_memory::ATTACK,
];

/// A review of this object.
fn admission(object: &str) -> String {
    format!(
        "{{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\
         \"request\":{{\"uid\":\"a\",\"operation\":\"CREATE\",\"object\":{object}}}}}"
    )
}

/// A review that asks to convert these objects into version `a/v1`. The server answers with those that have it already.
fn conversion(objects: &str) -> String {
    format!(
        "{{\"apiVersion\":\"apiextensions.k8s.io/v1\",\"kind\":\"ConversionReview\",\
         \"request\":{{\"uid\":\"a\",\"desiredAPIVersion\":\"a/v1\",\"objects\":{objects}}}}}"
    )
}

/// Targets that read bodies.
const WITH_BODIES: &[Target] = &[Target::Webhooks, Target::BookingServer];
/// Targets that speak TLS.
const WITH_TLS: &[Target] =
    &[Target::Webhooks, Target::MetricsProxy, Target::BookingServer, Target::BuiltinMetrics, Target::ProxyProbes];
/// Targets that speak HTTP/2.
const WITH_HTTP2: &[Target] = &[Target::MetricsProxy];
/// Connections of an attack that holds them: several times as many as a server of ours accepts.
const MANY: usize = 1024;
/// Bytes of the largest body that a server accepts.
const LARGEST: usize = 7 << 20;

/// The schemas of our kinds, in all versions.
#[cfg(test)]
fn schemas() -> Vec<serde_json::Value> {
    let mut schemas = Vec::new();
    for folder in std::fs::read_dir(crate::memory::chart().join("files")).expect("the files of the chart") {
        let folder = folder.expect("an entry").path();
        for file in folder.read_dir().into_iter().flatten().map(|file| file.expect("an entry").path()) {
            if file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("crd-")) {
                let text = std::fs::read_to_string(&file).expect("a CRD");
                let definition: serde_json::Value = serde_saphyr::from_str(&text).expect("YAML");
                let versions = definition["spec"]["versions"].as_array().expect("versions").clone();
                schemas.extend(versions.into_iter().map(|version| version["schema"]["openAPIV3Schema"].clone()));
            }
        }
    }
    assert!(schemas.len() > 4, "{}", schemas.len());
    schemas
}
