//! The state of one informer: sentences for probes, numbers for metrics.

use std::{
    collections::BTreeMap,
    mem::discriminant,
    ops::Range,
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
    /// What the phases of all watches add up to.
    summary: Observed<Summary>,
    /// One for each watched namespace, or one for all namespaces.
    watches: Observed<Vec<Watch>>,
    /// How often a watch has completed a list or changed its phase.
    news: Observed<u64>,
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
    /// The watched namespace; empty for all of them.
    scope: String,
    phase: Phase,
    /// How often the watch has become synced, the first time included.
    arrivals: u64,
    /// Whether the API server has said that it does not have the kind, and the watch was not synced since. Another error in
    /// between does not bring the kind back.
    gone: bool,
    /// When the API server last sent anything on this watch, even a bookmark.
    heard: Option<Instant>,
}

/// What the phases of all watches add up to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    /// The worst phase.
    worst: Phase,
    /// Whether at least one watch is synced.
    is_partly_synced: bool,
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
            summary: Observed::default(),
            watches: Observed::default(),
            news: Observed::default(),
            required: AtomicBool::new(false),
            restarts: Mutex::default(),
            went_back: Mutex::default(),
            objects: AtomicU64::new(0),
            undecodable: AtomicU64::new(0),
        }
    }

    /// The worst phase of all watches.
    pub fn phase(&self) -> Phase {
        self.summary.get().worst.clone()
    }

    /// Returns when the cache is synced in all watched namespaces.
    pub async fn until_synced(&self) {
        self.summary.until(|it| it.worst == Phase::Synced).await;
    }

    /// Returns when the cache is synced in at least one of the watched namespaces. The others may fail for ever, for example
    /// because RBAC forbids their lists.
    pub async fn until_partly_synced(&self) {
        self.summary.until(|it| it.is_partly_synced).await;
    }

    /// Returns the watched namespaces in which the cache has come back after a failure, as soon as there is one; with `arrives`,
    /// also those in which it is there for the first time. An empty name stands for all namespaces, which one watch reads.
    ///
    /// `known` has how often each watch was synced at the last call. It is empty before the first call.
    pub async fn until_back(&self, known: &mut Vec<u64>, arrives: bool) -> Vec<String> {
        let mut back = Vec::new();
        let is_news = |watches: &Vec<Watch>| {
            known.resize(watches.len(), u64::from(!arrives));
            let watches = watches.iter().zip(known.iter_mut());
            for (watch, known) in watches.filter(|(watch, known)| watch.arrivals > **known) {
                *known = watch.arrivals;
                back.push(watch.scope.clone());
            }
            !back.is_empty()
        };
        self.watches.until(is_news).await;
        back
    }

    /// Returns when watches have completed lists or changed their phases more than `known` times, and how often they have. Only
    /// then can the cache begin to cover a namespace.
    pub async fn until_news(&self, known: u64) -> u64 {
        self.news.until(|it| *it > known).await;
        *self.news.get()
    }

    /// Whether these watches are synced now.
    pub(super) fn are_synced(&self, watches: Range<usize>) -> bool {
        self.watches().get(watches).is_some_and(|it| it.iter().all(Watch::is_synced))
    }

    /// Whether the API server refuses or fails one of these watches.
    pub(super) fn are_failing(&self, watches: Range<usize>) -> bool {
        self.watches().get(watches).is_some_and(|it| it.iter().any(Watch::is_failing))
    }

    /// Returns when the API server refuses one of these watches, and how it does. A failure is no refusal: it may end in a moment.
    pub(super) async fn until_refused(&self, watches: Range<usize>) -> String {
        let mut reason = String::new();
        let is_refused = |all: &Vec<Watch>| {
            let refused = all.get(watches.clone()).and_then(|it| it.iter().find(|watch| watch.is_refused()));
            refused.inspect(|watch| reason = watch.phase.describe(&self.resource)).is_some()
        };
        self.watches.until(is_refused).await;
        reason
    }

    /// Whether the cluster has the kind, as these watches know: each was synced, and the kind has not been uninstalled since.
    pub(super) fn are_installed(&self, watches: Range<usize>) -> bool {
        self.watches().get(watches).is_some_and(|it| it.iter().all(|watch| watch.arrivals > 0 && !watch.gone))
    }

    /// Whether the API server has said on one of these watches that it does not have the kind, and has not listed it there since.
    pub(super) fn are_missing(&self, watches: Range<usize>) -> bool {
        self.watches().get(watches).is_some_and(|it| it.iter().any(|watch| watch.gone))
    }

    /// Whether the API server says that it does not have the kind. False while the kind is not listed yet, and as soon as it is
    /// listed in one of the namespaces.
    pub fn is_missing(&self) -> bool {
        let watches = self.watches();
        watches.iter().any(|watch| watch.gone) && !watches.iter().any(Watch::is_synced)
    }

    /// Marks the kind as required: a controller depends on it.
    pub fn require(&self) {
        self.required.store(true, Ordering::Relaxed);
    }

    /// Whether the last answer on this watch was that the cluster lacks the kind, and no controller requires it.
    pub(super) fn is_optional_and_missing(&self, watch: usize) -> bool {
        let watches = self.watches();
        !self.required.load(Ordering::Relaxed)
            && watches.get(watch).is_some_and(|watch| watch.phase == Phase::NotInstalled)
            // After an installation, one namespace is listed earlier than another.
            && !watches.iter().any(Watch::is_synced)
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
        let (known, now) = match back {
            Some(WentBack::Versions { known, now } | WentBack::Write { lost: known, now }) => (known, now),
            None => (0, 0),
        };
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

    /// Sets the namespaces of the watches, and resets their states.
    pub(super) fn begin(&self, scopes: &[String]) {
        let watches = scopes.iter().map(|scope| Watch { scope: scope.clone(), ..Watch::default() });
        *self.watches() = watches.collect();
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

    /// Records that this watch has completed a list, which the cache already holds.
    pub(super) fn listed(&self, watch: usize) {
        self.synced(watch);
        self.count_news();
    }

    fn count_news(&self) {
        self.news.modify(|news| {
            *news += 1;
            true
        });
    }

    pub(super) fn failed(&self, watch: usize, error: &Failure) {
        let (phase, reason) = diagnose(error, &self.place(watch));
        *self.restarts.lock().entry(reason).or_default() += 1;
        if let Some(phase) = phase {
            self.change(watch, phase);
        } else {
            tracing::debug!(kind = self.kind, error = chain(error), "Watch ended and starts again");
        }
    }

    /// The resource, and the namespace of the watch if it has one.
    fn place(&self, watch: usize) -> String {
        match &*self.watches()[watch].scope {
            "" => self.resource.clone(),
            namespace => format!("{} in namespace {namespace}", self.resource),
        }
    }

    /// Sets the phase of one watch. Logs only when the informer's phase changes, and when RBAC begins to forbid a watch: an API
    /// server that is down for an hour must not fill a disk.
    fn change(&self, watch: usize, next: Phase) {
        let mut watches = self.watches();
        let changed = &mut watches[watch];
        let is_news = discriminant(&changed.phase) != discriminant(&next);
        if matches!(next, Phase::Forbidden(_)) && !matches!(changed.phase, Phase::Forbidden(_)) {
            tracing::warn!(kind = self.kind, state = next.describe(&self.resource), "Cache is not in sync");
        }
        match next {
            Phase::Synced => {
                changed.arrivals += u64::from(is_news);
                changed.gone = false;
            }
            Phase::NotInstalled => changed.gone = true,
            _ => {}
        }
        changed.phase = next;
        let Some(worst) = worst_of(&watches) else { return };
        let is_partly_synced = watches.iter().any(Watch::is_synced);
        self.summary.modify(|summary| {
            if discriminant(&summary.worst) != discriminant(&worst) {
                self.log(&worst);
            }
            let next = Summary { worst, is_partly_synced };
            let changed = *summary != next;
            *summary = next;
            changed
        });
        drop(watches);
        self.watches.modify(|_| true);
        if is_news {
            self.count_news();
        }
    }

    /// Logs the worst phase of all watches.
    fn log(&self, worst: &Phase) {
        match worst {
            Phase::Synced => tracing::debug!(kind = self.kind, "Cache is in sync"),
            Phase::NotInstalled if !self.required.load(Ordering::Relaxed) => {
                tracing::info!(kind = self.kind, "The kind is not installed; waiting for it");
            }
            Phase::Forbidden(_) => {} // the watch has logged it
            other => {
                tracing::warn!(kind = self.kind, state = other.describe(&self.resource), "Cache is not in sync");
            }
        }
    }

    fn watches(&self) -> MutexGuard<'_, Vec<Watch>> {
        self.watches.get()
    }
}

impl Watch {
    fn is_synced(&self) -> bool {
        self.phase == Phase::Synced
    }

    /// Whether the API server refuses the watch, which lasts until an administrator acts.
    fn is_refused(&self) -> bool {
        matches!(self.phase, Phase::Forbidden(_) | Phase::NotInstalled)
    }

    /// Whether the API server refuses or fails the watch.
    fn is_failing(&self) -> bool {
        !matches!(self.phase, Phase::Synced | Phase::Starting)
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

/// The worst phase of all watches. Its message also says how many watches have it, if several have.
fn worst_of(watches: &[Watch]) -> Option<Phase> {
    let worst = watches.iter().map(|watch| &watch.phase).max()?;
    let alike = watches.iter().filter(|watch| discriminant(&watch.phase) == discriminant(worst)).count();
    let counted = |message: &String| {
        if alike == 1 { message.clone() } else { format!("{message}; {alike} namespaces have such an error") }
    };
    Some(match worst {
        Phase::Forbidden(message) => Phase::Forbidden(counted(message)),
        Phase::Failing(message) => Phase::Failing(counted(message)),
        other => other.clone(),
    })
}

/// The phase for this error, and the metric's `reason`. The phase is `None` when only the connection ended.
fn diagnose(failure: &Failure, resource: &str) -> (Option<Phase>, &'static str) {
    let source = match failure {
        Failure::List(source) | Failure::Watch(source) => &**source,
        Failure::Status(status) => return (None, if status.code == 410 { "expired" } else { "error" }),
        Failure::Broken(_) | Failure::Silent => return (None, "disconnected"),
        // The list that follows detects by how much versions went back, and counts it as "restored".
        Failure::Unversioned | Failure::WentBack(_) | Failure::Overdue => return (None, "error"),
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
