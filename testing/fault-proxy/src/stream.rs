//! Passes the events of a watch from the server to the client, and applies the plan's faults to them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use fault_plan::{Action, Answer, Frame, Request};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use serde::Deserialize;
use tokio::sync::{mpsc, watch};

use crate::{reset::Reset, shared::Shared};

/// The body of an answer to a client.
pub(crate) type Body = UnsyncBoxBody<Bytes, Reset>;

/// How the plan shortens or divides a stream.
#[derive(Debug, Default)]
pub(crate) struct Cutting {
    /// The stream ends after this many more frames.
    pub(crate) frames: Option<u32>,
    /// The stream ends after this many bytes of the next frame.
    pub(crate) bytes: Option<usize>,
    /// Every frame comes in pieces of this many bytes, with this pause after each.
    pub(crate) pieces: Option<(usize, Duration)>,
}

/// Passes events from the server to the client.
pub(crate) struct Pump {
    shared: Arc<Shared>,
    watch: Request,
    out: mpsc::Sender<Bytes>,
    cutting: Cutting,
    /// The held events, by namespace and name of the object.
    held: HashMap<(String, String), Bytes>,
    released: watch::Receiver<u64>,
}

/// The stream has ended, because of the plan or because the client has disconnected.
struct Ended;

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    type_: String,
    object: Object,
}

/// The fields of an object that the proxy reads.
#[derive(Deserialize)]
pub(crate) struct Object {
    #[serde(default)]
    pub(crate) metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) resource_version: Option<String>,
}

/// A body that streams the content of the channel.
pub(crate) fn body(pieces: mpsc::Receiver<Bytes>) -> Body {
    let frames = futures::stream::unfold(pieces, async |mut pieces| {
        let piece = pieces.recv().await?;
        Some((Ok::<_, Reset>(http_body_frame(piece)), pieces))
    });
    StreamBody::new(frames).boxed_unsync()
}

fn http_body_frame(piece: Bytes) -> hyper::body::Frame<Bytes> {
    hyper::body::Frame::data(piece)
}

/// Sends `bytes` in pieces of `size`, with a pause after each. Returns `false` if the client has disconnected.
pub(crate) async fn trickle(out: &mpsc::Sender<Bytes>, mut bytes: Bytes, size: usize, pause: Duration) -> bool {
    while !bytes.is_empty() {
        let piece = bytes.split_to(size.max(1).min(bytes.len()));
        if out.send(piece).await.is_err() {
            return false;
        }
        tokio::time::sleep(pause).await;
    }
    true
}

impl Pump {
    pub(crate) fn new(shared: Arc<Shared>, watch: Request, out: mpsc::Sender<Bytes>, cutting: Cutting) -> Self {
        Self { released: shared.released(), shared, watch, out, cutting, held: HashMap::new() }
    }

    pub(crate) async fn run(mut self, mut body: kube::client::Body) {
        if self.cutting.frames == Some(0) {
            return;
        }
        let mut buffer = BytesMut::new();
        loop {
            let out = self.out.clone();
            let data = tokio::select! {
                () = out.closed() => return,
                Ok(()) = self.released.changed(), if !self.held.is_empty() => {
                    for (_, line) in std::mem::take(&mut self.held) {
                        if self.send(line).await.is_err() {
                            return;
                        }
                    }
                    continue;
                }
                data = body.frame() => data,
            };
            let Some(Ok(data)) = data else { return };
            buffer.extend_from_slice(&data.into_data().unwrap_or_default());
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(end + 1).freeze();
                let passed = tokio::select! {
                    () = out.closed() => return,
                    passed = self.pass(line) => passed,
                };
                if passed.is_err() {
                    return;
                }
            }
        }
    }

    /// Passes one frame on, or applies the plan's faults to it.
    async fn pass(&mut self, line: Bytes) -> Result<(), Ended> {
        let Ok(Event { type_, object: Object { metadata } }) = serde_json::from_slice(&line) else {
            return self.send(line).await; // not an event, so no rule can match it
        };
        let version = metadata.resource_version.unwrap_or_default();
        let own = self.shared.asks_own() && self.shared.recorder.wrote(&self.watch.identity, &version).await;
        let name = metadata.name.unwrap_or_default();
        let frame = Frame { type_, namespace: metadata.namespace.unwrap_or_default(), name, own };
        let due = self.shared.progress().frame(&self.watch, &frame);
        self.shared.recorder.saw(&self.watch, &frame, &due);
        let key = (frame.namespace, frame.name);
        self.held.remove(&key); // a newer event replaces a held one

        let (mut line, mut lost) = (line, false);
        for action in &due {
            match action {
                Action::Hold => {
                    self.released.mark_unchanged(); // earlier releases do not count for this event
                    self.held.insert(key.clone(), line.clone());
                    lost = true;
                }
                Action::Drop => lost = true,
                Action::Duplicate => line = [&line[..], &line].concat().into(),
                Action::Join => line = [line.trim_ascii_end(), &line].concat().into(),
                Action::Replace(text) => line = format!("{text}\n").into(),
                Action::Gone => line = expired(),
                other => self.shared.wait(other, &self.watch).await,
            }
            match action {
                Action::Cut(frames) => self.cutting.frames = Some(frames + 1),
                Action::Gone => self.cutting.frames = Some(1),
                Action::Truncate(bytes) => self.cutting.bytes = Some(*bytes),
                Action::Trickle(bytes, pause) => self.cutting.pieces = Some((*bytes, *pause)),
                _ => {}
            }
        }
        if lost { self.count() } else { self.send(line).await }
    }

    async fn send(&mut self, mut line: Bytes) -> Result<(), Ended> {
        if let Some(bytes) = self.cutting.bytes {
            line.truncate(bytes);
        }
        let (size, pause) = self.cutting.pieces.unwrap_or((usize::MAX, Duration::ZERO));
        if !trickle(&self.out, line, size, pause).await || self.cutting.bytes.is_some() {
            return Err(Ended);
        }
        self.count()
    }

    fn count(&mut self) -> Result<(), Ended> {
        if let Some(frames) = &mut self.cutting.frames {
            *frames = frames.saturating_sub(1);
            if *frames == 0 {
                return Err(Ended);
            }
        }
        Ok(())
    }
}

/// The event with which the API server ends a watch at a version that is too old.
fn expired() -> Bytes {
    let (_, status) = Answer::code(410).content();
    format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into()
}
