//! The state of one informer: sentences for probes, numbers for metrics.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use api_errors::{chain, sentence};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::reflector::Failure;
use crate::{observed::Observed, store::WentBack};

/// A watch that was silent for this long is reported by `/readyz?verbose`, some time before it is given up. Bookmarks come
/// every minute.
const QUIET_AFTER: Duration = Duration::from_secs(150);
/// How long `/readyz?verbose` reports that the cluster was restored.
const REMEMBERED: Duration = Duration::from_mins(10);

/// The state of one informer, for probes and metrics.
#[derive(Debug)]
pub struct InformerHealth {
    /// The kind in `CamelCase`.
    pub kind: String,
    /// The resource as in `kubectl get`, such as `memcacheds.memcached.cache.example.com`.
    pub resource: String,
    /// The worst phase of all watches.
    phase: Observed<Phase>,
    /// One for each watched namespace, or one for all namespaces.
    watches: Mutex<Vec<Watch>>,
    /// Whether the cache was synced once and the kind has not been uninstalled since.
    installed: AtomicBool,
    /// Whether a controller cannot work without the kind.
    required: AtomicBool,
    restarts: Mutex<BTreeMap<&'static str, u64>>,
    /// When the cluster was last found to have gone back in time.
    went_back: Mutex<Option<Instant>>,
    objects: AtomicU64,
    undecodable: AtomicU64,
}

#[derive(Debug, Clone, Default)]
struct Watch {
    phase: Phase,
    /// When the API server last sent anything on this watch, even a bookmark.
    heard: Option<Instant>,
}

/// The phase of a watch, from good to bad: `Ord` picks the worst.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Listed, watching.
    Synced,
    /// The API server does not know the kind.
    NotInstalled,
    /// RBAC forbids the list or the watch. Holds the message for probes.
    Forbidden(String),
    /// The first list is under way.
    #[default]
    Starting,
    /// Another error; the informer retries. Holds the message for probes.
    Failing(String),
}

/// What the metrics show of one informer.
#[derive(Debug)]
pub struct InformerFigures<'a> {
    /// In `CamelCase`.
    pub kind: &'a str,
    /// Objects in the cache.
    pub objects: u64,
    /// Objects that do not match their schema.
    pub undecodable: u64,
    /// When the API server last sent anything on the quietest watch, in seconds since 1970.
    pub last_heard: i64,
    /// Restarted watches since the start of the process, by reason.
    pub restarts: Vec<(&'static str, u64)>,
}

impl InformerHealth {
    /// The health of an informer that does not run yet.
    pub fn new(kind: String, resource: String) -> Self {
        Self {
            kind,
            resource,
            phase: Observed::default(),
            watches: Mutex::default(),
            installed: AtomicBool::new(false),
            required: AtomicBool::new(false),
            restarts: Mutex::default(),
            went_back: Mutex::default(),
            objects: AtomicU64::new(0),
            undecodable: AtomicU64::new(0),
        }
    }

    /// The worst phase of all watches.
    pub fn phase(&self) -> Phase {
        self.phase.get().clone()
    }

    /// Returns when the cache is synced.
    pub async fn until_synced(&self) {
        self.phase.until(|phase| *phase == Phase::Synced).await;
    }

    /// Returns when the cache is not synced.
    pub async fn until_unsynced(&self) {
        self.phase.until(|phase| *phase != Phase::Synced).await;
    }

    /// Whether the cluster has the kind: it was listed and has not been uninstalled since.
    pub fn is_installed(&self) -> bool {
        self.installed.load(Ordering::Relaxed)
    }

    /// Whether the API server says that it does not have the kind. False while the kind is not listed yet, or cannot be listed.
    pub fn is_missing(&self) -> bool {
        *self.phase.get() == Phase::NotInstalled
    }

    /// Marks the kind as required: a controller depends on it.
    pub fn require(&self) {
        self.required.store(true, Ordering::Relaxed);
    }

    /// Whether the cluster lacks the kind and no controller requires it.
    pub(super) fn is_optional_and_missing(&self) -> bool {
        !self.required.load(Ordering::Relaxed) && self.is_missing()
    }

    /// Time since the last message on the quietest watch; `None` until each watch has received one.
    fn silence(&self) -> Option<Duration> {
        let watches = self.watches();
        watches.iter().map(|watch| watch.heard.map(|at| at.elapsed())).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// The warning of `/readyz?verbose` on a synced informer, if there is one: a silent watch or a restored cluster.
    pub fn warning(&self) -> Option<String> {
        if let Some(silence) = self.silence().filter(|silence| *silence > QUIET_AFTER) {
            return Some(format!("{} not heard of for {}s", self.resource, silence.as_secs()));
        }
        let ago = self.went_back_at().map(|at| at.elapsed()).filter(|ago| *ago < REMEMBERED)?;
        Some(format!("{} listed again: the cluster went back in time {}s ago", self.resource, ago.as_secs()))
    }

    /// Records that the cluster was restored to an earlier state. `back` holds the versions that show it; `None` if only
    /// versions of single objects do.
    pub(super) fn went_back(&self, back: Option<WentBack>) {
        *self.restarts.lock().entry("restored").or_default() += 1;
        *self.went_back.lock() = Some(Instant::now());
        let (known, now) = back.map_or((0, 0), |back| (back.known, back.now));
        tracing::warn!(
            kind = self.kind,
            known,
            now,
            "The cluster was restored to an earlier state; all informers relist"
        );
    }

    fn went_back_at(&self) -> Option<Instant> {
        *self.went_back.lock()
    }

    /// What the metrics show of this informer.
    pub fn figures(&self) -> InformerFigures<'_> {
        InformerFigures {
            kind: &self.kind,
            objects: self.objects.load(Ordering::Relaxed),
            undecodable: self.undecodable.load(Ordering::Relaxed),
            last_heard: self.silence().map_or(0, |silence| (Timestamp::now() - silence).as_second()),
            restarts: self.restarts.lock().iter().map(|(reason, count)| (*reason, *count)).collect(),
        }
    }

    /// Sets the number of watches and resets their states.
    pub(super) fn begin(&self, watches: usize) {
        *self.watches() = vec![Watch::default(); watches];
    }

    /// Records that the API server has sent something on this watch.
    pub(super) fn heard(&self, watch: usize) {
        self.watches()[watch].heard = Some(Instant::now());
    }

    pub(super) fn count(&self, (objects, undecodable): (usize, usize)) {
        self.objects.store(objects as u64, Ordering::Relaxed);
        self.undecodable.store(undecodable as u64, Ordering::Relaxed);
    }

    /// Records that this watch has its list, or continues from its last version.
    pub(super) fn synced(&self, watch: usize) {
        self.change(watch, Phase::Synced);
    }

    pub(super) fn failed(&self, watch: usize, error: &Failure) {
        let (phase, reason) = diagnose(error, &self.resource);
        *self.restarts.lock().entry(reason).or_default() += 1;
        if let Some(phase) = phase {
            self.change(watch, phase);
        } else {
            tracing::debug!(kind = self.kind, error = chain(error), "Watch ended and starts again");
        }
    }

    /// Sets the phase of one watch. Logs only when the informer's phase changes: an API server that is down for an hour must
    /// not fill a disk.
    fn change(&self, watch: usize, next: Phase) {
        let mut watches = self.watches();
        watches[watch].phase = next;
        let Some(worst) = watches.iter().map(|watch| &watch.phase).max().cloned() else { return };
        match worst {
            Phase::Synced => self.installed.store(true, Ordering::Relaxed),
            Phase::NotInstalled => self.installed.store(false, Ordering::Relaxed),
            _ => {}
        }
        self.phase.modify(|phase| {
            let same_state = std::mem::discriminant(phase) == std::mem::discriminant(&worst);
            if !same_state {
                match &worst {
                    Phase::Synced => tracing::debug!(kind = self.kind, "Cache is in sync"),
                    Phase::NotInstalled if !self.required.load(Ordering::Relaxed) => {
                        tracing::info!(kind = self.kind, "The kind is not installed; waiting for it");
                    }
                    other => {
                        tracing::warn!(
                            kind = self.kind,
                            state = other.describe(&self.resource),
                            "Cache is not in sync"
                        );
                    }
                }
            }
            let changed = *phase != worst;
            *phase = worst;
            changed
        });
    }

    fn watches(&self) -> MutexGuard<'_, Vec<Watch>> {
        self.watches.lock()
    }
}

impl Phase {
    /// The phase in words on which a user can act; `ok` when synced.
    pub fn describe(&self, resource: &str) -> String {
        match self {
            Self::Starting => format!("{resource} not listed yet"),
            Self::Synced => "ok".to_owned(),
            Self::NotInstalled => format!("crd {resource} not installed"),
            Self::Forbidden(message) | Self::Failing(message) => message.clone(),
        }
    }
}

/// The phase for this error, and the metric's `reason`. The phase is `None` when only the connection ended.
fn diagnose(failure: &Failure, resource: &str) -> (Option<Phase>, &'static str) {
    let source = match failure {
        Failure::List(source) | Failure::Watch(source) => &**source,
        Failure::Status(status) => return (None, if status.code == 410 { "expired" } else { "error" }),
        Failure::Broken(_) => return (None, "disconnected"),
        // The list that follows detects by how much versions went back, and counts it as "restored".
        Failure::Unversioned | Failure::WentBack(_) => return (None, "error"),
    };
    match source {
        kube::Error::Api(status) if status.code == 404 => (Some(Phase::NotInstalled), "not_installed"),
        kube::Error::Api(status) if status.code == 403 => {
            (Some(Phase::Forbidden(format!("may not list or watch {resource}: {}", sentence(status)))), "forbidden")
        }
        kube::Error::Api(status) if status.code == 410 => (None, "expired"),
        _ => (Some(Phase::Failing(format!("cannot reach {resource}: {}", chain(source)))), "unreachable"),
    }
}
