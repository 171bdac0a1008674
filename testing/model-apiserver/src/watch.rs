//! WATCH requests: the changes of a resource as a stream of lines.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use bytes::Bytes;
use fault_plan::{Action, Frame};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    kind::Kind, read::served, refusal::Refusal, request::RequestInfo, selector::Selector, shared::Shared, state::Change,
};

/// An error of the connection to a client.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The duration of a watch that requests no time-out.
const LONG: Duration = Duration::from_mins(45);
const BOOKMARKS: Duration = Duration::from_mins(1);
/// The time between the last bookmark and the end of a watch.
const BEFORE_THE_END: Duration = Duration::from_secs(2);

/// One open watch.
pub(crate) struct Watching {
    shared: Arc<Shared>,
    request: RequestInfo,
    kind: Arc<Kind>,
    selector: Selector,
    /// All changes up to this version are in `ready` or were sent.
    position: u64,
    ready: VecDeque<Event>,
    out: VecDeque<Out>,
    /// Events that a fault holds back.
    held: Vec<Event>,
    stalled: bool,
    ended: bool,
    /// The number of restores when the watch started. The next restore breaks the watch.
    restored: u64,
    /// The number of frames before a fault cuts the stream.
    left: Option<u32>,
    bookmarks: bool,
    end: Instant,
    next_bookmark: Instant,
    /// The version of the server's state that the watch has processed.
    version: u64,
    /// The number of releases that the watch has processed.
    release: u64,
}

#[derive(Debug, Clone)]
struct Event {
    frame: Frame,
    text: String,
}

#[derive(Debug)]
enum Out {
    Bytes(Bytes),
    Wait(Duration),
    Signal(String),
    Break,
}

impl Watching {
    pub(crate) fn start(shared: Arc<Shared>, request: RequestInfo, kind: Arc<Kind>) -> Result<Self, Refusal> {
        let labels = request.text("labelSelector");
        let mut fields = request.text("fieldSelector").to_owned();
        if !request.name.is_empty() {
            fields = format!("metadata.name={}", request.name);
        }
        let selector = Selector::read(&kind, &request.namespace, labels, &fields)?;
        let (version, release) = (shared.versions.number(), shared.releases.number());
        let lasts = request.text("timeoutSeconds").parse().ok().filter(|seconds| *seconds > 0);
        let bookmarks = request.flag("allowWatchBookmarks");
        let now = Instant::now();
        let mut watching = Self {
            shared,
            kind,
            selector,
            position: 0,
            ready: VecDeque::new(),
            out: VecDeque::new(),
            held: Vec::new(),
            stalled: false,
            ended: false,
            restored: 0,
            left: None,
            bookmarks,
            end: now + lasts.map_or(LONG, Duration::from_secs),
            next_bookmark: now,
            version,
            release,
            request,
        };
        watching.schedule_bookmark();
        watching.begin()?;
        Ok(watching)
    }

    /// Ends the watch after this number of frames.
    pub(crate) fn cut_after(&mut self, frames: u32) {
        self.left = Some(frames);
    }

    /// Sends nothing until a release.
    pub(crate) fn stall(&mut self) {
        self.stalled = true;
    }

    fn begin(&mut self) -> Result<(), Refusal> {
        let shared = self.shared.clone();
        let state = shared.state();
        self.restored = state.restored;
        let asked = self.request.text("resourceVersion").to_owned();
        state.check_version(&asked)?;
        let wants_state = self.request.query.get("sendInitialEvents").map(|value| value == "true");
        let from: u64 = asked.parse().unwrap_or_default();
        if wants_state.unwrap_or(from == 0) {
            self.position = state.version;
            let resource = self.kind.resource();
            let objects: Vec<Arc<Value>> = state.all(&resource).map(|(_, object)| object.clone()).collect();
            for object in objects.iter().filter(|object| self.selector.matches(object)) {
                let event = self.event("ADDED", (**object).clone(), false);
                self.ready.push_back(event);
            }
            if wants_state == Some(true) && self.bookmarks {
                let annotations = json!({"k8s.io/initial-events-end": "true"});
                let event = self.bookmark(state.version, Some(annotations));
                self.ready.push_back(event);
            }
        } else if from == 0 {
            self.position = state.version;
        } else if from < state.compacted {
            let message = format!("too old resource version: {from} ({})", state.compacted);
            self.ready.push_back(failed(&Refusal::expired(message)));
        } else {
            self.position = from;
        }
        Ok(())
    }

    /// The next frame; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            if !self.ended && self.shared.state().restored != self.restored {
                self.ended = true;
                return Some(Err(reset()));
            }
            match self.out.pop_front() {
                Some(Out::Bytes(bytes)) => return Some(Ok(bytes)),
                Some(Out::Wait(time)) => tokio::time::sleep(time).await,
                Some(Out::Signal(name)) => self.shared.faults().signal(&name).await,
                Some(Out::Break) => {
                    self.ended = true;
                    return Some(Err(reset()));
                }
                None if self.ended => return None,
                None if self.stalled => self.wait().await,
                None => match self.take() {
                    Some(event) => self.send(&event),
                    None => self.wait().await,
                },
            }
        }
    }

    /// Waits for a change, a release, or the next point in time.
    async fn wait(&mut self) {
        if Instant::now() >= self.end && !self.stalled {
            self.ended = true; // sending delayed events took longer than the time-out of the watch
            return;
        }
        tokio::select! {
            biased;
            release = self.shared.releases.other_than(self.release) => {
                self.release = release;
                self.stalled = false;
                let held = std::mem::take(&mut self.held);
                self.out.extend(held.into_iter().map(|event| Out::Bytes(event.text.into())));
            }
            version = self.shared.versions.other_than(self.version), if !self.stalled => self.version = version,
            () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks && !self.stalled => {
                let event = self.bookmark(self.position, None);
                self.schedule_bookmark();
                self.send(&event);
            }
            () = tokio::time::sleep_until(self.end), if !self.stalled => self.ended = true,
        }
    }

    fn schedule_bookmark(&mut self) {
        let now = Instant::now();
        let last = self.end - BEFORE_THE_END.min(self.end - now);
        let next = now + BOOKMARKS;
        self.next_bookmark = if next < last {
            next
        } else if now < last {
            last
        } else {
            self.end + BOOKMARKS
        };
    }

    /// The next event that this watch selects.
    fn take(&mut self) -> Option<Event> {
        if let Some(event) = self.ready.pop_front() {
            return Some(event);
        }
        let shared = self.shared.clone();
        let state = shared.state();
        loop {
            let Some(change) = state.change_after(&self.kind.resource(), self.position) else {
                self.position = self.position.max(state.version);
                return None;
            };
            self.position = change.version;
            if let Some(event) = self.seen(change) {
                return Some(event);
            }
        }
    }

    /// The event for a change, as the selector shows it.
    fn seen(&self, change: &Change) -> Option<Event> {
        let matching = |object: &Option<Arc<Value>>| object.clone().filter(|object| self.selector.matches(object));
        let own = *change.writer == *self.request.client;
        match (matching(&change.before), matching(&change.after)) {
            (None, None) => None,
            (None, Some(after)) => Some(self.event("ADDED", Arc::unwrap_or_clone(after), own)),
            (Some(_), Some(after)) => Some(self.event("MODIFIED", Arc::unwrap_or_clone(after), own)),
            (Some(before), None) => {
                let mut gone = Arc::unwrap_or_clone(before);
                gone["metadata"]["resourceVersion"] = change.version.to_string().into();
                Some(self.event("DELETED", gone, own))
            }
        }
    }

    /// Sends an event, after applying faults to it.
    fn send(&mut self, event: &Event) {
        if self.left == Some(0) {
            self.ended = true;
            return;
        }
        let same =
            |other: &Event| other.frame.namespace == event.frame.namespace && other.frame.name == event.frame.name;
        self.held.retain(|held| !same(held));
        let actions = self.shared.faults().on_frame(&self.request, &event.frame);
        let mut text = Some(event.text.clone());
        let mut last = None;
        for action in actions {
            match action {
                Action::Delay(time) => self.out.push_back(Out::Wait(time)),
                Action::Signal(name) => self.out.push_back(Out::Signal(name)),
                Action::Hold => {
                    text = None;
                    self.held.push(event.clone());
                }
                Action::Drop => text = None,
                Action::Duplicate => text = text.map(|text| format!("{text}{text}")),
                Action::Join => text = text.map(|text| format!("{}{text}", text.trim_end())),
                Action::Replace(other) => text = Some(format!("{other}\n")),
                Action::Gone => {
                    text =
                        Some(failed(&Refusal::expired("The resourceVersion for the provided watch is too old.")).text);
                    self.ended = true;
                }
                Action::Cut(_) => self.ended = true,
                Action::Truncate(bytes) => {
                    text = text.map(|text| text.chars().take(bytes).collect());
                    last = Some(Out::Break);
                }
                Action::Trickle(size, pause) => {
                    let whole = text.take().unwrap_or_default().into_bytes();
                    for piece in whole.chunks(size.max(1)) {
                        self.out.push_back(Out::Bytes(Bytes::copy_from_slice(piece)));
                        self.out.push_back(Out::Wait(pause));
                    }
                }
                Action::Stall => {
                    self.stalled = true;
                    self.ready.push_front(event.clone());
                    text = None;
                }
                Action::Answer(_) => {}
            }
        }
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.out.push_back(Out::Bytes(text.into()));
        }
        self.out.extend(last);
        if event.frame.type_ == "ERROR" {
            self.ended = true;
        }
        if let Some(left) = &mut self.left {
            *left -= 1;
            self.ended |= *left == 0;
        }
    }

    fn event(&self, type_: &str, object: Value, own: bool) -> Event {
        let object = served(&self.kind, object);
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let frame = Frame { type_: type_.to_owned(), namespace: text("namespace"), name: text("name"), own };
        Event { frame, text: line(type_, &object) }
    }

    fn bookmark(&self, version: u64, annotations: Option<Value>) -> Event {
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if let Some(annotations) = annotations {
            metadata["annotations"] = annotations;
        }
        let object = json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata});
        self.event("BOOKMARK", object, false)
    }
}

fn failed(refusal: &Refusal) -> Event {
    let frame = Frame { type_: "ERROR".to_owned(), ..Frame::default() };
    Event { frame, text: line("ERROR", &refusal.status()) }
}

/// The event as a line. The type comes first, as from the real server: clients that keep the object as text rely on this order.
fn line(type_: &str, object: &Value) -> String {
    format!("{{\"type\":{},\"object\":{object}}}\n", json!(type_))
}

/// The client's error when the connection breaks.
pub(crate) fn reset() -> BoxError {
    Box::new(io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by a fault"))
}
