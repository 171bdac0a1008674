//! Lanes to the reviewer. Each has a number of concurrent reviews, and a short queue.

use std::time::Duration;

use tokio::sync::Semaphore;

use crate::ReviewError;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Too many reviews of this lane wait already.
    Crowded,
    /// The review failed, or took too long.
    Failed(ReviewError),
}

/// Some concurrent reviews, and a queue for some more.
pub(crate) struct Lane {
    slots: Semaphore,
    /// Places at work and in the queue together.
    places: Semaphore,
}

impl Lane {
    pub(crate) fn new(slots: usize, queue: usize) -> Self {
        Self { slots: Semaphore::new(slots), places: Semaphore::new(slots + queue) }
    }

    /// Reviews within the time limit, which includes the wait for a slot.
    pub(crate) async fn review<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, ReviewError>>,
    ) -> Result<T, Unanswered> {
        let _place = self.places.try_acquire().map_err(|_| Unanswered::Crowded)?;
        let answered = async {
            let _slot = self.slots.acquire().await.map_err(|error| ReviewError(error.to_string()))?;
            answer.await
        };
        let late = |_| Err(ReviewError(format!("no answer within {limit:?}")));
        tokio::time::timeout(limit, answered).await.unwrap_or_else(late).map_err(Unanswered::Failed)
    }
}
