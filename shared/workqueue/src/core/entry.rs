//! The state of one key.

use super::slot::Slot;
use crate::moment::Moment;
use crate::priority::Priority;

/// The state of one key. It takes 48 bytes in addition to the key, so ten thousand delayed keys take half a megabyte.
#[derive(Debug)]
pub(crate) struct Entry<K> {
    pub(crate) key: K,
    pub(crate) waiting: Waiting,
    pub(crate) running: bool,
    pub(crate) priority: Priority,
    /// The due time of a delayed key, or the time at which a ready one became ready.
    pub(crate) at: Moment,
    pub(crate) failures: u32,
    /// The end of the last failure's back-off. A run that begins earlier has cut it short.
    pub(crate) retry_at: Moment,
    /// Whether no run may begin before `retry_at`.
    pub(crate) is_blocked: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiting {
    No,
    Delayed(HeapPosition),
    Ready(Neighbours),
}

/// Where a delayed key is in the heap of delayed keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeapPosition {
    pub(super) position: u32,
    /// The order of insertion. It may wrap: that matters only to two keys due in the same nanosecond and inserted 2³¹ keys apart.
    pub(super) serial: u32,
}

/// The neighbours of a ready key, in the list of its flow and in the list of ages.
pub(crate) type Neighbours = [Links; 2];

/// The neighbours of a ready key in one list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    pub(super) previous: Option<Slot>,
    pub(super) next: Option<Slot>,
}

impl<K> Entry<K> {
    pub(crate) fn new(key: K) -> Self {
        Self {
            key,
            waiting: Waiting::No,
            running: false,
            priority: Priority::default(),
            at: Moment::START,
            failures: 0,
            retry_at: Moment::START,
            is_blocked: false,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.waiting, Waiting::No) && !self.running
    }

    /// Whether it is ready, but has to wait for its current run to end.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.waiting, Waiting::Ready(_)) && self.running
    }

    /// Whether a worker could take it now.
    pub(crate) fn is_available(&self) -> bool {
        matches!(self.waiting, Waiting::Ready(_)) && !self.running
    }

    pub(crate) fn forget(&mut self) {
        self.failures = 0;
        self.retry_at = Moment::START;
        self.is_blocked = false;
    }

    /// The neighbours in the ready queue of a key that is ready.
    pub(crate) fn place(&self) -> &Neighbours {
        let Waiting::Ready(place) = &self.waiting else { unreachable!("only ready keys are in the ready queue") };
        place
    }

    pub(crate) fn place_mut(&mut self) -> &mut Neighbours {
        let Waiting::Ready(place) = &mut self.waiting else { unreachable!("only ready keys are in the ready queue") };
        place
    }

    /// The `HeapPosition` of a key that is delayed.
    pub(crate) fn heap_position(&self) -> &HeapPosition {
        let Waiting::Delayed(heap_position) = &self.waiting else {
            unreachable!("only delayed keys have a position in the heap")
        };
        heap_position
    }

    pub(crate) fn heap_position_mut(&mut self) -> &mut HeapPosition {
        let Waiting::Delayed(heap_position) = &mut self.waiting else {
            unreachable!("only delayed keys have a position in the heap")
        };
        heap_position
    }
}
