//! The last requests, for the status page.

use std::{collections::VecDeque, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::problem::Code;

/// Number of requests to keep.
const KEPT: usize = 100;

/// A request and its outcome. Its texts come from clients: escape them.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) at: Timestamp,
    pub(crate) op: &'static str,
    /// The reference or the booking id of the request.
    pub(crate) subject: String,
    /// `None` if the connection ended without an answer.
    pub(crate) status: Option<u16>,
    pub(crate) code: Option<Code>,
    pub(crate) fault: Option<&'static str>,
    pub(crate) took: Duration,
}

/// The last requests, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<VecDeque<Seen>>);

impl Recent {
    pub(crate) fn add(&self, seen: Seen) {
        let mut kept = self.0.lock();
        kept.truncate(KEPT - 1);
        kept.push_front(seen);
    }

    pub(crate) fn list(&self) -> Vec<Seen> {
        self.0.lock().iter().cloned().collect()
    }
}
