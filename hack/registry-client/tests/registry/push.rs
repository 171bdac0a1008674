//! Pushing and pulling without disturbances.

use std::fs;
use std::net::TcpListener;

use bytes::Bytes;
use hyper::Method;
use images::{Digest, Reference, Store};
use registry_client::{Client, Credentials, Name, Pushed, image};

use crate::kit::{Content, Fate, INDEX, MANIFEST, Proxy, Seen, anonymous, client, content, repository};
use registry::Registry;

/// Pushes the whole image under the tag `1`; returns what each step did.
pub(crate) async fn push(
    client: &Client,
    to: &images::reference::Repository,
    content: &Content,
) -> anyhow::Result<Vec<Pushed>> {
    let mut pushed = Vec::new();
    for blob in &content.blobs {
        pushed.push(client.push_blob(to, blob).await?);
    }
    let manifest = Name::Digest(Digest::of(&content.manifest));
    pushed.push(client.push_manifest(to, &manifest, MANIFEST, &content.manifest).await?);
    pushed.push(client.push_manifest(to, &Name::Tag("1".to_owned()), INDEX, &content.index).await?);
    Ok(pushed)
}

/// Pulls everything, starting at the tag, and compares it.
pub(crate) async fn assert_complete(client: &Client, of: &images::reference::Repository, content: &Content) {
    let index = client.manifest(of, &Name::Tag("1".to_owned())).await.unwrap().expect("the tag exists");
    assert_eq!(index.content, content.index);
    let manifest = client.manifest(of, &Name::Digest(Digest::of(&content.manifest))).await.unwrap();
    assert_eq!(manifest.expect("the manifest exists").content, content.manifest);
    for blob in &content.blobs {
        assert_eq!(client.blob(of, &Digest::of(blob), blob.len() as u64).await.unwrap(), *blob);
    }
}

fn uploads(seen: &[Seen]) -> Vec<&Method> {
    seen.iter()
        .map(|request| &request.method)
        .filter(|method| !matches!(**method, Method::GET | Method::HEAD))
        .collect()
}

#[tokio::test]
async fn pushed_index_can_be_pulled_and_nothing_is_sent_twice() {
    let registry = Registry::start().unwrap();
    let proxy = Proxy::before(&registry).await;
    let (repository, content) = (proxy.repository("team/app"), content(1, 10_000));
    let pushed = push(&proxy.client(Credentials::Anonymous), &repository, &content).await.unwrap();
    assert_eq!(pushed, [Pushed::Uploaded; 4]);
    proxy.seen();

    // Another process pushes the same.
    let other = proxy.client(Credentials::Anonymous);
    assert_eq!(push(&other, &repository, &content).await.unwrap(), [Pushed::Existed; 4]);
    assert_eq!(uploads(&proxy.seen()), [&Method::GET; 0], "it sent something again");
    assert_complete(&other, &repository, &content).await;

    let tag = |tag: &str| Name::Tag(tag.to_owned());
    assert_eq!(other.digest(&repository, &tag("1")).await.unwrap(), Some(Digest::of(&content.index)));
    assert_eq!(other.digest(&repository, &tag("2")).await.unwrap(), None);
    assert_eq!(other.manifest(&repository, &tag("2")).await.unwrap(), None);
    assert_eq!(other.digest(&proxy.repository("unknown/app"), &tag("1")).await.unwrap(), None);
}

#[tokio::test]
async fn tag_moves_to_the_pushed_manifest() {
    let registry = Registry::start().unwrap();
    let (client, repository) = (client(registry.address, Credentials::Anonymous), repository(registry.address, "app"));
    let (first, second) = (content(1, 10), content(2, 10));
    push(&client, &repository, &first).await.unwrap();
    push(&client, &repository, &second).await.unwrap();
    assert_complete(&client, &repository, &second).await;
}

#[tokio::test]
async fn large_blob_goes_in_pieces_if_the_registry_refuses_it_whole() {
    let registry = Registry::start().unwrap();
    let proxy = Proxy::before(&registry).await;
    let (repository, content) = (proxy.repository("app"), content(1, 9_000_000));
    proxy.decide(
        |_, request| {
            if request.sent > 5_000_000 { crate::kit::Fate::status(413) } else { crate::kit::Fate::Pass }
        },
    );
    let client = proxy.client(Credentials::Anonymous);
    assert_eq!(push(&client, &repository, &content).await.unwrap(), [Pushed::Uploaded; 4]);
    let seen = proxy.seen();
    let pieces = seen.iter().filter(|request| request.method == Method::PATCH).map(|request| request.sent);
    let pieces: Vec<_> = pieces.collect();
    assert!(pieces.len() == 3 && pieces.iter().sum::<usize>() == content.blobs[0].len(), "{pieces:?}");
    assert_complete(&client, &repository, &content).await;
}

#[tokio::test]
async fn empty_blob_can_be_pushed() {
    let registry = Registry::start().unwrap();
    let (client, repository) = (client(registry.address, Credentials::Anonymous), repository(registry.address, "app"));
    let empty = Bytes::new();
    assert_eq!(client.push_blob(&repository, &empty).await.unwrap(), Pushed::Uploaded);
    assert_eq!(client.blob(&repository, &Digest::of(&empty), 0).await.unwrap(), empty);
}

/// Its upload begins and ends, so that no registry keeps it.
#[tokio::test]
async fn question_whether_a_push_is_allowed_sends_nothing() {
    let registry = Registry::start().unwrap();
    let proxy = Proxy::before(&registry).await;
    let (client, repository) = (proxy.client(Credentials::Anonymous), proxy.repository("team/app"));
    client.check_push(&repository).await.unwrap();
    let seen = proxy.seen();
    let uploads: Vec<_> = seen.iter().filter(|it| it.uri.path().starts_with("/v2/team/app/blobs/uploads/")).collect();
    let of: Vec<_> = uploads.iter().map(|request| (request.method.as_str(), request.status)).collect();
    assert_eq!(of, [("POST", Some(202)), ("DELETE", Some(204))]);
    assert!(seen.iter().all(|request| request.sent == 0), "{seen:?}");
}

#[tokio::test]
async fn upload_that_the_registry_cannot_cancel_does_no_harm() {
    let (_registry, proxy, client, repository) = anonymous().await;
    for fate in [Fate::status(405), Fate::BreakBefore] {
        proxy.decide(move |_, request| if request.method == Method::DELETE { fate.clone() } else { Fate::Pass });
        client.check_push(&repository).await.unwrap();
        let cancelled = proxy.seen().iter().filter(|request| request.method == Method::DELETE).count();
        assert!(cancelled > 0);
    }
    proxy.decide(|_, request| if request.method == Method::POST { Fate::status(202) } else { Fate::Pass });
    client.check_push(&repository).await.unwrap(); // an answer without a Location
}

#[tokio::test]
async fn tampered_content_is_refused() {
    let (registry, proxy, client, repository) = anonymous().await;
    let content = content(1, 10_000);
    push(&client, &repository, &content).await.unwrap();

    let (digest, size) = (Digest::of(&content.blobs[0]), content.blobs[0].len() as u64);
    let mut tampered = content.blobs[0].to_vec();
    tampered[600] ^= 1;
    fs::write(registry.file(&digest), &tampered).unwrap();
    proxy.seen();
    let error = format!("{:#}", client.blob(&repository, &digest, size).await.unwrap_err());
    assert!(error.contains(&digest.to_string()) && error.contains(&Digest::of(&tampered).to_string()), "{error}");
    let asked = proxy.seen().iter().filter(|request| request.uri.path().contains("/blobs/")).count();
    assert_eq!(asked, 1, "it asked again");

    let manifest = Digest::of(&content.manifest);
    let tampered = String::from_utf8(content.manifest.to_vec()).unwrap().replace("layers\":[", "layers\": [");
    fs::write(registry.file(&manifest), tampered).unwrap();
    assert!(client.manifest(&repository, &Name::Digest(manifest)).await.is_err());

    let wrong = Name::Digest(Digest::of(b"other"));
    let error = client.push_manifest(&repository, &wrong, MANIFEST, &content.manifest).await.unwrap_err();
    assert!(error.to_string().contains("has the digest"), "{error}");
}

#[tokio::test]
async fn blob_with_another_length_is_refused() {
    let registry = Registry::start().unwrap();
    let (client, repository) = (client(registry.address, Credentials::Anonymous), repository(registry.address, "app"));
    let blob = Bytes::from(vec![1; 1000]);
    client.push_blob(&repository, &blob).await.unwrap();
    for size in [0, 999, 1001] {
        let error = client.blob(&repository, &Digest::of(&blob), size).await.unwrap_err();
        assert!(error.to_string().ends_with(&format!("does not have {size} bytes")), "{error}");
    }
}

#[tokio::test]
async fn image_of_the_store_keeps_its_digest() {
    let (folder, registry) = (tempfile::tempdir().unwrap(), Registry::start().unwrap());
    let (store, from) = (Store::open(folder.path()).unwrap(), Reference::parse("localhost/app:dev").unwrap());
    let image = images::ImageSpec { references: vec![from.clone()], ..images::ImageSpec::default() }.build().unwrap();
    store.put(&image).unwrap();
    let client = client(registry.address, Credentials::Anonymous);
    let to = Reference { repository: repository(registry.address, "team/app"), tag: "1.2.3".to_owned() };

    let sent = image::push(&client, &store, &from, &to).await.unwrap();
    let length = image.layer.len() + image.config.len() + image.manifest.len();
    assert_eq!((sent.digest, sent.bytes), (image.digest(), length as u64));
    assert_eq!(client.digest(&to.repository, &Name::Tag(to.tag.clone())).await.unwrap(), Some(image.digest()));
    assert_eq!(image::push(&client, &store, &from, &to).await.unwrap().bytes, 0);
    let error = image::push(&client, &store, &from.with_tag("2"), &to).await.unwrap_err();
    assert!(error.to_string().contains("localhost/app:2 is not in"), "{error}");
}

#[tokio::test]
async fn own_registry_serves_this_client_and_refuses_its_push() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let image = images::ImageSpec {
        references: vec![Reference::parse("docker.io/library/app:1").unwrap()],
        ..images::ImageSpec::default()
    };
    let image = image.build().unwrap();
    store.put(&image).unwrap();
    let root = folder.path().to_owned();
    std::thread::spawn(move || images::serve(listener, &root));

    let (client, app) = (client(address, Credentials::Anonymous), repository(address, "app"));
    let manifest = client.manifest(&app, &Name::Tag("1".to_owned())).await.unwrap().expect("it is served");
    assert_eq!(manifest.content, image.manifest);
    let config = client.blob(&app, &Digest::of(&image.config), image.config.len() as u64).await.unwrap();
    assert_eq!(config, image.config);
    let error = format!("{:#}", client.push_blob(&app, &Bytes::from_static(b"new")).await.unwrap_err());
    assert!(error.contains("405") && error.contains("read-only"), "{error}");
}

/// As of Amazon ECR. The library takes the end of the URL for the tag then.
#[tokio::test]
async fn answer_to_a_manifest_needs_no_location() {
    let registry = Registry::start().unwrap();
    let proxy = Proxy::before(&registry).await;
    let (client, repository, content) =
        (proxy.client(Credentials::Anonymous), proxy.repository("app"), content(1, 100));
    proxy.decide(|_, request| if request.method == Method::PUT { Fate::status(201) } else { Fate::Pass });
    for name in [Name::Digest(Digest::of(&content.manifest)), Name::Tag("1".to_owned())] {
        let pushed = client.push_manifest(&repository, &name, MANIFEST, &content.manifest).await.unwrap();
        assert!(matches!(pushed, Pushed::Uploaded), "{name}");
    }
}
