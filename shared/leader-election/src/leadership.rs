//! The leader's token, which expires by the local clock even if the elector is stuck.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Moment};

/// A term of a lease. Each term has its own number, which only rises for the same lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// The uid of the Lease.
    pub lease_uid: Arc<str>,
    /// Its `leaseTransitions`. Each acquisition raises them, also one by the same process.
    pub transitions: u32,
}

/// The proof that this process leads. Cheap to clone; all clones die together, once and for ever.
///
/// It dies at the renew deadline. Each check reads the clock, so this works even if the elector's task never runs again. A
/// write should check [`is_alive`](Self::is_alive) as its last step before it is sent, and should arrive within the time between
/// renew deadline and lease duration. To be certain, put the [`Epoch`] into what you write.
#[derive(Clone)]
pub struct Leadership {
    term: Arc<Term>,
}

struct Term {
    epoch: Epoch,
    clock: Arc<dyn Clock>,
    /// The moment at which the token dies, in nanoseconds; [`DEAD`] for ever after.
    until: AtomicU64,
    /// The latest term that [`Leadership::witness`] has received.
    witnessed: AtomicU32,
    over: CancellationToken,
}

const DEAD: u64 = 0;

/// [`Leadership::lost`] reads the clock at least this often, because timers stand still while a machine sleeps.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Leadership {
    pub(crate) fn new(epoch: Epoch, clock: Arc<dyn Clock>, until: Moment) -> Self {
        let until = AtomicU64::new(nanos(until));
        let witnessed = AtomicU32::new(0);
        Self { term: Arc::new(Term { epoch, clock, until, witnessed, over: CancellationToken::new() }) }
    }

    /// A token without an elector that renews it, for tests of its users.
    #[doc(hidden)]
    pub fn scripted(epoch: Epoch, clock: Arc<dyn Clock>, life: Duration) -> Self {
        let until = clock.now() + life;
        Self::new(epoch, clock, until)
    }

    /// Whether this process still leads. Once `false`, always `false`.
    pub fn is_alive(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long this process still leads at least, unless a client edits or deletes the lease. Zero when the term is over.
    pub fn remaining(&self) -> Duration {
        loop {
            let until = self.term.until.load(Ordering::SeqCst);
            let left = until.saturating_sub(nanos(self.term.clock.now()));
            // A caller that saw the token dead must never see it alive again: from now on a renewal is too late.
            if until == DEAD || left > 0 || self.swap(until, DEAD) {
                return Duration::from_nanos(if until == DEAD { 0 } else { left });
            }
        }
    }

    /// Which term this is.
    pub fn epoch(&self) -> &Epoch {
        &self.term.epoch
    }

    /// Reports the term under which an object guarded by this lease was written. If it is later than this one, this leadership
    /// ends: either another process leads and this one has not noticed yet, or the lease was restored from a backup. The next
    /// leadership of this process gets a later term than the witnessed one.
    pub fn witness(&self, transitions: u32) {
        if transitions > self.term.epoch.transitions {
            self.term.witnessed.fetch_max(transitions, Ordering::SeqCst);
            self.kill();
        }
    }

    pub(crate) fn witnessed(&self) -> u32 {
        self.term.witnessed.load(Ordering::SeqCst)
    }

    /// Returns when the leadership is over.
    pub async fn lost(&self) {
        loop {
            let left = self.remaining();
            if left.is_zero() {
                return;
            }
            tokio::select! {
                biased;
                () = self.term.over.cancelled() => {}
                () = tokio::time::sleep(left.min(CLOCK_CHECK_INTERVAL)) => {}
            }
        }
    }

    /// Extends the token's life after a renewal. Returns false if the token has died before.
    pub(crate) fn extend(&self, until: Moment) -> bool {
        let alive = self.term.until.load(Ordering::SeqCst);
        alive != DEAD && self.swap(alive, nanos(until))
    }

    /// Kills the token, and then wakes the tasks that wait in [`Leadership::lost`].
    pub(crate) fn kill(&self) {
        self.term.until.store(DEAD, Ordering::SeqCst);
        self.term.over.cancel();
    }

    fn swap(&self, from: u64, to: u64) -> bool {
        self.term.until.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership").field("epoch", &self.term.epoch).field("remaining", &self.remaining()).finish()
    }
}

/// Two tokens are equal if they are of the same term.
impl PartialEq for Leadership {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.term, &other.term)
    }
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tokio::time::timeout;

    use super::*;

    /// A clock that the test sets.
    #[derive(Default)]
    struct HandClock(AtomicU64);

    impl Clock for HandClock {
        fn now(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::SeqCst))
        }

        fn wall(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }
    }

    fn token() -> (Arc<HandClock>, Leadership) {
        let clock = Arc::new(HandClock::default());
        let epoch = Epoch { lease_uid: "uid".into(), transitions: 3 };
        (clock.clone(), Leadership::scripted(epoch, clock, Duration::from_secs(10)))
    }

    #[test]
    fn dead_token_never_becomes_alive_again() {
        let (clock, token) = token();
        assert!(token.is_alive());
        assert!(token.extend(Duration::from_secs(12)));
        clock.0.store(11, Ordering::SeqCst);
        assert_eq!(token.remaining(), Duration::from_secs(1));
        clock.0.store(12, Ordering::SeqCst);
        let clone = token.clone();
        assert!(!clone.is_alive());
        assert!(!token.extend(Duration::from_secs(22)), "the renewal came too late");
        clock.0.store(11, Ordering::SeqCst);
        assert!(!token.is_alive());
    }

    #[test]
    fn a_killed_token_cannot_be_extended() {
        let (_, token) = token();
        token.kill();
        assert!(!token.extend(Duration::from_secs(20)));
        assert!(!token.is_alive());
    }

    #[tokio::test(start_paused = true)]
    async fn token_expires_by_the_clock_even_if_timers_stop() {
        let (clock, token) = token();
        let limit = Duration::from_millis(1_100);
        assert!(timeout(limit, token.lost()).await.is_err());
        clock.0.store(3_600, Ordering::SeqCst); // the machine slept; a timer for ten seconds would not know
        assert!(timeout(limit, token.lost()).await.is_ok());
    }
}
