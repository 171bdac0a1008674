//! Lanes to the reviewer. Each has a number of concurrent reviews, and a short queue. The origins of the clients share both.

use std::time::Duration;

use serving::{Origin, Places};

use crate::ReviewError;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Too many reviews of this lane wait already, or too many for this client.
    Crowded,
    /// The review failed, or took too long.
    Failed(ReviewError),
}

/// Some concurrent reviews, and a queue for some more.
pub(crate) struct Lane {
    slots: Places,
    /// Places at work and in the queue together.
    places: Places,
}

impl Lane {
    pub(crate) fn new(slots: usize, queue: usize) -> Self {
        Self { slots: Places::new(slots), places: Places::new(slots + queue) }
    }

    /// Reviews for a client of this origin within the time limit, which includes the wait for a slot.
    pub(crate) async fn review<T>(
        &self,
        of: Option<Origin>,
        limit: Duration,
        answer: impl Future<Output = Result<T, ReviewError>>,
    ) -> Result<T, Unanswered> {
        let _place = self.places.enter(of).ok_or(Unanswered::Crowded)?;
        let answered = async {
            let _slot = self.slots.wait(of).await;
            answer.await
        };
        let late = |_| Err(ReviewError(format!("no answer within {limit:?}")));
        tokio::time::timeout(limit, answered).await.unwrap_or_else(late).map_err(Unanswered::Failed)
    }
}
