//! The Secrets that a Memcached names. The operator reads them at each reconcile, and the kubelet mounts them. The operator keeps
//! only their hash, which restarts the pods when a Secret changes.

use k8s_openapi::api::core::v1::{KeyToPath, SecretVolumeSource, Volume, VolumeMount};
use manager::{Context, Error, SecretValues};
use sha2::{Digest, Sha256};

use crate::{
    Config,
    api::{
        Memcached,
        v1::{ClientAuth, MemcachedSpec},
    },
    command_line::{PASSWORDS_FOLDER, TLS_FOLDER},
};

/// The annotation of the pods that holds the hash of the Secrets.
pub const HASH: &str = "memcached.cache.example.com/secret-hash";

/// The result of reading the Secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Secrets {
    /// All Secrets exist. Holds their hash, if the spec names any.
    Read(Option<String>),
    /// A Secret or one of its keys is missing. The [`Context`] has recorded this, and the status will report it.
    Missing,
}

/// Reads the Secrets that `spec` names.
pub(crate) async fn read(spec: &MemcachedSpec, ctx: &Context<Memcached, Config>) -> Result<Secrets, Error> {
    let mut hashes = Vec::new();
    let mut complete = true;
    for Mounted { purpose, secret, keys, .. } in mounted(spec) {
        let values: Option<SecretValues> = ctx.secret(secret, &keys).await?;
        complete &= values.is_some();
        hashes.extend(values.map(|values| (purpose, values.sha256())));
    }
    Ok(if complete { Secrets::Read(combined(&hashes)) } else { Secrets::Missing })
}

/// The volumes of a pod that hold the files of the Secrets.
pub(crate) fn volumes(spec: &MemcachedSpec) -> Vec<Volume> {
    let item = |key: &str| KeyToPath { key: key.to_owned(), path: key.to_owned(), mode: None };
    let volume = |it: Mounted<'_>| Volume {
        name: it.purpose.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(it.secret.to_owned()),
            items: Some(it.keys.into_iter().map(item).collect()),
            ..Default::default()
        }),
        ..Default::default()
    };
    mounted(spec).map(volume).collect()
}

/// The folders in which memcached finds these files.
pub(crate) fn mounts(spec: &MemcachedSpec) -> Vec<VolumeMount> {
    let mount = |it: Mounted<'_>| VolumeMount {
        name: it.purpose.to_owned(),
        mount_path: it.folder.to_owned(),
        read_only: Some(true),
        ..Default::default()
    };
    mounted(spec).map(mount).collect()
}

/// A Secret in the file system of a pod.
struct Mounted<'a> {
    purpose: &'static str,
    secret: &'a str,
    keys: Vec<&'a str>,
    folder: &'static str,
}

fn mounted(spec: &MemcachedSpec) -> impl Iterator<Item = Mounted<'_>> {
    let tls = spec.tls.as_ref().and_then(|tls| {
        let mut keys = vec!["tls.crt", "tls.key"];
        keys.extend((tls.client_auth != ClientAuth::None).then_some("ca.crt"));
        Some(Mounted { purpose: "tls", secret: tls.secret_name.as_deref()?, keys, folder: TLS_FOLDER })
    });
    let passwords = spec.auth.as_ref().map(|auth| Mounted {
        purpose: "passwords",
        secret: &auth.secret_name,
        keys: vec![&auth.key],
        folder: PASSWORDS_FOLDER,
    });
    tls.into_iter().chain(passwords)
}

/// Returns one hash of all Secrets and of their purposes; `None` if there are none.
fn combined(hashes: &[(&str, String)]) -> Option<String> {
    let mut all = Sha256::new();
    for (purpose, hash) in hashes {
        all.update(format!("{purpose}={hash}\n"));
    }
    (!hashes.is_empty()).then(|| format!("{:x}", all.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_changes_with_each_secret_and_is_absent_without() {
        let of = |pairs: &[(&'static str, &str)]| {
            combined(&pairs.iter().map(|(purpose, hash)| (*purpose, (*hash).to_owned())).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), None);
        let both = of(&[("tls", "a"), ("passwords", "b")]).expect("a hash");
        assert_eq!(both.len(), 64);
        for other in [of(&[("tls", "b"), ("passwords", "a")]), of(&[("tls", "a")]), of(&[("passwords", "a")])] {
            assert_ne!(other.expect("a hash"), both);
        }
        assert_ne!(of(&[("tls", "a")]), of(&[("passwords", "a")]));
    }
}
