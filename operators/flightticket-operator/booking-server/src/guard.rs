//! Middleware around every request of the API: checks the token, injects faults, and records the request in the metrics, the log
//! and the list of recent requests.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::StatusCode;
use jiff::Timestamp;
use tower::{BoxError, Service, ServiceExt as _};

use crate::{
    app::App,
    body,
    booking::Reference,
    clock,
    faults::{Fault, Mode},
    hostile,
    op::Op,
    problem::{Code, Problem},
    recent::Seen,
    wire,
};

/// Marks a response that is never sent: the connection ends instead.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("an injected fault ends this connection")]
pub(crate) struct NoAnswer;

/// Checks the token, applies the fault that hits this request, if any, and records the outcome.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (op, in_path) = match Op::of(request.method(), request.uri().path()) {
        Some((op, subject)) => (Some(op), subject.unwrap_or_default().to_owned()),
        None => (None, String::new()),
    };
    let key = wire::idempotency_key(request.headers()).ok().map(|key| key.to_string());
    let subject = if in_path.is_empty() { key.unwrap_or_default() } else { in_path };
    let mut record = Record::begin(Arc::clone(&app), op, &subject);
    let response = match app.authorise(request.headers()) {
        Err(problem) => problem.into_response(),
        Ok(()) => match op.and_then(|op| Some((op, app.faults()?.strike(op, &[&subject])?))) {
            None => next.run(request).await,
            Some((op, fault)) => {
                record.fault = Some(fault.mode.name());
                suffer(&fault, op, request, next).await
            }
        },
    };
    record.end(&response);
    response
}

/// Carries out a fault.
async fn suffer(fault: &Fault, op: Op, request: Request, next: Next) -> Response {
    // Read the body first, and execute the request in a task: it must run even if the client disconnects during the delay.
    let (parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, body::LIMIT).await else {
        return Problem::new(Code::PayloadTooLarge, "a fault reads the body first, and this one is too large")
            .into_response();
    };
    let delay = Duration::from_millis(fault.delay_ms);
    let does_work = match fault.mode {
        Mode::BeforeCommitDrop => false,
        Mode::AfterCommitDrop | Mode::Delay => true,
        Mode::Hang | Mode::Status | Mode::Hostile => fault.commit,
    };
    let work = tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        if does_work { Some(next.run(Request::from_parts(parts, Body::from(bytes))).await) } else { None }
    });
    let done = work.await.ok().flatten();
    match (fault.mode, done) {
        (Mode::Delay, Some(response)) => response,
        (Mode::Hang, _) => std::future::pending().await,
        (Mode::Status, _) => answered(fault, op),
        (Mode::Hostile, _) => fault.body.map_or_else(no_answer, |kind| hostile::answer(kind, fault.status())),
        (Mode::BeforeCommitDrop | Mode::AfterCommitDrop | Mode::Delay, _) => no_answer(),
    }
}

fn answered(fault: &Fault, op: Op) -> Response {
    let status = StatusCode::from_u16(fault.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let problem =
        Problem { retry_after: fault.retry_after(), ..Problem::new(fault.code(op), "a fault that a test injected") };
    let mut document = problem.to_json();
    document["status"] = status.as_u16().into();
    let (mut parts, _) = problem.into_response().into_parts();
    parts.status = status;
    // The header has the length of the old body; the HTTP server computes it anew.
    parts.headers.remove(http::header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(document.to_string()))
}

fn no_answer() -> Response {
    let mut response = Response::new(Body::empty());
    response.extensions_mut().insert(NoAnswer);
    response
}

/// Records a request when it is dropped, so also when the client disconnects before the answer.
struct Record {
    app: Arc<App>,
    op: Option<Op>,
    subject: String,
    at: Timestamp,
    begun: Instant,
    status: Option<StatusCode>,
    code: Option<Code>,
    fault: Option<&'static str>,
}

impl Record {
    fn begin(app: Arc<App>, op: Option<Op>, subject: &str) -> Self {
        // Keep only text in the form of a reference, which ids have, too. Anything else is unchecked input of a client.
        let subject = Reference::parse(subject).map(|subject| subject.to_string()).unwrap_or_default();
        let (at, begun) = (clock::now(), Instant::now());
        Self { app, op, subject, at, begun, status: None, code: None, fault: None }
    }

    fn end(&mut self, response: &Response) {
        if response.extensions().get::<NoAnswer>().is_none() {
            self.status = Some(response.status());
        }
        self.code = response.extensions().get::<Code>().copied();
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let (op, took) = (self.op.map_or("other", Op::name), self.begun.elapsed());
        let status = self.status.map(|status| status.as_u16());
        self.app.metrics.observe(op, status, took);
        let (shown, code) = (status.unwrap_or_default(), self.code.map_or("", Code::name));
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let fault = self.fault.unwrap_or_default();
        if is_detail(self.op, shown) {
            tracing::debug!(op, subject = self.subject, status = shown, code, ms, fault, "Answered");
        } else {
            tracing::info!(op, subject = self.subject, status = shown, code, ms, fault, "Answered");
        }
        let (subject, code, fault) = (std::mem::take(&mut self.subject), self.code, self.fault);
        self.app.recent.add(Seen { at: self.at, op, subject, status, code, fault, took });
    }
}

/// Whether an answered request is only logged on demand: a read, or one without a valid token, because clients without one could
/// fill the log.
fn is_detail(op: Option<Op>, status: u16) -> bool {
    let is_read = matches!(op, Some(Op::Get | Op::List | Op::Lookup));
    is_read && status < 500 || status == StatusCode::UNAUTHORIZED.as_u16()
}

/// Wraps the routes as a service. Its error ends the connection without an answer.
#[derive(Debug, Clone)]
pub(crate) struct Answering(pub(crate) Router);

impl<B> Service<http::Request<B>> for Answering
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response;
    type Error = NoAnswer;
    type Future = BoxFuture<'static, Result<Response, NoAnswer>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), NoAnswer>> {
        std::task::Poll::Ready(Ok(())) // an axum router is always ready
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let routes = self.0.clone();
        Box::pin(async move {
            let answer: Result<Response, Infallible> = routes.oneshot(request.map(Body::new)).await;
            let Ok(response) = answer;
            match response.extensions().get::<NoAnswer>() {
                Some(no_answer) => Err(*no_answer),
                None => Ok(response),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_clients_without_a_token_do_not_fill_the_log() {
        for (op, status, expected) in [
            (Some(Op::Create), 201, false),
            (Some(Op::Create), 401, true),
            (None, 401, true),
            (None, 404, false),
            (Some(Op::List), 200, true),
            (Some(Op::List), 503, false),
        ] {
            assert_eq!(is_detail(op, status), expected, "{op:?} {status}");
        }
    }
}
