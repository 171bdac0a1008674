//! The Secrets of a Memcached: those that it names, and those that it asks the operator to make. The operator reads them at each
//! reconcile, and the kubelet mounts them. The operator keeps only their hash, which restarts the pods when a Secret changes.
//!
//! The hash includes the uids of the Secrets. Who may read Deployments, but no Secrets, does not know these, and so cannot find a
//! weak password by guessing. A Secret that is restored from a backup has another uid: then the pods restart once.

use k8s_openapi::api::core::v1::{KeyToPath, SecretVolumeSource, Volume, VolumeMount};
use manager::{Context, Error, Problem, SecretValues};
use sha2::{Digest, Sha256};

use crate::{
    Config,
    api::{Memcached, v1::ClientAuth},
    command_line::{PASSWORDS_FOLDER, TLS_FOLDER},
    generated::{self, Made},
};

/// The annotation of the pods that holds the hash of the Secrets.
pub const HASH: &str = "memcached.cache.example.com/secret-hash";

/// The result of reading the Secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Secrets {
    /// All Secrets exist. Holds their hash, if the spec names any.
    Read(Option<String>),
    /// A Secret or one of its keys is missing. The status will report it.
    Missing,
}

/// Reads the Secrets that the spec names, and makes those that it asks the operator to make. Also returns what a user has to do about
/// the latter.
pub(crate) async fn read(
    memcached: &Memcached,
    ctx: &Context<Memcached, Config>,
) -> Result<(Secrets, Vec<Problem>), Error> {
    let (mut hashes, mut problems) = (Vec::new(), Vec::new());
    let mut complete = true;
    for Mounted { purpose, source, keys, .. } in mounted(memcached) {
        let made = match source {
            Source::Named(name) => {
                let values: Option<SecretValues> = ctx.secret(name, &keys).await?;
                complete &= values.is_some();
                hashes.extend(values.map(|values| (purpose, values.sha256())));
                continue;
            }
            Source::Password => generated::auth(memcached, ctx).await?,
            Source::Certificate => generated::tls(memcached, ctx).await?,
        };
        match made {
            Made::Holds { uid, mut values } => {
                values.retain(|key, _| keys.contains(&key.as_str()));
                hashes.push((purpose, SecretValues::new(uid, values).sha256()));
            }
            Made::Waits(problem) => {
                complete = false;
                problems.extend(problem);
            }
        }
    }
    Ok((if complete { Secrets::Read(combined(&hashes)) } else { Secrets::Missing }, problems))
}

/// The volumes of a pod that hold the files of the Secrets.
pub(crate) fn volumes(memcached: &Memcached) -> Vec<Volume> {
    let item = |key: &str| KeyToPath { key: key.to_owned(), path: key.to_owned(), mode: None };
    let volume = |it: Mounted<'_>| Volume {
        name: it.purpose.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(match it.source {
                Source::Named(name) => name.to_owned(),
                Source::Password => generated::auth_secret(memcached),
                Source::Certificate => generated::tls_secret(memcached),
            }),
            items: Some(it.keys.into_iter().map(item).collect()),
            ..Default::default()
        }),
        ..Default::default()
    };
    mounted(memcached).map(volume).collect()
}

/// The folders in which memcached finds these files.
pub(crate) fn mounts(memcached: &Memcached) -> Vec<VolumeMount> {
    let mount = |it: Mounted<'_>| VolumeMount {
        name: it.purpose.to_owned(),
        mount_path: it.folder.to_owned(),
        read_only: Some(true),
        ..Default::default()
    };
    mounted(memcached).map(mount).collect()
}

/// A Secret in the file system of a pod.
struct Mounted<'a> {
    purpose: &'static str,
    source: Source<'a>,
    keys: Vec<&'a str>,
    folder: &'static str,
}

/// Where a Secret comes from.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// The user has made the Secret of this name.
    Named(&'a str),
    /// The operator generates a password.
    Password,
    /// The operator generates a certificate.
    Certificate,
}

fn mounted(memcached: &Memcached) -> impl Iterator<Item = Mounted<'_>> {
    let spec = &memcached.spec;
    let tls = spec.tls.as_ref().filter(|_| spec.has_tls()).map(|tls| {
        let mut keys = vec!["tls.crt", "tls.key"];
        keys.extend((tls.client_auth != ClientAuth::None).then_some("ca.crt"));
        let source = tls.secret_name.as_deref().map_or(Source::Certificate, Source::Named);
        Mounted { purpose: "tls", source, keys, folder: TLS_FOLDER }
    });
    let passwords = spec.auth.as_ref().map(|auth| Mounted {
        purpose: "passwords",
        source: auth.secret_name.as_deref().map_or(Source::Password, Source::Named),
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
