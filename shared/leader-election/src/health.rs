//! For probes: does the elector make progress, and what is it doing?

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// So much later than it should be, a task does not run any more; as client-go.
const PATIENCE: Duration = Duration::from_secs(20);

/// A look at the elector from outside. Cheap to clone.
#[derive(Clone, Default)]
pub struct Health {
    progress: Arc<Mutex<Progress>>,
}

/// What is wrong with the elector: for a liveness probe to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    /// The task that renews the lease does not run.
    #[error("the leader elector has not moved for {}s", .0.as_secs())]
    Elector(Duration),
    /// The work goes on without leadership: there is no standby, and perhaps two of them at work.
    #[error("leadership ended {}s ago and the work has not", .0.as_secs())]
    Work(Duration),
}

#[derive(Default)]
struct Progress {
    /// When the task last ran, and when it will again, at the latest; `None` before it begins and after it ends.
    ran: Option<(Instant, Duration)>,
    /// Since when the token has been dead and the work has not ended.
    overdue: Option<Instant>,
    says: String,
}

impl Health {
    /// Fails when the elector's task is stuck, or its work does not end after the leadership. Never because the API
    /// server is away: a restart would not mend that.
    pub fn check(&self) -> Result<(), Stuck> {
        let progress = self.lock();
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

    /// What the elector is doing or waiting for, in one line for people.
    pub fn describe(&self) -> String {
        self.lock().says.clone()
    }

    pub(crate) fn ran(&self, next: Duration, overdue: bool) {
        let mut progress = self.lock();
        let now = Instant::now();
        progress.ran = Some((now, next));
        progress.overdue = if overdue { progress.overdue.or(Some(now)) } else { None };
    }

    pub(crate) fn say(&self, says: String) {
        self.lock().says = says;
    }

    pub(crate) fn ended(&self) {
        *self.lock() = Progress { ran: None, overdue: None, says: "the election has ended".to_owned() };
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("check", &self.check()).field("says", &self.describe()).finish()
    }
}
