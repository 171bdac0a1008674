//! Kubernetes events (`kubectl describe`): collected per reconcile, sent in the background, never in a steady state.
//!
//! Sending never delays a reconcile: the buffer is bounded, and events that do not fit are dropped and counted. Repeats
//! within six minutes become one series. Each object may have a burst of events, and then one every five minutes.

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use api_errors::{Class, chain, classify};
use cache::ObjectKey;
use jiff::Timestamp;
use kube::{
    Client,
    api::{Patch, PatchParams, PostParams},
    core::Request as Http,
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::Xxh3;

use crate::{clock::Clock, metrics::Metrics, random::Random};

const BUFFER: usize = 1_000;
/// Two equal events within this time are one series.
const SERIES: Duration = Duration::from_mins(6);
/// Like client-go: 25 at once per object, then one every five minutes.
const BURST: f32 = 25.0;
const REFILL: Duration = Duration::from_mins(5);
/// The longest note. The API's own limit is 1,024 bytes.
const NOTE_BYTES: usize = 1_000;

/// How serious an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// For information.
    Normal,
    /// A user or an administrator should look at it.
    Warning,
}

/// An event to emit: the result of a decision that is a pure function, without a `Context`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The event's type.
    pub type_: EventType,
    /// The event's reason.
    pub reason: &'static str,
    /// The event's message.
    pub message: String,
}

impl Event {
    /// Returns an event of the type Normal.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_: EventType::Normal, reason, message: message.into() }
    }

    /// Returns an event of the type Warning.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_: EventType::Warning, reason, message: message.into() }
    }
}

/// One event, before it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) type_: EventType,
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
    pub(crate) related: Option<Reference>,
}

/// A reference to an object that an event names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Reference {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
}

/// Passes events to the task that sends them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Recorder {
    sender: mpsc::Sender<Posted>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct Posted {
    controller: String,
    regarding: Reference,
    note: Note,
}

impl Recorder {
    /// Returns a recorder, and the task that sends its events: until `stop`, and then those still in the buffer.
    pub(crate) fn new(
        client: Client,
        instance: String,
        metrics: Arc<Metrics>,
        clock: Clock,
        random: Random,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, receiver) = mpsc::channel(BUFFER);
        let sending = Sender { client, instance, clock, random, sent: Histories::default() }.run(receiver, stop);
        (Self { sender, metrics }, sending)
    }

    pub(crate) fn post(&self, controller: &str, regarding: Reference, note: Note) {
        let posted = Posted { controller: controller.to_owned(), regarding, note };
        if self.sender.try_send(posted).is_err() {
            self.metrics.events_dropped.inc();
        }
    }
}

struct Sender {
    client: Client,
    instance: String,
    clock: Clock,
    random: Random,
    sent: Histories,
}

/// The recent events, by a hash of the object. A hash is enough to detect repeats.
#[derive(Default)]
struct Histories {
    by_object: HashMap<u64, History>,
    /// The number of histories at which those that no longer matter are removed.
    sweep_at: usize,
}

/// The recent events of one object.
struct History {
    tokens: f32,
    refilled: Instant,
    series: Vec<Series>,
}

/// The repeats of one event.
struct Series {
    /// A hash of type, reason and message.
    identity: u64,
    /// The end of the event's name.
    suffix: u64,
    count: u32,
    last: Instant,
}

impl Sender {
    async fn run(mut self, mut receiver: mpsc::Receiver<Posted>, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                posted = receiver.recv() => match posted {
                    Some(posted) => self.send(posted).await,
                    None => return,
                },
                () = stop.cancelled() => break,
            }
        }
        receiver.close();
        let flush = async {
            while let Some(posted) = receiver.recv().await {
                self.send(posted).await;
            }
        };
        drop(tokio::time::timeout(Duration::from_secs(2), flush).await);
    }

    async fn send(&mut self, posted: Posted) {
        let identity = hash_of(&(posted.note.type_, &posted.note.reason, &posted.note.message));
        let Some(&mut Series { suffix, count, .. }) =
            self.sent.record(hash_of(&posted.regarding), identity, Instant::now(), || self.random.number())
        else {
            return;
        };
        let name = format!("{}.{suffix:016x}", posted.regarding.key.name);
        let namespace =
            if posted.regarding.key.namespace.is_empty() { "default" } else { &posted.regarding.key.namespace };
        let http = Http::new(format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"));
        if count > 1 {
            let patch = json!({"series": {"count": count, "lastObservedTime": micro_time((self.clock)())}});
            let patch = http.patch(&name, &PatchParams::default(), &Patch::Merge(patch));
            if !self.request(patch).await {
                return;
            }
            // The first request has failed, or a client has deleted the event.
        }
        let body = body(&name, namespace, &self.instance, &posted, (self.clock)());
        self.request(http.create(&PostParams::default(), body.to_string().into_bytes())).await;
    }

    /// Sends a request. Returns whether the API server has answered that there is no such event.
    async fn request(&self, request: Result<http::Request<Vec<u8>>, kube::core::request::Error>) -> bool {
        let Ok(request) = request else { return false };
        match tokio::time::timeout(Duration::from_secs(5), self.client.request_text(request)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) if classify(&error) == Class::NotFound => return true,
            Ok(Err(error)) => tracing::debug!(error = chain(&error), "An event could not be sent"),
            Err(_) => tracing::debug!("Sending an event timed out"),
        }
        false
    }
}

impl Histories {
    /// Records an event of an object, and returns its series. `None` if the object has had too many events lately.
    fn record(
        &mut self,
        object: u64,
        identity: u64,
        now: Instant,
        suffix: impl FnOnce() -> u64,
    ) -> Option<&mut Series> {
        if self.by_object.len() >= self.sweep_at {
            self.by_object.retain(|_, history| history.matters(now));
            self.by_object.shrink_to(self.by_object.len() + 1);
            self.sweep_at = 256.max(2 * self.by_object.len());
        }
        let history = self.by_object.entry(object).or_insert_with(|| History::new(now));
        history.series.retain(|series| now < series.last + SERIES);
        let gained = (now - history.refilled).as_secs_f32() / REFILL.as_secs_f32();
        history.tokens = (history.tokens + gained).min(BURST);
        history.refilled = now;
        if history.tokens < 1.0 {
            return None;
        }
        history.tokens -= 1.0;
        let known = history.series.iter().position(|series| series.identity == identity);
        let index = known.unwrap_or_else(|| {
            history.series.reserve_exact(1);
            history.series.push(Series { identity, suffix: suffix(), count: 0, last: now });
            history.series.len() - 1
        });
        let series = &mut history.series[index];
        series.count += 1;
        series.last = now;
        Some(series)
    }
}

impl History {
    fn new(now: Instant) -> Self {
        Self { tokens: BURST, refilled: now, series: Vec::new() }
    }

    /// Whether this history still differs from an empty one.
    fn matters(&self, now: Instant) -> bool {
        now < self.refilled + SERIES || now < self.refilled + REFILL.mul_f32(BURST - self.tokens)
    }
}

fn hash_of(what: &impl Hash) -> u64 {
    let mut hasher = Xxh3::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn body(name: &str, namespace: &str, instance: &str, posted: &Posted, now: Timestamp) -> Value {
    let note = &posted.note;
    let mut body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": micro_time(now),
        "type": match note.type_ { EventType::Normal => "Normal", EventType::Warning => "Warning" },
        "reason": note.reason,
        "action": "Reconcile",
        "note": cut(&note.message, NOTE_BYTES),
        "regarding": reference(&posted.regarding),
        "reportingController": posted.controller,
        "reportingInstance": instance,
    });
    if let Some(related) = &note.related {
        body["related"] = reference(related);
    }
    body
}

fn reference(object: &Reference) -> Value {
    json!({
        "apiVersion": object.api_version, "kind": object.kind, "namespace": &*object.key.namespace,
        "name": &*object.key.name, "uid": object.uid,
    })
}

fn micro_time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Returns at most this many bytes of a text, without cutting a character.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Joins the events of one reconcile: those with the same type and reason become one that lists them.
pub(crate) fn gather(notes: Vec<Note>) -> Vec<Note> {
    let mut gathered: Vec<Note> = Vec::new();
    for note in notes {
        match gathered.iter_mut().find(|other| other.type_ == note.type_ && other.reason == note.reason) {
            Some(other) if other.message == note.message => {}
            Some(other) => {
                other.message = join(&other.message, &note.message);
                other.related = None;
            }
            None => gathered.push(note),
        }
    }
    gathered
}

/// Joins two messages: `Created Service "a"` and `Created Deployment "a"` become `Created Service and Deployment "a"`.
/// Messages that do not share first word and object are put side by side.
fn join(first: &str, second: &str) -> String {
    fn parts(message: &str) -> Option<(&str, &str, &str)> {
        let (verb, rest) = message.split_once(' ')?;
        let quote = rest.find(" \"")?;
        Some((verb, &rest[..quote], &rest[quote..]))
    }
    match (parts(first), parts(second)) {
        (Some((verb, kinds, name)), Some((other_verb, kind, other_name)))
            if verb == other_verb && name == other_name && name.ends_with('"') =>
        {
            format!("{verb} {} and {kind}{name}", kinds.replace(" and ", ", "))
        }
        _ => format!("{first}; {second}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(message: &str) -> Note {
        Note { type_: EventType::Normal, reason: "Created".into(), message: message.to_owned(), related: None }
    }

    #[test]
    fn notes_of_one_reconcile_become_one_event() {
        let notes = vec![
            note("Created Deployment \"cache\""),
            note("Created Service \"cache\""),
            note("Created PodDisruptionBudget \"cache\""),
        ];
        let [one] = gather(notes).try_into().expect("one event");
        assert_eq!(one.message, "Created Deployment, Service and PodDisruptionBudget \"cache\"");
    }

    #[test]
    fn merged_event_lists_different_names() {
        let notes = vec![note("Created Service \"a\""), note("Created Service \"b\"")];
        assert_eq!(gather(notes)[0].message, "Created Service \"a\"; Created Service \"b\"");
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_event_is_a_series_and_event_rate_is_limited() {
        let (mut sent, start, mut suffixes) = (Histories::default(), Instant::now(), 0..);
        let mut record = |object, identity, seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            sent.record(object, identity, now, || suffixes.next().expect("another"))
                .map(|series| (series.suffix, series.count))
        };
        let (first, count) = record(1, 7, 0).expect("is sent");
        assert_eq!(count, 1);
        assert_eq!(record(1, 7, 359), Some((first, 2)));
        assert_eq!(record(1, 8, 360).map(|(_, count)| count), Some(1), "something else");
        let (second, count) = record(1, 7, 359 + 361).expect("is sent");
        assert!(second != first && count == 1, "that series is over");
        let said = (0..100).filter(|identity| record(2, *identity, 0).is_some()).count();
        assert_eq!(said, 25);
        assert!(record(2, 1_000, 301).is_some() && record(2, 1_000, 302).is_none(), "one every five minutes");
    }

    #[tokio::test(start_paused = true)]
    async fn outdated_event_histories_are_dropped() {
        let (mut sent, start) = (Histories::default(), Instant::now());
        for object in 0..10_000 {
            sent.record(object, 1, start + Duration::from_secs(object), || 0);
        }
        assert!(sent.by_object.len() < 2_000, "{}", sent.by_object.len());
    }

    #[test]
    fn a_note_is_cut_between_characters() {
        let long = "é".repeat(600);
        assert_eq!(cut(&long, NOTE_BYTES).len(), 1_000);
        assert_eq!(cut(&format!("x{long}"), NOTE_BYTES).len(), 999);
    }
}
