//! Sends requests to the API server: raw JSON in and out, one deadline each, no retries.
//!
//! kube's own retries are off: the queue decides about retries, and a retried create could make a second object.

use std::{future::Future, time::Duration};

use api_errors::{NO_STATUS, retry_after_seconds};
use cache::ObjectKey;
use http::{HeaderValue, header::CONTENT_TYPE};
use kube::{
    Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    client::Body,
    core::{Request as Http, Status, response::StatusDetails},
};
use serde_json::Value;
use tracing::{Instrument, Span, field::Empty};

use crate::{
    client::is_not_leading,
    error::{Error, Request},
    leading::Term,
    telemetry::TARGET,
};

/// The deadline of a request: enough for an admission webhook (at most 30 s by the API, 10 s by default) and a loaded server.
const DEADLINE: Duration = Duration::from_secs(20);

/// Requests for objects of one kind, made as one field manager, in one term.
#[derive(Clone)]
pub(crate) struct Requests {
    client: Client,
    kind: String,
    api_version: String,
    plural: String,
    manager: String,
    term: Term,
}

impl Requests {
    pub(crate) fn of<K: Resource<DynamicType = ()>>(client: Client, manager: &str, term: Term) -> Self {
        Self {
            client,
            term,
            kind: K::kind(&()).into_owned(),
            api_version: K::api_version(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
            manager: manager.to_owned(),
        }
    }

    pub(crate) async fn get(&self, key: &ObjectKey) -> Result<String, Error> {
        let request = self.http(key).get(&key.name, &kube::api::GetParams::default());
        self.send("get", key, request).await
    }

    pub(crate) async fn create(&self, key: &ObjectKey, object: &Value) -> Result<String, Error> {
        let parameters = PostParams { field_manager: Some(self.manager.clone()), ..PostParams::default() };
        let request = self.http(key).create(&parameters, object.to_string().into_bytes());
        self.send("create", key, request).await
    }

    /// Server-side apply, forced: the fields of `object` become ours.
    pub(crate) async fn apply(&self, key: &ObjectKey, object: &Value) -> Result<String, Error> {
        self.send_apply(key, object, false).await
    }

    /// Does [`apply`](Self::apply) as a dry run, and returns what its answer would be.
    pub(crate) async fn dry_run_apply(&self, key: &ObjectKey, object: &Value) -> Result<String, Error> {
        self.send_apply(key, object, true).await
    }

    async fn send_apply(&self, key: &ObjectKey, object: &Value, dry_run: bool) -> Result<String, Error> {
        let parameters = PatchParams { dry_run, ..PatchParams::apply(&self.manager).force() };
        let request = self.http(key).patch(&key.name, &parameters, &Patch::Apply(object));
        self.send("apply", key, request).await
    }

    pub(crate) async fn merge_patch(&self, key: &ObjectKey, patch: &Value) -> Result<String, Error> {
        let request = self.http(key).patch(&key.name, &self.patching(), &Patch::Merge(patch));
        self.send("patch", key, request).await
    }

    /// Sends a JSON patch of tests and operations. If one fails, the API server changes nothing.
    pub(crate) async fn json_patch(&self, key: &ObjectKey, operations: &Value) -> Result<String, Error> {
        self.send_json_patch(key, operations, false).await
    }

    /// Does [`json_patch`](Self::json_patch) as a dry run, and returns what its answer would be.
    pub(crate) async fn dry_run_patch(&self, key: &ObjectKey, operations: &Value) -> Result<String, Error> {
        self.send_json_patch(key, operations, true).await
    }

    async fn send_json_patch(&self, key: &ObjectKey, operations: &Value, dry_run: bool) -> Result<String, Error> {
        let parameters = PatchParams { dry_run, ..self.patching() };
        let request = self.http(key).patch(&key.name, &parameters, &Patch::Merge(operations));
        self.send("patch", key, request.map(as_json_patch)).await
    }

    /// Like [`json_patch`](Self::json_patch), for the status.
    pub(crate) async fn json_patch_status(&self, key: &ObjectKey, operations: &Value) -> Result<String, Error> {
        let body = Patch::Merge(operations);
        let request = self.http(key).patch_subresource("status", &key.name, &self.patching(), &body);
        self.send("patch the status of", key, request.map(as_json_patch)).await
    }

    /// Deletes only this version of the object with this uid.
    pub(crate) async fn delete(&self, key: &ObjectKey, uid: &str, version: &str) -> Result<String, Error> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: Some(version.to_owned()) };
        let parameters = DeleteParams::background().preconditions(preconditions);
        self.send("delete", key, self.http(key).delete(&key.name, &parameters)).await
    }

    /// Returns `apiVersion` and `kind`, which every request body has to carry.
    pub(crate) fn type_meta(&self) -> (&str, &str) {
        (&self.api_version, &self.kind)
    }

    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    pub(crate) fn manager(&self) -> &str {
        &self.manager
    }

    /// Describes the request, for errors.
    pub(crate) fn describe(&self, verb: &'static str, key: &ObjectKey) -> Request {
        Request { verb, kind: self.kind.clone(), namespace: key.namespace.to_string(), name: key.name.to_string() }
    }

    /// Turns the error of a parser into the error of a request whose object does not decode.
    pub(crate) fn undecodable(&self, verb: &'static str, key: &ObjectKey) -> impl Fn(serde_json::Error) -> Error {
        move |source| Error::Decode { request: self.describe(verb, key), source }
    }

    fn patching(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.manager.clone()), ..PatchParams::default() }
    }

    fn http(&self, key: &ObjectKey) -> Http {
        let (prefix, version) =
            if self.api_version.contains('/') { ("apis", &self.api_version) } else { ("api", &self.api_version) };
        let path = if key.namespace.is_empty() {
            format!("/{prefix}/{version}/{}", self.plural)
        } else {
            format!("/{prefix}/{version}/namespaces/{}/{}", key.namespace, self.plural)
        };
        Http::new(path)
    }

    /// Returns the span of a request in the trace of its reconcile, which is disabled when there is no trace.
    fn span(&self, verb: &str, key: &ObjectKey) -> Span {
        tracing::debug_span!(
            target: TARGET,
            "request",
            "otel.name" = format!("{verb} {}", self.kind),
            "otel.kind" = "client",
            "otel.status_code" = Empty,
            verb,
            resource = self.plural,
            namespace = %key.namespace,
            name = %key.name,
            status_code = Empty,
        )
    }

    async fn send(
        &self,
        verb: &'static str,
        key: &ObjectKey,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<String, Error> {
        let description = || self.describe(verb, key);
        if let Some(error) = impossible(verb, key) {
            return Err(Error::Api { request: description(), source: Box::new(error) });
        }
        let mut request = request.map_err(|error| Error::Api {
            request: description(),
            source: Box::new(kube::Error::BuildRequest(error)),
        })?;
        // The leadership may have been lost while this reconcile was computing.
        if !matches!(verb, "get" | "list") && !self.term.admit(&mut request) {
            return Err(Error::NotLeading { request: description() });
        }
        let span = self.span(verb, key);
        let answer = within(DEADLINE, text(&self.client, request)).instrument(span.clone()).await;
        record_outcome(&span, verb, answer.as_ref());
        let answer = answer.ok_or_else(|| Error::Deadline { request: description(), after: DEADLINE })?;
        answer.map_err(|source| {
            if is_not_leading(&source) {
                Error::NotLeading { request: description() }
            } else {
                Error::Api { request: description(), source: Box::new(source) }
            }
        })
    }
}

/// Returns the answer for a name that no object can have, if the request would contain it in its URL. Such names come from specs.
/// In a URL, `../x` would lead to another object, a space would make the URL invalid, and without a name it is that of the list.
fn impossible(verb: &str, key: &ObjectKey) -> Option<kube::Error> {
    let is_possible = |name: &str| {
        !matches!(name, "." | "..") && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:_".contains(&byte))
    };
    // The URL of a create or a list contains no name.
    let name = Some(&*key.name).filter(|_| !matches!(verb, "create" | "list"));
    let unnamed = name.filter(|name| name.is_empty());
    let wrong =
        unnamed.or_else(|| [Some(&*key.namespace), name].into_iter().flatten().find(|name| !is_possible(name)))?;
    let message = format!("{wrong:?} cannot be the name of an object");
    let (reason, code) = if verb == "get" { ("NotFound", 404) } else { ("Invalid", 422) };
    Some(kube::Error::Api(Box::new(Status::failure(&message, reason).with_code(code))))
}

/// Sets the content type of a JSON patch. kube's own type would have to be built from the operations first.
fn as_json_patch(mut request: http::Request<Vec<u8>>) -> http::Request<Vec<u8>> {
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json-patch+json"));
    request
}

/// Records in the trace how a request ended.
fn record_outcome(span: &Span, verb: &str, answer: Option<&Result<String, kube::Error>>) {
    let code = match answer {
        Some(Ok(_)) => Some(if verb == "create" { 201 } else { 200 }),
        Some(Err(kube::Error::Api(status))) => Some(status.code),
        Some(Err(_)) | None => None,
    };
    if let Some(code) = code {
        span.record("status_code", code);
    }
    if !matches!(answer, Some(Ok(_))) {
        span.record("otel.status_code", "ERROR");
    }
}

/// Does the same as `Client::request_text`, but also reads the header `Retry-After`, by which the API server's flow control
/// says how long to wait.
async fn text(client: &Client, request: http::Request<Vec<u8>>) -> Result<String, kube::Error> {
    let response = client.send(request.map(Body::from)).await?;
    let (code, wait) = (response.status(), retry_after_seconds(response.headers()));
    let text =
        String::from_utf8(response.into_body().collect_bytes().await?.to_vec()).map_err(kube::Error::FromUtf8)?;
    if !(code.is_client_error() || code.is_server_error()) {
        return Ok(text);
    }
    let mut status: Status = serde_json::from_str(&text)
        .unwrap_or_else(|_| Status::failure(text.trim(), NO_STATUS).with_code(code.as_u16()));
    if let Some(seconds) = wait {
        let details = || StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        };
        status.details.get_or_insert_with(details).retry_after_seconds = seconds;
    }
    Err(kube::Error::Api(Box::new(status)))
}

async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}

#[cfg(test)]
mod tests {
    use api_errors::{Class, classify};
    use k8s_openapi::api::core::v1::Secret;
    use model_apiserver::Model;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn request_for_a_name_that_would_change_the_url_does_not_reach_the_api_server() {
        let model = Model::new();
        let secrets = Requests::of::<Secret>(model.client(), "tester", Term::default());
        for name in ["../../other/secrets/x", "a/../../../other/secrets/x", ".."] {
            let key = ObjectKey::new("default", name);
            let answers = [
                secrets.get(&key).await,
                secrets.apply(&key, &json!({})).await,
                secrets.merge_patch(&key, &json!({})).await,
                secrets.json_patch(&key, &json!([])).await,
                secrets.json_patch_status(&key, &json!([])).await,
                secrets.delete(&key, "uid", "1").await,
            ];
            for answer in answers {
                let error = answer.expect_err("no object can have this name").chain();
                assert!(error.contains("cannot be the name of an object"), "{name}: {error}");
            }
        }
        assert_eq!(model.requests().len(), 0);
        assert!(secrets.get(&ObjectKey::new("default", "x")).await.is_err(), "there is none");
        assert_eq!(model.requests().len(), 1);
    }

    #[test]
    fn name_that_would_change_the_url_is_not_sent() {
        let class = |verb, namespace: &str, name: &str| {
            impossible(verb, &ObjectKey::new(namespace, name)).map(|error| classify(&error))
        };
        for name in ["a", "memcached-tls.v2", "system:controller:x", "..a", "a_b"] {
            assert_eq!(class("get", "default", name), None, "{name}");
        }
        for name in ["", ".", "..", "../b", "a/../../c/secrets/d", "a b", "a%2fb", "a?b", "a#b", "ä", "a\nb"] {
            assert_eq!(class("get", "default", name), Some(Class::NotFound), "{name}");
            assert_eq!(class("apply", "default", name), Some(Class::Rejected), "{name}");
            assert_eq!(
                class("create", "default", name),
                None,
                "{name}: the API server refuses it with a better message"
            );
        }
        for namespace in [".", "..", "../b", "a b"] {
            assert_eq!(class("create", namespace, "a"), Some(Class::Rejected), "{namespace}");
        }
        assert_eq!(class("get", "", "a"), None, "an object of a cluster-scoped kind");
        assert_eq!(class("list", "default", ""), None);
    }
}
