//! The Secrets that the operator makes on request: passwords (`auth.generate`), and an authority with a certificate (`tls.generate`).
//!
//! They belong to the Memcached, so they go with it. The operator reads and writes them by name, and only when a reconcile needs
//! them: it needs no right to list Secrets. What a Secret holds stays as it is while it is usable. So a user replaces a password by
//! writing another into the Secret, or by deleting it.

use std::collections::BTreeMap;

use api_errors::{Class, chain, classify};
use jiff::SignedDuration;
use k8s_openapi::{
    ByteString,
    api::core::v1::Secret,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use manager::{Context, Error, EventType, Problem, ProblemKind};
use serde_json::json;
use workloads::App;

use crate::{
    Config,
    api::Memcached,
    pki::{self, Pair, Policy},
};

/// The user of a generated password.
const USERNAME: &str = "memcached";
/// The key of the file that memcached reads.
pub(crate) const PASSWORD_FILE: &str = "password-file";
/// The annotation of the Secret with the certificate that says when an authority last entered its `ca.crt`.
const TRUSTED_SINCE: &str = "memcached.cache.example.com/authority-trusted-since";
/// How often to read the Secrets again. They are not watched.
const AGAIN: SignedDuration = SignedDuration::from_mins(1);
/// When to look again for a Secret that the garbage collector is about to delete.
const SOON: SignedDuration = SignedDuration::from_secs(5);
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// The values of a Secret.
pub(crate) type Values = BTreeMap<String, Vec<u8>>;

/// What a Secret has, or what of it changes.
#[derive(Debug, Default)]
struct Content {
    values: Values,
    annotations: BTreeMap<String, String>,
}

impl Content {
    fn is_empty(&self) -> bool {
        self.values.is_empty() && self.annotations.is_empty()
    }
}

impl From<Values> for Content {
    fn from(values: Values) -> Self {
        Self { values, ..Self::default() }
    }
}

/// The result of making a Secret.
#[derive(Debug)]
pub(crate) enum Made {
    /// The Secret with this uid holds these values.
    Holds { uid: String, values: Values },
    /// The Secret cannot be used yet, and if a user has to act, why.
    Waits(Option<Problem>),
}

/// The name of the Secret with the generated password.
pub(crate) fn auth_secret(memcached: &Memcached) -> String {
    format!("{}-auth", memcached.name_any())
}

/// The name of the Secret with the generated certificate.
pub(crate) fn tls_secret(memcached: &Memcached) -> String {
    format!("{}-tls", memcached.name_any())
}

/// The name of the Secret with the authority that signs it.
fn authority_secret(memcached: &Memcached) -> String {
    format!("{}-ca", memcached.name_any())
}

/// Makes sure that the Secret with the password exists.
pub(crate) async fn auth(memcached: &Memcached, ctx: &Context<Memcached, Config>) -> Result<Made, Error> {
    let change = |stored: &Content| Ok(passwords(&stored.values, || ctx.secret_token()).into());
    make(memcached, ctx, auth_secret(memcached), "kubernetes.io/basic-auth", change).await
}

/// Makes sure that the Secrets with the authority and with the certificate exist, and renews what is due.
pub(crate) async fn tls(memcached: &Memcached, ctx: &Context<Memcached, Config>) -> Result<Made, Error> {
    let (policy, now) = (policy(memcached), ctx.now());
    let change = |stored: &Content| {
        let renewed = pki::authority(pair(&stored.values, "ca").as_ref(), &policy, now)?;
        Ok(renewed.map_or_else(Content::default, |it| values("ca", it).into()))
    };
    let authority = match make(memcached, ctx, authority_secret(memcached), "Opaque", change).await? {
        Made::Holds { values, .. } => {
            pair(&values, "ca").ok_or_else(|| Error::Other("the authority has no key".into()))?
        }
        waits @ Made::Waits(_) => return Ok(waits),
    };
    let change = |stored: &Content| {
        let before = stored.values.get("ca.crt").and_then(|it| std::str::from_utf8(it).ok());
        let noted = stored.annotations.get(TRUSTED_SINCE).and_then(|it| it.parse().ok());
        let serving = pair(&stored.values, "tls");
        let trusted = pki::trusted(&authority, before, now);
        let since = pki::trusted_since(&authority, (before, serving.as_ref()), noted, now);
        let renewed = pki::serving(&authority, (&trusted, since), serving.as_ref(), &policy, now)?;
        let mut change = renewed.map_or_else(Content::default, |it| values("tls", it).into());
        if before != Some(trusted.as_str()) {
            change.values.insert("ca.crt".to_owned(), trusted.into_bytes());
        }
        if let Some(since) = since.filter(|_| since != noted) {
            change.annotations.insert(TRUSTED_SINCE.to_owned(), since.to_string());
        }
        Ok(change)
    };
    make(memcached, ctx, tls_secret(memcached), "kubernetes.io/tls", change).await
}

fn policy(memcached: &Memcached) -> Policy {
    let (name, namespace) = (memcached.name_any(), memcached.namespace().unwrap_or_default());
    let days = |days: i32| DAY * days;
    let tls = memcached.spec.tls.clone().unwrap_or_default();
    Policy {
        names: vec![
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}.svc.cluster.local"),
            format!("{name}.{namespace}"),
            name,
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
        ],
        validity: days(tls.validity_days()),
        renewal: days(tls.renewal_days()),
    }
}

/// Returns the values that change so that the Secret holds a user and a password, also in the form that memcached reads. Keeps those
/// that are usable, without the line break that `echo` adds.
fn passwords(stored: &Values, token: impl FnOnce() -> String) -> Values {
    let word = |key: &str| {
        let word = stored.get(key).and_then(|value| std::str::from_utf8(value).ok())?.trim_end_matches(['\r', '\n']);
        let usable = (1..=100).contains(&word.len()) && word.chars().all(|it| it.is_ascii_graphic());
        usable.then_some(word)
    };
    let username = word("username").filter(|it| !it.contains(':')).unwrap_or(USERNAME);
    let password = word("password").map_or_else(token, str::to_owned);
    let file = format!("{username}:{password}\n");
    let wanted = [("username", username), ("password", &password), (PASSWORD_FILE, &file)];
    let wanted = wanted.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
    wanted.into_iter().filter(|(key, value)| stored.get(key) != Some(value)).collect()
}

fn pair(values: &Values, name: &str) -> Option<Pair> {
    let text = |kind: &str| String::from_utf8(values.get(&format!("{name}.{kind}"))?.clone()).ok();
    Some(Pair { certificate: text("crt")?, key: text("key")? })
}

fn values(name: &str, pair: Pair) -> Values {
    [("crt", pair.certificate), ("key", pair.key)]
        .map(|(kind, text)| (format!("{name}.{kind}"), text.into_bytes()))
        .into()
}

/// Whose a Secret is.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    /// This Memcached's.
    Us,
    /// It has no owner, but our labels: an earlier Memcached of this name left it behind.
    Orphan,
    /// That of an earlier Memcached of this name: the garbage collector is about to delete it.
    Former,
    Other,
}

fn owner(secret: &ObjectMeta, memcached: &Memcached) -> Owner {
    let controller = secret.owner_references.iter().flatten().find(|it| it.controller == Some(true));
    let labels = App::of(memcached).labels();
    match controller {
        Some(it) if Some(&it.uid) == memcached.metadata.uid.as_ref() => Owner::Us,
        Some(it) if it.kind == Memcached::kind(&()) && it.name == memcached.name_any() => Owner::Former,
        None if labels.iter().all(|(key, value)| secret.labels.as_ref().and_then(|it| it.get(key)) == Some(value)) => {
            Owner::Orphan
        }
        _ => Owner::Other,
    }
}

/// Makes sure that the Secret exists and has the content of `change`, which gets what it has already.
async fn make(
    memcached: &Memcached,
    ctx: &Context<Memcached, Config>,
    name: String,
    type_: &str,
    change: impl Fn(&Content) -> Result<Content, pki::Error>,
) -> Result<Made, Error> {
    ctx.requeue_at(ctx.now() + AGAIN);
    let api: Api<Secret> = Api::namespaced(ctx.client(), &memcached.namespace().unwrap_or_default());
    let found = match api.get_opt(&name).await {
        Ok(found) => found,
        Err(error) => return refused(&name, error),
    };
    let owner = found.as_ref().map(|it| owner(&it.metadata, memcached));
    if let Some(Owner::Other) = owner {
        let message = format!("Secret \"{name}\" already exists and is not managed by Memcached");
        let cure = "delete this Secret if it is not needed, or use another name";
        return Ok(Made::Waits(Some(Problem::new(ProblemKind::RESOURCE_CONFLICT, message).with_cure(cure))));
    }
    if let Some(Owner::Former) = owner {
        ctx.requeue_at(ctx.now() + SOON);
        return Ok(Made::Waits(None));
    }
    let data = found.as_ref().and_then(|it| it.data.clone()).unwrap_or_default();
    let stored = Content {
        values: data.into_iter().map(|(key, value)| (key, value.0)).collect(),
        annotations: found.as_ref().map(|it| it.annotations().clone()).unwrap_or_default(),
    };
    let change = change(&stored).map_err(|error| Error::Other(error.into()))?;
    let mut values = stored.values;
    values.extend(change.values.clone());
    if change.is_empty() && owner == Some(Owner::Us) {
        let uid = found.as_ref().and_then(ResourceExt::uid).unwrap_or_default();
        return Ok(Made::Holds { uid, values });
    }
    let mut metadata = App::of(memcached).metadata(name.clone());
    metadata.owner_references =
        memcached.controller_owner_ref(&()).map(|it| vec![OwnerReference { block_owner_deletion: Some(true), ..it }]);
    metadata.annotations = Some(change.annotations).filter(|it| !it.is_empty());
    let data: BTreeMap<_, _> = change.values.into_iter().map(|(key, value)| (key, ByteString(value))).collect();
    let written = match &found {
        None => {
            let secret = Secret { metadata, data: Some(data), type_: Some(type_.to_owned()), ..Default::default() };
            api.create(&PostParams::default(), &secret).await
        }
        // Only if the Secret is still the one that was read.
        Some(found) => {
            metadata.resource_version = found.resource_version();
            let patch = Patch::Merge(json!({"metadata": metadata, "data": data}));
            api.patch(&name, &PatchParams::default(), &patch).await
        }
    };
    let uid = match written {
        Ok(secret) => secret.uid().unwrap_or_default(),
        Err(error) => return refused(&name, error),
    };
    let did = if found.is_some() { "updated" } else { "created" };
    ctx.event(EventType::Normal, "SecretGenerated", format!("{did} Secret \"{name}\""));
    Ok(Made::Holds { uid, values })
}

/// Turns an answer that a user or the administrator has to act on into a problem, so that the other children stay in sync. Returns any
/// other error, to be retried.
fn refused(name: &str, error: kube::Error) -> Result<Made, Error> {
    let kind = match classify(&error) {
        Class::Forbidden => ProblemKind::FORBIDDEN,
        Class::Quota => ProblemKind::QUOTA_EXCEEDED,
        Class::Rejected => ProblemKind::CHILD_REJECTED,
        _ => return Err(error.into()),
    };
    Ok(Made::Waits(Some(Problem::new(kind, format!("Secret \"{name}\": {}", chain(&error))))))
}

#[cfg(test)]
mod tests;
