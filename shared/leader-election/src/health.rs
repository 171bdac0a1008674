//! The elector's health, for probes: whether it makes progress, and what it does.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// A task that is late by this much counts as stuck; the same as in client-go.
const PATIENCE: Duration = Duration::from_secs(20);

/// A view of the elector's health. Cheap to clone.
#[derive(Clone, Default)]
pub struct Health {
    progress: Arc<Mutex<Progress>>,
}

/// Why the liveness check fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    /// The task that renews the lease does not run.
    #[error("the leader elector has not moved for {}s", .0.as_secs())]
    Elector(Duration),
    /// The work continues without leadership. This replica cannot stand by, and another leader may be working at the same time.
    #[error("leadership ended {}s ago and the work has not", .0.as_secs())]
    Work(Duration),
}

#[derive(Default)]
struct Progress {
    /// When the task last ran, and how long it waits at most until the next time; `None` before it begins and after it ends.
    ran: Option<(Instant, Duration)>,
    /// When the token died, while the work has not ended since.
    overdue: Option<Instant>,
    says: String,
}

impl Health {
    /// The liveness check. An API server that is down does not fail it, because a restart would not help.
    ///
    /// # Errors
    ///
    /// The elector's task is stuck, or its work does not end after the leadership.
    pub fn check(&self) -> Result<(), Stuck> {
        let progress = self.progress.lock();
        if let Some((at, wait)) = progress.ran
            && at.elapsed() > wait + PATIENCE
        {
            return Err(Stuck::Elector(at.elapsed()));
        }
        match progress.overdue {
            Some(since) if since.elapsed() > PATIENCE => Err(Stuck::Work(since.elapsed())),
            _ => Ok(()),
        }
    }

    /// One line of text about what the elector does or waits for.
    pub fn describe(&self) -> String {
        self.progress.lock().says.clone()
    }

    pub(crate) fn ran(&self, next: Duration, overdue: bool) {
        let mut progress = self.progress.lock();
        let now = Instant::now();
        progress.ran = Some((now, next));
        progress.overdue = if overdue { progress.overdue.or(Some(now)) } else { None };
    }

    pub(crate) fn say(&self, says: String) {
        self.progress.lock().says = says;
    }

    pub(crate) fn ended(&self) {
        *self.progress.lock() = Progress { ran: None, overdue: None, says: "the election has ended".to_owned() };
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("check", &self.check()).field("says", &self.describe()).finish()
    }
}
