//! Events for people (`kubectl describe`): collected per reconcile, sent in the background, never in a steady state.
//!
//! Sending never holds a reconcile up: the buffer is bounded, and what does not fit is dropped and counted. Repeats
//! within six minutes become one series; one object gets a burst of events and then a trickle.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

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

use crate::{metrics::Metrics, object::ObjectKey};

const BUFFER: usize = 1_000;
/// Two equal events within this time are one series.
const SERIES: Duration = Duration::from_mins(6);
/// As client-go: 25 at once per object, then one every five minutes.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_mins(5);
/// The API's own limit is 1,024.
const NOTE_BYTES: usize = 1_000;

/// How serious an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// For information.
    Normal,
    /// Somebody should look.
    Warning,
}

/// One event, before it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) type_: EventType,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) related: Option<Reference>,
}

/// The object that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Reference {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
}

/// Sends events; cheap to clone.
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
    /// A recorder, and the task that sends until `stop`, and then what is still in the buffer.
    pub(crate) fn new(
        client: Client,
        instance: String,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, receiver) = mpsc::channel(BUFFER);
        (Self { sender, metrics }, Sender { client, instance, sent: HashMap::new() }.run(receiver, stop))
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
    /// By a hash of the object: only repeats are looked for.
    sent: HashMap<u64, History>,
}

/// What was said lately about one object.
struct History {
    tokens: f64,
    refilled: Instant,
    /// By a hash of what was said.
    series: Vec<(u64, Series)>,
}

struct Series {
    name: String,
    count: u32,
    last: Instant,
}

impl Sender {
    async fn run(mut self, mut receiver: mpsc::Receiver<Posted>, stop: CancellationToken) {
        loop {
            tokio::select! {
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
        let now = Instant::now();
        if self.sent.len() > 4_096 {
            self.sent.retain(|_, history| now < history.refilled + SERIES);
        }
        let history = self.sent.entry(hash_of(&posted.regarding)).or_insert_with(|| History {
            tokens: BURST,
            refilled: now,
            series: Vec::new(),
        });
        history.series.retain(|(_, series)| now < series.last + SERIES);
        let gained = (now - history.refilled).as_secs_f64() / REFILL.as_secs_f64();
        history.tokens = (history.tokens + gained).min(BURST);
        history.refilled = now;
        if history.tokens < 1.0 {
            return;
        }
        history.tokens -= 1.0;

        let identity = hash_of(&(posted.note.type_, posted.note.reason, &posted.note.message));
        let namespace =
            if posted.regarding.key.namespace.is_empty() { "default" } else { &posted.regarding.key.namespace };
        let http = Http::new(format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"));
        let request = if let Some((_, series)) = history.series.iter_mut().find(|(said, _)| *said == identity) {
            series.count += 1;
            series.last = now;
            let patch = json!({"series": {"count": series.count, "lastObservedTime": micro_time()}});
            http.patch(&series.name, &PatchParams::default(), &Patch::Merge(patch))
        } else {
            let name = format!("{}.{}", posted.regarding.key.name, uuid::Uuid::new_v4().simple());
            let body = body(&name, namespace, &self.instance, &posted);
            history.series.push((identity, Series { name, count: 1, last: now }));
            http.create(&PostParams::default(), body.to_string().into_bytes())
        };
        let Ok(request) = request else { return };
        match tokio::time::timeout(Duration::from_secs(5), self.client.request_text(request)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(error = crate::error::chain(&error), "An event was not taken"),
            Err(_) => tracing::debug!("An event was not answered"),
        }
    }
}

fn hash_of(what: &impl Hash) -> u64 {
    let mut hasher = Xxh3::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn body(name: &str, namespace: &str, instance: &str, posted: &Posted) -> Value {
    let note = &posted.note;
    let mut body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": micro_time(),
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

fn micro_time() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// At most so many bytes of a text, never ending in the middle of a character.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The events of one reconcile: those with the same type and reason become one that lists them.
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

/// `Created Service "a"` and `Created Deployment "a"` make `Created Service and Deployment "a"`; what does not share
/// first word and object is put side by side.
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
        Note { type_: EventType::Normal, reason: "Created", message: message.to_owned(), related: None }
    }

    #[test]
    fn what_one_reconcile_makes_is_one_event() {
        let notes = vec![
            note("Created Deployment \"cache\""),
            note("Created Service \"cache\""),
            note("Created PodDisruptionBudget \"cache\""),
        ];
        let [one] = gather(notes).try_into().expect("one event");
        assert_eq!(one.message, "Created Deployment, Service and PodDisruptionBudget \"cache\"");
    }

    #[test]
    fn other_names_are_listed_side_by_side() {
        let notes = vec![note("Created Service \"a\""), note("Created Service \"b\"")];
        assert_eq!(gather(notes)[0].message, "Created Service \"a\"; Created Service \"b\"");
    }

    #[test]
    fn a_note_is_cut_between_characters() {
        let long = "é".repeat(600);
        assert_eq!(cut(&long, NOTE_BYTES).len(), 1_000);
        assert_eq!(cut(&format!("x{long}"), NOTE_BYTES).len(), 999);
    }
}
