//! The memory that all requests of a server may use together.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use crate::{Limits, activity::Exchange, connections::Connections};

/// How often a waiting request looks for one that can give way.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The shortest time between two closed connections: the first may be enough, but its memory is not free at once.
const RELIEF_INTERVAL: Duration = Duration::from_millis(5);

/// The memory that all requests of a server may use together, in bytes. Each takes a share as its bytes arrive.
pub(crate) struct Budget {
    bytes: Arc<Semaphore>,
    total: usize,
    wait: Duration,
    last_relief: Mutex<Option<Instant>>,
    connections: Arc<Connections>,
}

/// There was no free memory in time, or there never will be as much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoShare {
    /// Other requests hold the memory.
    Taken,
    /// The request alone would need more than the whole budget.
    TooMuch,
}

impl Budget {
    pub(crate) fn new(limits: &Limits, connections: Arc<Connections>) -> Arc<Self> {
        let total = limits.memory.min(Semaphore::MAX_PERMITS);
        let (bytes, wait) = (Arc::new(Semaphore::new(total)), limits.share_wait);
        Arc::new(Self { bytes, total, wait, last_relief: Mutex::default(), connections })
    }

    /// Takes this many bytes if they are free and no other request waits.
    fn try_take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.bytes.clone().try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }

    /// Takes this many bytes for a request, if they are free. Fails if the request cannot wait for them either.
    pub(crate) fn begin(&self, bytes: usize, exchange: &Exchange) -> Result<(), NoShare> {
        if bytes > self.total {
            return Err(NoShare::TooMuch);
        }
        match self.try_take(bytes) {
            Some(permit) => exchange.keep(permit),
            None if exchange.can_wait() => {}
            None => return Err(NoShare::Taken),
        }
        Ok(())
    }

    /// Takes this many bytes for a request, in the order of the calls. While it waits, closes connections that hold memory and
    /// make no progress. Only one request of each connection may wait: those that wait hold bytes that the budget does not count.
    pub(crate) async fn take(self: Arc<Self>, bytes: usize, exchange: Arc<Exchange>) -> Result<(), NoShare> {
        let all = bytes.saturating_add(exchange.share());
        let Some(wanted) = u32::try_from(bytes).ok().filter(|_| all <= self.total) else {
            return Err(NoShare::TooMuch);
        };
        if let Some(permit) = self.try_take(bytes) {
            exchange.keep(permit);
            return Ok(());
        }
        let _waits = exchange.wait().ok_or(NoShare::Taken)?;
        let deadline = Instant::now() + self.wait;
        let mut free = std::pin::pin!(self.bytes.clone().acquire_many_owned(wanted));
        loop {
            let until = deadline.min(Instant::now() + LOOK_INTERVAL);
            match timeout_at(until, free.as_mut()).await {
                Ok(Ok(permit)) => {
                    exchange.keep(permit);
                    return Ok(());
                }
                Err(_) if until < deadline => self.relieve(&exchange),
                // The semaphore is never closed.
                Ok(Err(_)) | Err(_) => return Err(NoShare::Taken),
            }
        }
    }

    fn relieve(&self, of: &Exchange) {
        let now = Instant::now();
        let mut last = self.last_relief.lock();
        if last.is_none_or(|last| now >= last + RELIEF_INTERVAL) {
            *last = Some(now);
            self.connections.relieve(of);
        }
    }
}
