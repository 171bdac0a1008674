//! The memory that all reviews at work may need together, and which review gets it next.

use std::{sync::Arc, time::Duration};

use serving::{Origin, Place, Places};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinError,
};

/// Bytes of memory that all long reviews at work may need together, by [`crate::weight`].
pub(crate) const LONG_REVIEWS: usize = 40 * 1024 * 1024;
/// The same for all other reviews: they never wait for a long one.
const SHORT_REVIEWS: usize = 8 * 1024 * 1024;
/// A review that needs more memory than this also takes more time than other requests should wait for: it is a long one.
const LONG: u32 = 1024 * 1024;
/// Long reviews that are at work or the next in turn. These get memory in the order of arrival. The addresses of the clients share
/// the places, so that a long review does not wait behind all those of another address.
const PLACES: usize = 16;
/// How long a review waits for its part of the memory. With the chart's default, the API server waits five seconds for the answer,
/// which includes the time in which the body arrives and the review itself.
const WAIT: Duration = Duration::from_secs(2);

/// The free memory for reviews, of all paths together, in bytes.
#[derive(Clone)]
pub(crate) struct Memory {
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
    places: Places,
}

/// What a review holds until its work ends.
struct Share {
    _memory: OwnedSemaphorePermit,
    /// Of a long review.
    _place: Option<Place>,
}

impl Default for Memory {
    fn default() -> Self {
        let [short, long] = [SHORT_REVIEWS, LONG_REVIEWS].map(|bytes| Arc::new(Semaphore::new(bytes)));
        Self { short, long, places: Places::new(PLACES) }
    }
}

impl Memory {
    /// Does the work of a review of a client of this origin as soon as the bytes that it needs are free. A long one first waits for a
    /// place, and works on a thread of its own.
    ///
    /// That thread goes on when the caller is cancelled, because the client has left. The work holds its bytes and its place until it
    /// ends or panics, so a client that leaves again and again has no more reviews at work than one that waits for the answers.
    ///
    /// Returns `None` if the wait takes too long.
    ///
    /// # Errors
    ///
    /// The work of a long review panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        bytes: u32,
        of: Option<Origin>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Result<T, JoinError>> {
        let share = self.take(bytes, of).await?;
        let work = move || {
            let _share = share;
            work()
        };
        Some(if is_long(bytes) { tokio::task::spawn_blocking(work).await } else { Ok(work()) })
    }

    async fn take(&self, bytes: u32, of: Option<Origin>) -> Option<Share> {
        let taken = async {
            let place = if is_long(bytes) { Some(self.places.wait(of).await) } else { None };
            let free = if is_long(bytes) { &self.long } else { &self.short };
            let memory = free.clone().acquire_many_owned(bytes).await.ok()?;
            Some(Share { _memory: memory, _place: place })
        };
        tokio::time::timeout(WAIT, taken).await.ok()?
    }
}

/// Whether a review that needs this many bytes is a long one.
fn is_long(bytes: u32) -> bool {
    bytes > LONG
}

#[cfg(test)]
mod tests {
    use std::{future::ready, net::SocketAddr, sync::mpsc::channel};

    use parking_lot::Mutex;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// The whole memory of long reviews.
    const ALL: u32 = 40 * 1024 * 1024;

    #[tokio::test(start_paused = true)]
    async fn short_reviews_do_not_wait_for_long_ones() {
        let memory = Memory::default();
        let all = memory.take(ALL, None).await;
        assert!(all.is_some());
        let begun = Instant::now();
        assert!(memory.take(LONG, None).await.is_some());
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(memory.take(LONG + 1, None).await.is_none(), "there is no memory for a second long one");
        drop(all);
        assert!(memory.take(LONG + 1, None).await.is_some());
    }

    /// Each review takes all memory for a tenth of a second, so that most of the crowd get none in time.
    #[tokio::test(start_paused = true)]
    async fn long_reviews_of_a_crowd_do_not_keep_out_those_of_another_address() {
        const CROWD: usize = 100;
        let memory = Memory::default();
        let review = |client: &str| {
            let of = client.parse::<SocketAddr>().expect("an address").into();
            let memory = memory.clone();
            async move {
                let taken = memory.take(ALL, Some(of)).await;
                if taken.is_some() {
                    sleep(Duration::from_millis(100)).await;
                }
                taken.is_some()
            }
        };
        let crowd: Vec<_> = (0..CROWD).map(|_| tokio::spawn(review("10.0.0.1:1"))).collect();
        tokio::task::yield_now().await;
        assert!(review("10.0.0.2:1").await, "it waits behind the whole crowd");
        let mut served = 0;
        for review in crowd {
            served += usize::from(review.await.expect("no panic"));
        }
        assert!((10..CROWD / 2).contains(&served), "{served} of the crowd");
    }

    /// Polls a future once, and drops it if it is not ready: its client leaves.
    async fn once<T>(future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = ready(()) => None,
        }
    }

    #[tokio::test]
    async fn long_review_keeps_its_place_until_its_work_ends() {
        let memory = Memory::default();
        let of = Some(Origin::from("10.0.0.1:1".parse::<SocketAddr>().expect("an address")));
        let (end, ended) = channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        for _ in 0..PLACES {
            let ended = ended.clone();
            let work = move || ended.lock().recv().expect_err("the sender is dropped");
            assert!(once(memory.run(LONG + 1, of, work)).await.is_none());
        }
        assert!(once(memory.take(LONG + 1, of)).await.is_none(), "the work of its origin goes on without the clients");
        drop(end);
        assert!(memory.take(LONG + 1, of).await.is_some());
    }
}
