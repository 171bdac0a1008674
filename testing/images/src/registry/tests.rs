use axum::http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use tempfile::TempDir;
use tower::ServiceExt as _;

use super::*;
use crate::{Image, ImageSpec, Layer, Reference};

struct Fixture {
    router: Router,
    image: Image,
    _folder: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let image = |name, content: Vec<u8>| {
            let mut files = Layer::new();
            files.file("/content", content, 0o644);
            let references = vec![Reference::parse(name).unwrap()];
            ImageSpec { references, files, ..ImageSpec::default() }.build().unwrap()
        };
        store.put(&image("localhost/pause:1", vec![1])).unwrap();
        // Longer than one chunk of a streamed body.
        let image = image("memcached:1.6", vec![7; 600_000]);
        store.put(&image).unwrap();
        Self { router: router(store), image, _folder: folder }
    }

    async fn ask(&self, method: &str, path: &str) -> (StatusCode, HeaderMap, Bytes) {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        (parts.status, parts.headers, body.collect().await.unwrap().to_bytes())
    }

    async fn refused(&self, method: &str, path: &str) -> (u16, String) {
        let (status, _, body) = self.ask(method, path).await;
        let body: Value = serde_json::from_slice(&body).unwrap();
        (status.as_u16(), body["errors"][0]["code"].as_str().unwrap().to_owned())
    }
}

#[tokio::test]
async fn pull_returns_exact_manifest_and_blobs() {
    let registry = Fixture::new();
    assert_eq!(registry.ask("GET", "/v2/").await.0, 200);

    let (status, headers, manifest) = registry.ask("GET", "/v2/library/memcached/manifests/1.6?ns=docker.io").await;
    assert_eq!((status.as_u16(), &manifest[..]), (200, &registry.image.manifest[..]));
    assert_eq!(headers["content-type"], "application/vnd.oci.image.manifest.v1+json");
    assert_eq!(headers["docker-content-digest"], registry.image.digest().to_string());

    let by_digest = format!("/v2/library/memcached/manifests/{}?ns=docker.io", registry.image.digest());
    assert_eq!(registry.ask("GET", &by_digest).await.2, manifest);
    for blob in [&registry.image.config, &registry.image.layer] {
        let path = format!("/v2/library/memcached/blobs/{}?ns=docker.io", Digest::of(blob));
        let (status, headers, body) = registry.ask("GET", &path).await;
        assert_eq!((status.as_u16(), &body[..]), (200, &blob[..]));
        assert_eq!(headers["content-length"], blob.len().to_string());
    }
}

#[tokio::test]
async fn head_returns_digest_and_length_without_body() {
    let registry = Fixture::new();
    let (status, headers, body) = registry.ask("HEAD", "/v2/library/memcached/manifests/1.6?ns=docker.io").await;
    assert_eq!((status.as_u16(), body.len()), (200, 0));
    assert_eq!(headers["content-length"], registry.image.manifest.len().to_string());
    assert_eq!(headers["docker-content-digest"], registry.image.digest().to_string());
}

#[tokio::test]
async fn ns_parameter_selects_registry() {
    let registry = Fixture::new();
    for path in [
        "/v2/pause/manifests/1?ns=localhost",
        "/v2/localhost/pause/manifests/1",
        "/v2/library/memcached/manifests/1.6",
        "/v2/memcached/manifests/1.6",
    ] {
        assert_eq!(registry.ask("GET", path).await.0, 200, "{path}");
    }
    let elsewhere = registry.refused("GET", "/v2/library/memcached/manifests/1.6?ns=quay.io").await;
    assert_eq!(elsewhere, (404, "NAME_UNKNOWN".to_owned()));
}

#[tokio::test]
async fn tags_are_listed() {
    let registry = Fixture::new();
    let (_, _, body) = registry.ask("GET", "/v2/library/memcached/tags/list?ns=docker.io").await;
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body, json!({ "name": "library/memcached", "tags": ["1.6"] }));
}

#[tokio::test]
async fn missing_content_gets_404_with_specific_code() {
    let registry = Fixture::new();
    let other = Digest::of(b"other");
    for (path, code) in [
        ("/v2/library/my-awesome-cron-image/manifests/latest?ns=docker.io".to_owned(), "NAME_UNKNOWN"),
        ("/v2/library/memcached/manifests/1.7?ns=docker.io".to_owned(), "MANIFEST_UNKNOWN"),
        (format!("/v2/library/memcached/manifests/{other}?ns=docker.io"), "MANIFEST_UNKNOWN"),
        (format!("/v2/library/memcached/blobs/{other}?ns=docker.io"), "BLOB_UNKNOWN"),
        ("/v2/library/memcached/blobs/..%2f..%2findex.json?ns=docker.io".to_owned(), "NOT_FOUND"),
        (format!("/v2/pause/blobs/{}?ns=localhost", Digest::of(&registry.image.layer)), "BLOB_UNKNOWN"),
        ("/v2/nonsense".to_owned(), "NOT_FOUND"),
        ("/".to_owned(), "NOT_FOUND"),
    ] {
        assert_eq!(registry.refused("GET", &path).await, (404, code.to_owned()), "{path}");
    }
}

#[tokio::test]
async fn write_requests_get_405() {
    let registry = Fixture::new();
    for (method, path) in [
        ("PUT", "/v2/library/memcached/manifests/1.6"),
        ("POST", "/v2/library/memcached/blobs/uploads/"),
        ("DELETE", "/v2/library/memcached/manifests/1.6"),
        ("POST", "/v2/"),
    ] {
        assert_eq!(registry.refused(method, path).await, (405, "UNSUPPORTED".to_owned()), "{method} {path}");
    }
}
