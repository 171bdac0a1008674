//! Sends a release to its registry. Everything goes under its digest first; the two tags come last, so that neither ever names
//! something incomplete.

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use images::reference::Repository;
use images::{Digest, Store};
use registry_client::image::push_digest;
use registry_client::{Client, Name, Pushed};
use serde::Deserialize;

use crate::cosign::{BUNDLE, Signer};
use crate::oci::{Annotations, Attachment, Document, EMPTY_CONFIG};
use crate::statement::{IN_TOTO, Statement};
use crate::{Artifacts, Plan};

/// Asks the registry before the builds, which take long: whether this user may push, and what the version has there already. Returns
/// a line for each tag of the version that exists. A release that broke off, or is complete, goes on only with the same digests.
///
/// # Errors
///
/// If there is no such registry, or it refuses this user.
pub async fn preflight(client: &Client, plan: &Plan) -> Result<Vec<String>> {
    let (repositories, tag) = ([plan.image(), plan.chart()], Name::Tag(plan.version.to_string()));
    for repository in &repositories {
        client.check_push(repository).await?;
    }
    let mut released = Vec::new();
    for repository in &repositories {
        if let Some(digest) = client.digest(repository, &tag).await? {
            released.push(format!("{repository}{tag} exists with the digest {digest}"));
        }
    }
    Ok(released)
}

/// Pushes the release, with signatures if there is a signer. Returns how many bytes crossed the network; 0 if the registry had
/// everything already.
///
/// # Errors
///
/// Also if the registry has another release under this version. A version never changes.
pub async fn publish(
    client: &Client,
    store: &Store,
    plan: &Plan,
    artifacts: &Artifacts,
    signer: Option<&Signer>,
) -> Result<u64> {
    let (image, chart, tag) = (plan.image(), plan.chart(), Name::Tag(plan.version.to_string()));
    let tagged = [(&image, &artifacts.index), (&chart, &artifacts.chart)];
    for (repository, document) in tagged {
        match client.digest(repository, &tag).await? {
            Some(theirs) if theirs != document.digest() => bail!(
                "{repository}{tag} was released before, with the digest {theirs} instead of {}: a released version never \
                 changes, so choose the next one",
                document.digest()
            ),
            _ => {}
        }
    }
    let mut bytes = 0;
    for part in &artifacts.images {
        let name = Name::Digest(part.digest.clone());
        bytes += push_digest(client, store, &part.digest, &image, &name).await?.bytes;
    }
    for bill in &artifacts.bills {
        bytes += attach(client, &image, bill).await?;
    }
    for blob in [&artifacts.package.config, &artifacts.package.content] {
        bytes += sent(client.push_blob(&chart, blob).await?, blob);
    }
    for (repository, document) in tagged {
        bytes += push(client, repository, &Name::Digest(document.digest()), document).await?;
        if let Some(signer) = signer {
            bytes +=
                attach_signed(client, repository, document, &Statement::signature(&document.digest())?, signer).await?;
            bytes += attach_signed(client, repository, document, &artifacts.provenance, signer).await?;
        } else {
            let content = artifacts.provenance.content.clone();
            let unsigned = Attachment::new(document, IN_TOTO, content, Annotations::new())?;
            bytes += attach(client, repository, &unsigned).await?;
        }
    }
    for (repository, document) in tagged {
        bytes += push(client, repository, &tag, document).await?;
    }
    Ok(bytes)
}

fn sent(pushed: Pushed, content: &[u8]) -> u64 {
    if pushed == Pushed::Uploaded { content.len() as u64 } else { 0 }
}

async fn push(client: &Client, repository: &Repository, name: &Name, document: &Document) -> Result<u64> {
    let Document { media_type, content } = document;
    Ok(sent(client.push_manifest(repository, name, media_type, content).await?, content))
}

/// Signs the statement and attaches it, unless it is attached with a signature of this signer. No two signatures are equal, so a
/// repeated release would attach more and more of them.
async fn attach_signed(
    client: &Client,
    repository: &Repository,
    subject: &Document,
    statement: &Statement,
    signer: &Signer,
) -> Result<u64> {
    for referrer in client.referrers(repository, &subject.digest()).await? {
        if let Some(bundle) = attached(client, repository, &referrer, BUNDLE).await?
            && signer.has_signed(statement, &bundle)?
        {
            return Ok(0);
        }
    }
    let annotations = [("content", "dsse-envelope"), ("predicateType", statement.predicate_type)];
    let annotations = annotations.map(|(name, value)| (format!("dev.sigstore.bundle.{name}"), value.to_owned())).into();
    let bundle = Attachment::new(subject, BUNDLE, signer.sign(statement)?, annotations)?;
    attach(client, repository, &bundle).await
}

/// What a referrer of this kind attaches; `None` if it is of another kind.
async fn attached(client: &Client, repository: &Repository, referrer: &Digest, kind: &str) -> Result<Option<Bytes>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Manifest {
        artifact_type: Option<String>,
        layers: Vec<images::image::Descriptor>,
    }
    let Some(manifest) = client.manifest(repository, &Name::Digest(referrer.clone())).await? else { return Ok(None) };
    // What others attach may be no manifest at all.
    let Ok(manifest) = serde_json::from_slice::<Manifest>(&manifest.content) else { return Ok(None) };
    match manifest.layers.as_slice() {
        [only] if manifest.artifact_type.as_deref() == Some(kind) => {
            Ok(Some(client.blob(repository, &only.digest, only.size).await?))
        }
        _ => Ok(None),
    }
}

/// Pushes an attachment. Then clients find it by what it is about. Returns how many bytes crossed the network.
pub async fn attach(client: &Client, repository: &Repository, attachment: &Attachment) -> Result<u64> {
    let mut bytes = 0;
    for blob in [&Bytes::from_static(EMPTY_CONFIG), &attachment.content] {
        bytes += sent(client.push_blob(repository, blob).await?, blob);
    }
    let digest = attachment.manifest.digest();
    bytes += push(client, repository, &Name::Digest(digest.clone()), &attachment.manifest).await?;
    if client.referrers(repository, &attachment.subject).await?.contains(&digest) {
        return Ok(bytes);
    }
    // The registry keeps no list itself. Then the client keeps one, under a tag that the specification prescribes.
    let tag = Name::of_referrers(&attachment.subject);
    let before = client.list_of_referrers(repository, &attachment.subject).await?;
    let list = attachment.listed_after(before.as_ref().map(|list| &*list.content));
    push(client, repository, &tag, &list.with_context(|| format!("{repository}{tag}"))?).await?;
    Ok(bytes)
}
