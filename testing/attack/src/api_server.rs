//! What our shipped programs need of a cluster: an API server without objects, and metrics to read. It knows one token, and takes
//! seconds to refuse others.

use std::{convert::Infallible, net::Ipv4Addr, path::Path, time::Duration};

use anyhow::Result;
use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::{Method, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

/// The token of the honest scraper.
pub(crate) const TOKEN: &str = "honest";
/// How long the review of another token takes.
pub(crate) const REVIEW: Duration = Duration::from_secs(8);
/// Bytes that a request of our programs may have.
const REQUEST: usize = 1 << 20;

/// An API server on loopback; it ends with the handle.
pub(crate) struct ApiServer {
    pub(crate) url: String,
    task: JoinHandle<()>,
}

impl ApiServer {
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let routes = Router::new().fallback(answer);
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

async fn answer(request: Request) -> Response {
    let (head, body) = request.into_parts();
    if head.method == Method::GET {
        return read(head.uri.path(), head.uri.query().unwrap_or_default());
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
    (StatusCode::CREATED, json_text(&object)).into_response()
}

fn read(path: &str, query: &str) -> Response {
    if path == "/metrics" {
        return metrics().into_response();
    }
    if query.contains("watch=") {
        // Nothing ever happens.
        let events = futures::stream::pending::<Result<Bytes, Infallible>>();
        return Body::from_stream(events).into_response();
    }
    let empty = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": []});
    json_text(&empty).into_response()
}

fn json_text(value: &Value) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], value.to_string())
}

/// A page of metrics.
pub(crate) fn metrics() -> String {
    "up 1\n".repeat(1000)
}
