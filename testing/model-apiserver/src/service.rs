//! The HTTP service: takes requests, applies faults, and returns answers.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use fault_plan::{Action, Due};
use futures::stream;
use http::{Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use serde_json::Value;

use crate::{
    faults::Faults,
    log::Entry,
    refusal::{self, Refusal},
    request::{RequestInfo, Verb},
    shared::Shared,
    state::Collecting,
    watch::{BoxError, Watching, reset},
    write::Answer,
};

type Reply = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// The server's connection to one client.
#[derive(Clone)]
pub struct ModelService {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Arc<str>,
}

impl tower::Service<Request<Body>> for ModelService {
    type Response = Reply;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            this.serve(RequestInfo::read(&this.client, &parts, body)).await
        })
    }
}

/// The answer that the server is about to send.
enum Outcome {
    Answer { code: u16, content_type: String, headers: Vec<(String, String)>, body: Vec<u8>, changed: bool },
    Watch(Box<Watching>),
}

impl ModelService {
    async fn serve(&self, request: RequestInfo) -> Result<Reply, BoxError> {
        let Due { before, after, delivered } = self.shared.faults().on_request(&request);
        let mut entry = Entry::of(&request);
        let mut times = 1;
        let mut outcome = None;
        for action in before {
            match action {
                Action::Drop => {
                    self.shared.state().log.push(entry);
                    return Err(reset());
                }
                Action::Answer(answer) => outcome = Some(instead(&answer)),
                Action::Duplicate => times += 1,
                other => self.pause(other).await,
            }
        }
        if outcome.is_none() {
            for _ in 0..times {
                outcome = Some(self.answer(&request));
            }
        } else {
            times = 0;
        }
        let Some(mut outcome) = outcome else { return Err(reset()) };
        let changed = matches!(outcome, Outcome::Answer { changed: true, .. });
        entry.changed = changed;
        entry.code = (times > 0).then(|| outcome.code());
        let position = self.log(entry);
        let mut trickle = None;
        for action in after {
            match action {
                Action::Drop => return Err(reset()),
                Action::Answer(answer) => outcome = instead(&answer),
                Action::Truncate(bytes) => {
                    if let Outcome::Answer { body, .. } = &mut outcome {
                        body.truncate(bytes);
                    }
                }
                Action::Trickle(size, pause) => trickle = Some((size, pause)),
                Action::Cut(frames) => {
                    if let Outcome::Watch(watching) = &mut outcome {
                        watching.cut_after(frames);
                    }
                }
                Action::Stall => match &mut outcome {
                    Outcome::Watch(watching) => watching.stall(),
                    Outcome::Answer { .. } => self.pause(Action::Stall).await,
                },
                other => self.pause(other).await,
            }
        }
        if let Some(entry) = self.shared.state().log.get_mut(position) {
            entry.delivered = true;
        }
        Ok(reply(outcome, trickle, self.shared.faults(), delivered))
    }

    fn log(&self, entry: Entry) -> usize {
        let mut state = self.shared.state();
        state.log.push(entry);
        state.log.len() - 1
    }

    /// Waits for the duration of the action.
    async fn pause(&self, action: Action) {
        match action {
            Action::Delay(time) => tokio::time::sleep(time).await,
            Action::Signal(name) => self.shared.faults().signal(&name).await,
            Action::Stall => {
                let releases = &self.shared.releases;
                releases.other_than(releases.number()).await;
            }
            _ => {}
        }
    }

    /// Handles a request whose client does not wait for the answer.
    pub(crate) fn handle_late(&self, request: &RequestInfo) {
        self.answer(request);
    }

    fn answer(&self, request: &RequestInfo) -> Outcome {
        if request.verb == Verb::Watch {
            let kind = self.shared.state().kind(&request.group, &request.version, &request.plural);
            if let Some(kind) = kind {
                return match Watching::start(self.shared.clone(), request.clone(), kind) {
                    Ok(watching) => Outcome::Watch(Box::new(watching)),
                    Err(refusal) => Outcome::refused(&refusal),
                };
            }
        }
        self.shared.change(|state| {
            let before = state.version;
            state.writer = request.client.as_str().into();
            let answer = state.handle(request);
            let changed = state.version != before;
            if changed && state.collecting == Collecting::AtOnce {
                state.writer = "garbage-collector".into();
                state.collect();
            }
            match answer {
                Ok(Answer { code, body }) => Outcome::json(code, &body, changed),
                Err(refusal) => Outcome::refused(&refusal),
            }
        })
    }
}

impl Outcome {
    fn json(code: u16, body: &Value, changed: bool) -> Self {
        let body = body.to_string().into_bytes();
        Self::Answer { code, content_type: "application/json".to_owned(), headers: Vec::new(), body, changed }
    }

    fn refused(refusal: &Refusal) -> Self {
        match refusal.body() {
            refusal::Body::Json(body) => Self::json(refusal.code, &body, false),
            refusal::Body::Text(text) => Self::Answer {
                code: refusal.code,
                content_type: "text/plain; charset=utf-8".to_owned(),
                headers: Vec::new(),
                body: text.into_bytes(),
                changed: false,
            },
        }
    }

    fn code(&self) -> u16 {
        match self {
            Self::Answer { code, .. } => *code,
            Self::Watch(_) => 200,
        }
    }
}

/// The answer of a fault.
fn instead(answer: &fault_plan::Answer) -> Outcome {
    let (content_type, body) = answer.content();
    let is_type = |name: &str| name.eq_ignore_ascii_case("content-type");
    let named = answer.headers.iter().find(|(name, _)| is_type(name)).map(|(_, value)| value.clone());
    Outcome::Answer {
        code: answer.code,
        content_type: named.unwrap_or_else(|| content_type.to_owned()),
        headers: answer.headers.iter().filter(|(name, _)| !is_type(name)).cloned().collect(),
        body: body.into_bytes(),
        changed: false,
    }
}

/// Builds the response. Once the client has read all of it, the actions for `delivered` start.
fn reply(
    outcome: Outcome,
    trickle: Option<(usize, Duration)>,
    faults: Arc<dyn Faults>,
    delivered: Vec<Action>,
) -> Reply {
    let mut response = Response::builder().status(outcome.code());
    let body = match outcome {
        Outcome::Watch(watching) => {
            response = response.header(header::CONTENT_TYPE, "application/json");
            let events = stream::unfold(watching, |mut watching| async move {
                let next = watching.next().await?;
                Some((next.map(Frame::data), watching))
            });
            UnsyncBoxBody::new(StreamBody::new(events))
        }
        Outcome::Answer { content_type, headers, body, .. } => {
            response = response.header(header::CONTENT_TYPE, content_type);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            let (size, pause) = trickle.unwrap_or((body.len().max(1), Duration::ZERO));
            let pieces: Vec<Bytes> = body.chunks(size.max(1)).map(Bytes::copy_from_slice).collect();
            let sent = Sent { pieces: pieces.into_iter(), pause, faults, delivered };
            let pieces = stream::unfold(sent, |mut sent| async move {
                let piece = sent.next().await?;
                Some((Ok::<_, Infallible>(Frame::data(piece)), sent))
            });
            UnsyncBoxBody::new(StreamBody::new(pieces).map_err(|never| match never {}))
        }
    };
    // Only headers from a plan can be invalid, and an invalid plan is a mistake in the test.
    response.body(body).unwrap_or_else(|error| panic!("invalid answer in a fault plan: {error}"))
}

struct Sent {
    pieces: std::vec::IntoIter<Bytes>,
    pause: Duration,
    faults: Arc<dyn Faults>,
    delivered: Vec<Action>,
}

impl Sent {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(piece) = self.pieces.next() {
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
            return Some(piece);
        }
        for action in self.delivered.drain(..) {
            if let Action::Signal(name) = action {
                // The client continues as far as it can without the server; then this runs.
                tokio::spawn(self.faults.signal(&name));
            }
        }
        None
    }
}
