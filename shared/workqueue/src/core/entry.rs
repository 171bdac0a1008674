//! What is known about one key.

use super::agenda::Appointment;
use super::line::Place;
use crate::Priority;
use crate::moment::Moment;

/// 48 bytes beside the key, so that ten thousand sleeping keys are half a megabyte.
#[derive(Debug)]
pub(crate) struct Entry<K> {
    pub(crate) key: K,
    pub(crate) waiting: Waiting,
    pub(crate) running: bool,
    pub(crate) priority: Priority,
    /// When it is due (delayed), or since when it has been ready.
    pub(crate) at: Moment,
    pub(crate) failures: u32,
    /// When the wait that the last failure imposed is over. A run that begins earlier has cut it short.
    pub(crate) retry_at: Moment,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiting {
    No,
    Delayed(Appointment),
    Ready(Place),
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
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.waiting, Waiting::No) && !self.running
    }

    /// Whether it would be handed out, were it not running.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.waiting, Waiting::Ready(_)) && self.running
    }

    pub(crate) fn forget(&mut self) {
        self.failures = 0;
        self.retry_at = Moment::START;
    }

    /// The place in line of a key that is ready.
    pub(crate) fn place(&self) -> &Place {
        let Waiting::Ready(place) = &self.waiting else { unreachable!("only ready keys stand in line") };
        place
    }

    pub(crate) fn place_mut(&mut self) -> &mut Place {
        let Waiting::Ready(place) = &mut self.waiting else { unreachable!("only ready keys stand in line") };
        place
    }

    /// The appointment of a key that is delayed.
    pub(crate) fn appointment(&self) -> &Appointment {
        let Waiting::Delayed(appointment) = &self.waiting else {
            unreachable!("only delayed keys have an appointment")
        };
        appointment
    }

    pub(crate) fn appointment_mut(&mut self) -> &mut Appointment {
        let Waiting::Delayed(appointment) = &mut self.waiting else {
            unreachable!("only delayed keys have an appointment")
        };
        appointment
    }
}
