//! The memory that all requests of a server may use together, and who gets it next.
//!
//! A request that has to wait gets its memory before all requests of origins that hold more. So an origin that asks for much
//! waits for itself, and one that asks for little does not wait behind it. Requests of one origin get it in the order of arrival.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as AsyncMutex, oneshot},
    time::{Instant, timeout_at},
};

use crate::{
    Limits,
    activity::{Activity, Exchange},
    connections::Connections,
    origin::Origin,
};

/// The time before, and the shortest time between, two connections that are closed to free memory: the first may be enough, but
/// its memory is not free at once.
const RELIEF_INTERVAL: Duration = Duration::from_millis(5);

/// The memory that all requests of a server may use together, in bytes. Each takes a share as its bytes arrive.
pub(crate) struct Budget {
    total: usize,
    wait: Duration,
    pool: Arc<Mutex<Pool>>,
    /// Held by the one waiting request that frees memory for the next one in turn.
    relief: AsyncMutex<()>,
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

/// A part of the memory. Dropping it gives the part back.
#[derive(Debug)]
pub(crate) struct Permit {
    bytes: usize,
    origin: Origin,
    pool: Arc<Mutex<Pool>>,
}

#[derive(Debug)]
struct Pool {
    free: usize,
    /// Bytes that each origin holds. None is zero.
    held: HashMap<Origin, usize>,
    /// In the order of arrival. No queue is empty.
    waiting: HashMap<Origin, VecDeque<Waiter>>,
    /// The number of the last request that had to wait.
    last: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    bytes: usize,
    connection: Arc<Activity>,
    granted: oneshot::Sender<Permit>,
}

impl Budget {
    pub(crate) fn new(limits: &Limits, connections: Arc<Connections>) -> Arc<Self> {
        let pool = Pool { free: limits.memory, held: HashMap::new(), waiting: HashMap::new(), last: 0 };
        let (total, wait) = (limits.memory, limits.share_wait);
        Arc::new(Self { total, wait, pool: Arc::new(Mutex::new(pool)), relief: AsyncMutex::default(), connections })
    }

    /// Takes this many bytes if they are free and no other request waits.
    fn try_take(&self, bytes: usize, origin: Origin) -> Option<Permit> {
        let mut pool = self.pool.lock();
        if !pool.waiting.is_empty() || pool.free < bytes {
            return None;
        }
        pool.take(bytes, origin);
        Some(Permit { bytes, origin, pool: self.pool.clone() })
    }

    /// Takes this many bytes for a request, if they are free. Fails if the request cannot wait for them either.
    pub(crate) fn begin(&self, bytes: usize, exchange: &Exchange) -> Result<(), NoShare> {
        if bytes > self.total {
            return Err(NoShare::TooMuch);
        }
        match self.try_take(bytes, exchange.connection().origin) {
            Some(permit) => exchange.keep(permit),
            None if exchange.can_wait() => {}
            None => return Err(NoShare::Taken),
        }
        Ok(())
    }

    /// Takes this many bytes for a request. While it waits, closes connections that hold memory and make no progress. Only one
    /// request of each connection may wait: those that wait hold bytes that the budget does not count.
    pub(crate) async fn take(self: Arc<Self>, bytes: usize, exchange: Arc<Exchange>) -> Result<(), NoShare> {
        if bytes.saturating_add(exchange.share()) > self.total {
            return Err(NoShare::TooMuch);
        }
        let connection = exchange.connection();
        if let Some(permit) = self.try_take(bytes, connection.origin) {
            exchange.keep(permit);
            return Ok(());
        }
        let _waits = exchange.wait().ok_or(NoShare::Taken)?;
        let (granted, permit) = oneshot::channel();
        self.pool.lock().wait(bytes, connection.clone(), granted);
        grant(&self.pool);
        let deadline = Instant::now() + self.wait;
        let granted = tokio::select! {
            granted = timeout_at(deadline, permit) => granted,
            never = self.relieve() => match never {},
        };
        // The sender is dropped only after it was used, or after this future.
        let Ok(Ok(permit)) = granted else { return Err(NoShare::Taken) };
        exchange.keep(permit);
        Ok(())
    }

    /// Frees memory for the next request in turn, again and again. One of the waiting requests does this for all.
    async fn relieve(&self) -> std::convert::Infallible {
        let _turn = self.relief.lock().await;
        loop {
            tokio::time::sleep(RELIEF_INTERVAL).await;
            // A request that waited may have gone, and the next one may need less.
            grant(&self.pool);
            let next = {
                let pool = self.pool.lock();
                pool.next().and_then(|origin| pool.waiting[&origin].front()).map(|it| it.connection.clone())
            };
            if let Some(next) = next {
                self.connections.relieve(&next);
            }
        }
    }
}

impl Pool {
    fn take(&mut self, bytes: usize, origin: Origin) {
        self.free -= bytes;
        *self.held.entry(origin).or_default() += bytes;
    }

    fn wait(&mut self, bytes: usize, connection: Arc<Activity>, granted: oneshot::Sender<Permit>) {
        self.last += 1;
        let queue = self.waiting.entry(connection.origin).or_default();
        queue.push_back(Waiter { number: self.last, bytes, connection, granted });
    }

    /// The origin whose first request is the next in turn: the one that holds the least, then the one that has waited longest.
    fn next(&self) -> Option<Origin> {
        let turn = |(origin, queue): (&Origin, &VecDeque<Waiter>)| {
            let held = self.held.get(origin).copied().unwrap_or_default();
            Some((held, queue.front()?.number, *origin))
        };
        self.waiting.iter().filter_map(turn).min().map(|(_, _, origin)| origin)
    }

    /// Removes the next request in turn if there is memory for it, or if it does not wait any more.
    fn pop(&mut self) -> Option<Waiter> {
        let origin = self.next()?;
        let queue = self.waiting.get_mut(&origin)?;
        let waiter = queue.pop_front_if(|it| it.granted.is_closed() || it.bytes <= self.free);
        if queue.is_empty() {
            self.waiting.remove(&origin);
        }
        waiter
    }
}

/// Gives free memory to the requests that wait, until there is not enough for the next one in turn.
fn grant(shared: &Arc<Mutex<Pool>>) {
    let mut pool = shared.lock();
    while let Some(Waiter { number: _, bytes, connection, granted }) = pool.pop() {
        if granted.is_closed() {
            continue;
        }
        let origin = connection.origin;
        pool.take(bytes, origin);
        // A permit of a request that has ended gives its bytes back at once, for which the pool must be unlocked.
        parking_lot::MutexGuard::unlocked(&mut pool, || {
            drop(granted.send(Permit { bytes, origin, pool: shared.clone() }));
        });
    }
}

impl Permit {
    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds another permit of the same origin to this one.
    pub(crate) fn merge(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut pool = self.pool.lock();
        pool.free += self.bytes;
        if let Some(held) = pool.held.get_mut(&self.origin) {
            *held -= self.bytes;
            if *held == 0 {
                pool.held.remove(&self.origin);
            }
        }
        drop(pool);
        grant(&self.pool);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use futures::{FutureExt as _, future::BoxFuture};

    use super::*;
    use crate::observer::NoObserver;

    type Taking = BoxFuture<'static, Result<(), NoShare>>;

    fn budget(memory: usize) -> Arc<Budget> {
        let limits = Limits { memory, share_wait: Duration::from_secs(5), ..Limits::default() };
        Budget::new(&limits, Connections::new(10, Arc::new(NoObserver)))
    }

    fn request(address: &str) -> Arc<Exchange> {
        let address: std::net::SocketAddr = format!("{address}:1").parse().expect("an address");
        Arc::new(Activity::new(address.into())).begin()
    }

    /// Begins to take memory, and returns what still waits.
    fn takes(budget: &Arc<Budget>, bytes: usize, request: &Arc<Exchange>) -> Option<Taking> {
        let mut taking = budget.clone().take(bytes, request.clone()).boxed();
        (!has_got(&mut taking)).then_some(taking)
    }

    fn has_got(taking: &mut Taking) -> bool {
        match Pin::new(taking).now_or_never() {
            Some(result) => result.is_ok(),
            None => false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_address_that_holds_less_is_the_next_in_turn() {
        let budget = budget(100);
        let [large, second, other] = ["10.0.0.1", "10.0.0.1", "10.0.0.2"].map(request);
        assert!(takes(&budget, 60, &large).is_none());
        let mut second = takes(&budget, 60, &second).expect("40 bytes are free");
        assert!(takes(&budget, 30, &other).is_none(), "the first address waits for itself");
        drop(other);
        drop(large);
        assert!(has_got(&mut second));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_one_address_get_memory_in_the_order_of_arrival() {
        let budget = budget(100);
        let [large, second, small] = ["10.0.0.1"; 3].map(request);
        assert!(takes(&budget, 60, &large).is_none());
        let mut waiting = [takes(&budget, 60, &second), takes(&budget, 30, &small)].map(|it| it.expect("it waits"));
        drop(large);
        assert!(waiting.iter_mut().all(has_got));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_ends_while_it_waits_leaves_its_turn_and_no_bytes() {
        let budget = budget(100);
        let [large, gone, last] = ["10.0.0.1"; 3].map(request);
        assert!(takes(&budget, 60, &large).is_none());
        let [granted, mut last] =
            [takes(&budget, 60, &gone), takes(&budget, 80, &last)].map(|it| it.expect("it waits"));
        drop(large);
        drop(granted); // It had got its bytes, and did not live to see them.
        assert!(has_got(&mut last));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_a_limited_time() {
        let budget = budget(100);
        let [large, other] = ["10.0.0.1"; 2].map(request);
        assert!(takes(&budget, 60, &large).is_none());
        assert_eq!(budget.clone().take(101, other.clone()).await, Err(NoShare::TooMuch));
        assert_eq!(budget.clone().take(60, other.clone()).await, Err(NoShare::Taken));
        drop(large);
        assert_eq!(budget.take(100, other).await, Ok(()));
    }
}
