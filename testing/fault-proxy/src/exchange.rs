//! Handles one request: applies the plan's faults, forwards the request and returns the answer.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fault_plan::{Action, Answer, Due, Request};
use http::{Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::sync::mpsc;

use crate::{
    reset::{Line, Reset},
    shared::Shared,
    stream::{self, Body, Cutting, Metadata, Object},
    trace::Entry,
    upstream::end_to_end,
};

/// The time in which a client receives an answer after the proxy has written its last byte.
const DELIVERY: Duration = Duration::from_millis(5);

/// Answers one request. The work runs in its own task, so that a forwarded request is completed even if the client disconnects.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    line: Arc<Line>,
    request: http::Request<Incoming>,
) -> Result<Response<Body>, Reset> {
    let ended = shared.ended.clone();
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return Err(Reset) };
    let work = tokio::spawn(ended.run_until_cancelled_owned(Way::new(shared, &head, body.to_bytes()).go(head)));
    match work.await {
        Ok(Some(Ok(response))) => Ok(response),
        _ => Err(line.reset()),
    }
}

/// One request, and the faults that the plan applies to it.
struct Way {
    shared: Arc<Shared>,
    request: Request,
    body: Bytes,
    due: Due,
    entry: Entry,
}

/// The server's answer, or the plan's answer in its place.
struct Given {
    response: Response<Bytes>,
    pieces: Option<(usize, Duration)>,
}

impl Way {
    fn new(shared: Arc<Shared>, head: &Parts, body: Bytes) -> Self {
        let bearer = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
        let mut request = Request::parse(head.method.as_str(), head.uri.path(), head.uri.query().unwrap_or_default())
            .by(bearer.unwrap_or(&shared.upstream.identity));
        if let Ok(Object { metadata: Metadata { name: Some(name), .. } }) = serde_json::from_slice(&body) {
            request = request.named(&name);
        }
        let due = shared.progress().request(&request);
        let faults = [&due.before[..], &due.after, &due.delivered].concat();
        let entry = shared.recorder.begin(&request, &body, faults);
        Self { shared, request, body, due, entry }
    }

    async fn go(self, head: Parts) -> Result<Response<Body>, Reset> {
        let mut duplicate = false;
        for action in &self.due.before {
            match action {
                Action::Drop => return Err(Reset),
                Action::Answer(answer) => return Ok(self.deliver(Given::made(answer))),
                Action::Duplicate => duplicate = true,
                other => self.wait(other).await,
            }
        }
        if self.request.is_watch() {
            let response = self.ask(&head).await?;
            if response.status().is_success() {
                return self.follow(response).await;
            }
            return Ok(self.deliver(whole(response).await?.into()));
        }
        if duplicate {
            self.forward(&head).await?;
        }
        let mut given = Given::from(self.forward(&head).await?);
        for action in &self.due.after {
            match action {
                Action::Drop => return Err(Reset),
                Action::Answer(answer) => given.response = Given::made(answer).response,
                Action::Truncate(bytes) => given.truncate(*bytes),
                Action::Trickle(bytes, pause) => given.pieces = Some((*bytes, *pause)),
                other => self.wait(other).await,
            }
        }
        Ok(self.deliver(given))
    }

    /// Forwards the request to the server, and records the version of a written object.
    async fn forward(&self, head: &Parts) -> Result<Response<Bytes>, Reset> {
        if !self.request.is_write() {
            return whole(self.ask(head).await?).await;
        }
        let recorder = &self.shared.recorder;
        recorder.write_begins();
        let answer = match self.ask(head).await {
            Ok(response) => whole(response).await,
            Err(reset) => Err(reset),
        };
        let object = answer.as_ref().ok().and_then(|answer| serde_json::from_slice::<Object>(answer.body()).ok());
        recorder.write_ends(&self.request.identity, object.and_then(|object| object.metadata.resource_version));
        answer
    }

    async fn ask(&self, head: &Parts) -> Result<Response<kube::client::Body>, Reset> {
        let response = self.shared.upstream.send(head, self.body.clone()).await.map_err(|_| Reset)?;
        let code = response.status().as_u16();
        self.shared.recorder.change(self.entry, |exchange| exchange.served.push(code));
        Ok(response)
    }

    /// Answers a watch, and passes its events on in a task of their own.
    async fn follow(self, response: Response<kube::client::Body>) -> Result<Response<Body>, Reset> {
        let mut cutting = Cutting::default();
        for action in &self.due.after {
            match action {
                Action::Drop => return Err(Reset),
                Action::Answer(answer) => return Ok(self.deliver(Given::made(answer))),
                Action::Cut(frames) => cutting.frames = Some(*frames),
                Action::Truncate(bytes) => cutting.bytes = Some(*bytes),
                Action::Trickle(bytes, pause) => cutting.pieces = Some((*bytes, *pause)),
                other => self.wait(other).await,
            }
        }
        let (mut parts, body) = response.into_parts();
        parts.headers = end_to_end(&parts.headers);
        self.shared.recorder.change(self.entry, |exchange| exchange.told = Some(parts.status.as_u16()));
        let (sender, pieces) = mpsc::channel(1);
        let shared = self.shared.clone();
        let pump = stream::Pump::new(shared.clone(), self.request.clone(), sender, cutting).run(body);
        tokio::spawn(shared.ended.clone().run_until_cancelled_owned(pump));
        self.announce();
        Ok(Response::from_parts(parts, stream::body(pieces)))
    }

    fn deliver(&self, given: Given) -> Response<Body> {
        let Given { response, pieces } = given;
        let code = response.status().as_u16();
        self.shared.recorder.change(self.entry, |exchange| exchange.told = Some(code));
        self.announce();
        let (parts, body) = response.into_parts();
        let body = match pieces {
            None => Full::new(body).map_err(|never| match never {}).boxed_unsync(),
            Some((bytes, pause)) => {
                let (sender, pieces) = mpsc::channel(1);
                tokio::spawn(self.shared.ended.clone().run_until_cancelled_owned(async move {
                    stream::trickle(&sender, body, bytes, pause).await;
                }));
                stream::body(pieces)
            }
        };
        Response::from_parts(parts, body)
    }

    /// Runs the actions of the plan that follow the delivery of the answer.
    fn announce(&self) {
        if self.due.delivered.is_empty() {
            return;
        }
        let (shared, request, due) = (self.shared.clone(), self.request.clone(), self.due.delivered.clone());
        tokio::spawn(async move {
            tokio::time::sleep(DELIVERY).await;
            for action in &due {
                shared.wait(action, &request).await;
            }
        });
    }

    async fn wait(&self, action: &Action) {
        self.shared.wait(action, &self.request).await;
    }
}

/// Reads the whole body of a response.
async fn whole(response: Response<kube::client::Body>) -> Result<Response<Bytes>, Reset> {
    let (mut parts, body) = response.into_parts();
    parts.headers = end_to_end(&parts.headers);
    Ok(Response::from_parts(parts, body.collect().await.map_err(|_| Reset)?.to_bytes()))
}

impl From<Response<Bytes>> for Given {
    fn from(response: Response<Bytes>) -> Self {
        Self { response, pieces: None }
    }
}

impl Given {
    fn made(answer: &Answer) -> Self {
        let (kind, text) = answer.content();
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        for (name, value) in &answer.headers {
            // A plan may contain invalid headers, which cannot be sent.
            if let (Ok(name), Ok(value)) = (header::HeaderName::try_from(name), header::HeaderValue::try_from(value)) {
                response.headers_mut().insert(name, value);
            }
        }
        response.into()
    }

    fn truncate(&mut self, bytes: usize) {
        self.response.body_mut().truncate(bytes);
    }
}
