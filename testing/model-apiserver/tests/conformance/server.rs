//! Sends a step to one of the two servers.

use std::time::Duration;

use futures::TryStreamExt;
use http::Request;
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::{Value, json};

use crate::{
    normal::Names,
    step::{LAST, Step},
};

/// One of the two servers.
pub(crate) struct Server {
    client: Client,
}

impl Server {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Sends a step with this server's uids and versions. Returns the answer with placeholders instead.
    pub(crate) async fn run(&self, names: &mut Names, step: &Step) -> (u16, Value) {
        let step = names.fill(step);
        let (code, mut body) = self.send(&step).await;
        remove_root_ca_config_map(&mut body);
        names.learn(&step, &body);
        (code, names.normal(body))
    }

    pub(crate) async fn send(&self, step: &Step) -> (u16, Value) {
        let uri = if step.query.is_empty() { step.path.clone() } else { format!("{}?{}", step.path, step.query) };
        let body = step.body.as_ref().map(ToString::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(step.method)
            .uri(uri)
            .header("content-type", step.content_type)
            .header("user-agent", "conformance/1.0")
            .body(Body::from(body.into_bytes()))
            .unwrap();
        let response = self.client.send(request).await.unwrap();
        let code = response.status().as_u16();
        if step.query.contains("watch=true") && code == 200 {
            let read = tokio::time::timeout(Duration::from_secs(30), events(response.into_body()));
            return (code, read.await.unwrap_or_else(|_| panic!("the watch does not end: {step}")));
        }
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (code, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }
}

/// Removes the `ConfigMap` that a controller of the real server puts into every namespace.
fn remove_root_ca_config_map(body: &mut Value) {
    let strange = |object: &Value| object["metadata"]["name"] == "kube-root-ca.crt";
    match body {
        Value::Array(events) => events.retain(|event| !strange(&event["object"])),
        other => {
            if let Some(items) = other.get_mut("items").and_then(Value::as_array_mut) {
                items.retain(|item| !strange(item));
            }
        }
    }
}

/// Reads events up to that of the last object, or up to an error.
async fn events(body: Body) -> Value {
    let mut chunks = body.into_data_stream();
    let (mut buffer, mut events) = (Vec::new(), Vec::new());
    while let Some(chunk) = chunks.try_next().await.unwrap() {
        buffer.extend_from_slice(&chunk);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).unwrap();
            let last = event["object"]["metadata"]["name"] == LAST || event["type"] == "ERROR";
            events.push(event);
            if last {
                return json!(events);
            }
        }
    }
    json!(events)
}
