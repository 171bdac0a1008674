//! A read-only registry that serves a [`Store`], so that a node can pull these images under the names in the samples.
//!
//! containerd requests `/v2/<path>/…?ns=<registry>` from a mirror, so one server can stand in for any registry. Without `ns`, the
//! path is a name as users write it. For every image that the store does not have, the answer is 404 at once. So a sample with an
//! image that does not exist fails here as everywhere else.

use std::io;
use std::net::SocketAddr;
use std::path::Path as FilePath;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::image::MANIFEST;
use crate::reference::Repository;
use crate::store::Stored;
use crate::{Digest, Store};

/// Serves the store until the process ends.
pub fn serve(listener: std::net::TcpListener, store: &FilePath) -> io::Result<()> {
    let store = Store::open(store).map_err(io::Error::other)?;
    listener.set_nonblocking(true)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, router(store)).await
    })
}

/// containerd's `hosts.toml`, which replaces a registry with this one at `address`. In the folder `_default`, it replaces all
/// registries.
///
/// The `server` is this registry too, so an unknown image fails at once: containerd has no other registry to try.
pub fn hosts_toml(address: SocketAddr) -> String {
    format!("server = \"http://{address}\"\n\n[host.\"http://{address}\"]\ncapabilities = [\"pull\", \"resolve\"]\n")
}

/// The routes of the registry.
pub fn router(store: Store) -> Router {
    Router::new()
        .route("/v2/", get(|| async { json_response(StatusCode::OK, &json!({})) }))
        .route("/v2/{*path}", get(answer))
        .fallback(|| async { refuse(Refusal::NotFound) })
        .method_not_allowed_fallback(|| async { refuse(Refusal::ReadOnly) })
        .with_state(store)
}

/// A request about a repository.
#[derive(Debug, PartialEq, Eq)]
enum Question<'a> {
    Manifest(&'a str),
    Blob(&'a str),
    Tags,
}

/// The reason of an error response, as in the OCI distribution specification.
#[derive(Clone, Copy)]
enum Refusal {
    NotFound,
    NameUnknown,
    ManifestUnknown,
    BlobUnknown,
    ReadOnly,
}

#[derive(Deserialize)]
struct Namespace {
    ns: Option<String>,
}

async fn answer(
    State(store): State<Store>,
    method: Method,
    Path(path): Path<String>,
    Query(Namespace { ns }): Query<Namespace>,
) -> Response {
    let Some((name, question)) = parse(&path) else { return refuse(Refusal::NotFound) };
    let repository = match ns {
        Some(registry) => Some(Repository { registry, path: name.to_owned() }),
        None => Repository::parse(name).ok(),
    };
    let Some(repository) = repository else { return refuse(Refusal::NameUnknown) };
    look_up(&store, &method, &repository, &question).await.unwrap_or_else(|error| {
        json_response(StatusCode::INTERNAL_SERVER_ERROR, &errors("UNKNOWN", &format!("{error:#}")))
    })
}

async fn look_up(store: &Store, method: &Method, repository: &Repository, question: &Question<'_>) -> Result<Response> {
    // Each request reads the index, which is small. So a node can at once pull an image that was built while the cluster runs.
    let mut images = store.list()?;
    images.retain(|stored| stored.reference.repository == *repository);
    if images.is_empty() {
        return Ok(refuse(Refusal::NameUnknown));
    }
    match question {
        Question::Manifest(tag_or_digest) => {
            let wanted = |stored: &&Stored| {
                stored.reference.tag == *tag_or_digest || stored.digest.to_string() == *tag_or_digest
            };
            match images.iter().find(wanted) {
                Some(stored) => blob(store, method, &stored.digest, MANIFEST).await,
                None => Ok(refuse(Refusal::ManifestUnknown)),
            }
        }
        Question::Blob(digest) => match Digest::parse(digest) {
            Ok(digest) if holds(store, &images, &digest)? => {
                blob(store, method, &digest, "application/octet-stream").await
            }
            _ => Ok(refuse(Refusal::BlobUnknown)),
        },
        Question::Tags => {
            let tags: Vec<_> = images.iter().map(|stored| &stored.reference.tag).collect();
            Ok(json_response(StatusCode::OK, &json!({ "name": repository.path, "tags": tags })))
        }
    }
}

/// Splits paths such as `<name>/manifests/<reference>`. A name may contain slashes.
fn parse(path: &str) -> Option<(&str, Question<'_>)> {
    if let Some(name) = path.strip_suffix("/tags/list") {
        return Some((name, Question::Tags));
    }
    let (rest, last) = path.rsplit_once('/')?;
    match rest.rsplit_once('/')? {
        (name, "manifests") => Some((name, Question::Manifest(last))),
        (name, "blobs") => Some((name, Question::Blob(last))),
        _ => None,
    }
}

/// Whether one of the images contains this blob.
fn holds(store: &Store, images: &[Stored], digest: &Digest) -> Result<bool> {
    for stored in images {
        let manifest = store.manifest(&stored.digest)?;
        if manifest.config.digest == *digest || manifest.layers.iter().any(|layer| layer.digest == *digest) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn blob(store: &Store, method: &Method, digest: &Digest, media_type: &str) -> Result<Response> {
    let path = store.blob_path(digest);
    let file = tokio::fs::File::open(&path).await.with_context(|| format!("could not read {}", path.display()))?;
    let response = Response::builder()
        .header(CONTENT_TYPE, media_type)
        .header(CONTENT_LENGTH, file.metadata().await?.len())
        .header("Docker-Content-Digest", digest.to_string());
    let body = if method == Method::HEAD { Body::empty() } else { stream(file) };
    Ok(response.body(body)?)
}

/// Streams a file in chunks, because several nodes may pull large layers at once.
fn stream(file: tokio::fs::File) -> Body {
    const PIECE: usize = 256 * 1024;
    Body::from_stream(futures::stream::try_unfold(file, |mut file| async move {
        let mut piece = Vec::with_capacity(PIECE);
        (&mut file).take(PIECE as u64).read_to_end(&mut piece).await?;
        io::Result::Ok((!piece.is_empty()).then(|| (Bytes::from(piece), file)))
    }))
}

fn refuse(refusal: Refusal) -> Response {
    let (status, code, message) = match refusal {
        Refusal::NotFound => (StatusCode::NOT_FOUND, "NOT_FOUND", "this registry answers only below /v2/"),
        Refusal::NameUnknown => (StatusCode::NOT_FOUND, "NAME_UNKNOWN", "repository name not known to registry"),
        Refusal::ManifestUnknown => (StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN", "manifest unknown"),
        Refusal::BlobUnknown => (StatusCode::NOT_FOUND, "BLOB_UNKNOWN", "blob unknown to registry"),
        Refusal::ReadOnly => (StatusCode::METHOD_NOT_ALLOWED, "UNSUPPORTED", "this registry is read-only"),
    };
    json_response(status, &errors(code, message))
}

fn errors(code: &str, message: &str) -> Value {
    json!({ "errors": [{ "code": code, "message": message }] })
}

fn json_response(status: StatusCode, body: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

#[cfg(test)]
mod tests;
