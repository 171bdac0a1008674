//! Sends a release to its registry. Everything goes under its digest first; the two tags come last, so that neither ever names
//! something incomplete.

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use images::Store;
use images::image::MANIFEST;
use images::reference::Repository;
use registry_client::image::push_digest;
use registry_client::{Client, Name, Pushed};
use serde_json::{Value, json};

use crate::artifacts::Bill;
use crate::oci::{CYCLONEDX, EMPTY_CONFIG, INDEX};
use crate::{Artifacts, Plan};

/// Pushes the release. Returns how many bytes crossed the network; 0 if the registry had everything already.
///
/// # Errors
///
/// Also if the registry has another release under this version. A version never changes.
pub async fn publish(client: &Client, store: &Store, plan: &Plan, artifacts: &Artifacts) -> Result<u64> {
    let (image, chart, tag) = (plan.image(), plan.chart(), Name::Tag(plan.version.to_string()));
    for (repository, ours) in [(&image, artifacts.index.digest()), (&chart, artifacts.chart.digest())] {
        match client.digest(repository, &tag).await? {
            Some(theirs) if theirs != ours => bail!(
                "{repository}{tag} was released before, with the digest {theirs} instead of {ours}: a released version never \
                 changes, so choose the next one"
            ),
            _ => {}
        }
    }
    let mut bytes = 0;
    for part in &artifacts.images {
        let name = Name::Digest(part.digest.clone());
        bytes += push_digest(client, store, &part.digest, &image, &name).await?.bytes;
    }
    let mut count = |pushed, content: &[u8]| bytes += if pushed == Pushed::Uploaded { content.len() as u64 } else { 0 };
    for bill in &artifacts.bills {
        for blob in [&Bytes::from_static(EMPTY_CONFIG), &bill.content] {
            count(client.push_blob(&image, blob, None).await?, blob);
        }
        count(attach(client, &image, bill).await?, &bill.manifest.content);
    }
    for blob in [&artifacts.package.config, &artifacts.package.content] {
        count(client.push_blob(&chart, blob, None).await?, blob);
    }
    for (repository, document) in [(&image, &artifacts.index), (&chart, &artifacts.chart)] {
        let content = &document.content;
        count(client.push_manifest(repository, &tag, document.media_type, content).await?, content);
    }
    Ok(bytes)
}

/// Pushes the manifest of a bill of materials. Then clients find it by the image that it describes.
async fn attach(client: &Client, repository: &Repository, bill: &Bill) -> Result<Pushed> {
    let (manifest, digest) = (&bill.manifest, bill.manifest.digest());
    let pushed =
        client.push_manifest(repository, &Name::Digest(digest.clone()), manifest.media_type, &manifest.content).await?;
    if client.referrers(repository, &bill.subject).await?.contains(&digest) {
        return Ok(pushed);
    }
    // The registry keeps no list itself. Then the client keeps one, under a tag that the specification prescribes.
    let tag = Name::Tag(format!("sha256-{}", bill.subject.hex()));
    let mut list = match client.manifest(repository, &tag).await? {
        Some(list) => serde_json::from_slice(&list.content).with_context(|| format!("{repository}{tag}"))?,
        None => json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}),
    };
    let entry = json!({
        "mediaType": MANIFEST,
        "digest": digest,
        "size": manifest.content.len(),
        "artifactType": CYCLONEDX,
    });
    list["manifests"].as_array_mut().with_context(|| format!("{repository}{tag} is not an index"))?.push(entry);
    client.push_manifest(repository, &tag, INDEX, &Bytes::from(Value::to_string(&list))).await?;
    Ok(pushed)
}
