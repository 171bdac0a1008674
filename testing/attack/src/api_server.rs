//! What our shipped programs need of a cluster: an API server with the objects that a round needs, and metrics to read. It knows one
//! token, and takes seconds to refuse others.

use std::{collections::HashMap, convert::Infallible, net::Ipv4Addr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{Method, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::requests::{folders, yaml};

/// The token of the honest scraper.
pub(crate) const TOKEN: &str = "honest";
/// How long the review of another token takes.
pub(crate) const REVIEW: Duration = Duration::from_secs(8);
/// Bytes that a request of our programs may have.
const REQUEST: usize = 1 << 20;
/// Characters of the annotation of each object. They are random, so that a cache cannot pack them.
const TEXT: usize = 20_000;

/// Objects of our kinds as JSON, by the paths of their lists.
#[derive(Default)]
pub(crate) struct Objects(HashMap<String, Vec<String>>);

impl Objects {
    /// Objects of each kind of the chart in this folder that has a sample, in equal numbers. Together they have at least this many bytes.
    pub(crate) fn of_chart(chart: &Path, bytes: usize) -> Result<Self> {
        let mut kinds = Vec::new();
        for folder in folders(&chart.join("files"))? {
            let Some(sample) = yaml(&folder.join("sample.yaml"))? else { continue };
            kinds.push((list_of(&sample, &folder)?, sample));
        }
        let each = bytes.div_ceil(TEXT * kinds.len().max(1));
        let objects = kinds.into_iter().map(|(path, sample)| {
            let objects = (0..each).map(|number| large(&sample, &path, number).to_string()).collect();
            (path, objects)
        });
        Ok(Self(objects.collect()))
    }

    /// A page of a list, as the query asks for it.
    fn page(&self, path: &str, query: &str) -> String {
        let objects = self.0.get(path).map(Vec::as_slice).unwrap_or_default();
        let number = |name: &str| {
            let mut values = query.split('&').filter_map(|it| it.strip_prefix(name)?.strip_prefix('='));
            values.next()?.parse::<usize>().ok()
        };
        let from = number("continue").unwrap_or_default().min(objects.len());
        let to = from.saturating_add(number("limit").unwrap_or(usize::MAX)).min(objects.len());
        let next = if to < objects.len() { to.to_string() } else { String::new() };
        let metadata = json!({"resourceVersion": "1", "continue": next});
        let items = objects[from..to].join(",");
        format!("{{\"apiVersion\":\"v1\",\"kind\":\"List\",\"metadata\":{metadata},\"items\":[{items}]}}")
    }
}

/// The path of the list of all objects of the sample's kind, whose definition is in this folder.
fn list_of(sample: &Value, folder: &Path) -> Result<String> {
    let kind = &sample["kind"];
    for file in std::fs::read_dir(folder)? {
        let file = file?.path();
        let is_definition = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("crd-"));
        let Some(definition) = (if is_definition { yaml(&file)? } else { None }) else { continue };
        let names = &definition["spec"]["names"];
        if names["kind"] == *kind {
            let version = sample["apiVersion"].as_str().context("a sample without a version")?;
            return Ok(format!("/apis/{version}/{}", names["plural"].as_str().context("a kind without a plural")?));
        }
    }
    anyhow::bail!("{} has no definition of {kind}", folder.display())
}

/// A large object that is like the sample, the one of this number in the list at this path.
fn large(sample: &Value, path: &str, number: usize) -> Value {
    let mut object = sample.clone();
    let text: String = std::iter::repeat_with(fastrand::alphanumeric).take(TEXT).collect();
    object["metadata"] = json!({
        "name": format!("object-{number}"),
        "namespace": "default",
        "uid": format!("{path}/{number}"),
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"example.com/text": text},
    });
    object
}

/// An API server on loopback; it ends with the handle.
pub(crate) struct ApiServer {
    pub(crate) url: String,
    task: JoinHandle<()>,
}

impl ApiServer {
    pub(crate) async fn start(objects: Objects) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let routes = Router::new().fallback(answer).with_state(Arc::new(objects));
        let task = tokio::spawn(async move { drop(axum::serve(listener, routes).await) });
        Ok(Self { url, task })
    }

    /// Writes a kubeconfig for this server.
    pub(crate) fn write_kubeconfig(&self, file: &Path) -> Result<()> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": self.url}}],
            "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "default"}}],
        });
        Ok(std::fs::write(file, config.to_string())?)
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(objects): State<Arc<Objects>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if head.method == Method::GET {
        return read(&objects, head.uri.path(), head.uri.query().unwrap_or_default());
    }
    let body = axum::body::to_bytes(body, REQUEST).await.unwrap_or_else(|_| Bytes::new());
    let Ok(mut object) = serde_json::from_slice::<Value>(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    match object["kind"].as_str() {
        Some("TokenReview") if object["spec"]["token"] == TOKEN => {
            object["status"] = json!({"authenticated": true, "user": {"username": TOKEN}});
        }
        Some("TokenReview") => {
            tokio::time::sleep(REVIEW).await;
            object["status"] = json!({"authenticated": false});
        }
        Some("SubjectAccessReview") => object["status"] = json!({"allowed": true}),
        _ => {}
    }
    (StatusCode::CREATED, json_text(object.to_string())).into_response()
}

fn read(objects: &Objects, path: &str, query: &str) -> Response {
    if path == "/metrics" {
        return metrics().into_response();
    }
    if query.contains("watch=") {
        // Nothing ever happens.
        let events = futures::stream::pending::<Result<Bytes, Infallible>>();
        return Body::from_stream(events).into_response();
    }
    if path.contains("/leases/") {
        return json_text(lease().to_string()).into_response();
    }
    json_text(objects.page(path, query)).into_response()
}

/// A lease that another process holds for a day, so that ours stands by.
fn lease() -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "a", "namespace": "default", "uid": "a", "resourceVersion": "1"},
        "spec": {"holderIdentity": "another", "leaseDurationSeconds": 86_400, "leaseTransitions": 1},
    })
}

fn json_text(text: String) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], text)
}

/// A page of metrics.
pub(crate) fn metrics() -> String {
    "up 1\n".repeat(1000)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::memory;

    #[test]
    fn pages_have_each_object_of_each_kind_once() {
        let objects = Objects::of_chart(&memory::chart(), 1 << 20).expect("the files of the chart");
        assert!(objects.0.keys().any(|path| path.ends_with("/memcacheds")), "{:?}", objects.0.keys());
        let (mut uids, mut bytes) = (HashSet::new(), 0);
        for path in objects.0.keys() {
            let mut next = String::new();
            loop {
                let page = objects.page(path, &format!("limit=3&continue={next}"));
                let page: Value = serde_json::from_str(&page).expect("JSON");
                let items = page["items"].as_array().expect("items");
                assert!((1..=3).contains(&items.len()));
                for item in items {
                    bytes += item.to_string().len();
                    assert!(uids.insert(item["metadata"]["uid"].to_string()), "{path}: {item}");
                    let kind = item["kind"].as_str().expect("a kind").to_lowercase();
                    assert!(path.contains(&kind), "{path}: {kind}");
                }
                page["metadata"]["continue"].as_str().expect("a text").clone_into(&mut next);
                if next.is_empty() {
                    break;
                }
            }
        }
        assert!(bytes >= 1 << 20, "{bytes}");
        let other: Value = serde_json::from_str(&objects.page("/api/v1/pods", "limit=3")).expect("JSON");
        assert_eq!(other["items"], json!([]));
    }
}
