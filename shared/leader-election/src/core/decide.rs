//! The core's decisions: the next step in each role.

use jiff::{SignedDuration, Timestamp};

use super::{Core, ObservedLease, Request, Role, Step, Term};
use crate::{
    Config,
    clock::Moment,
    lease::{self, is_released, transitions},
};

impl Core {
    pub(super) fn stand_by(&mut self, now: Moment, wall: Timestamp) -> Step {
        if self.stopping {
            if self.perhaps_ours {
                self.look = true;
                self.begin_release(now);
                return self.next(now, wall);
            }
            self.role = Role::Finished;
            return Step::Finished;
        }
        if now < self.not_before {
            return Step::Wait(Some(self.not_before));
        }
        let free_at = self.free_at();
        match free_at {
            Some(free_at) if !self.look && now >= free_at => Step::Send(self.claim(wall)),
            Some(free_at) if !self.look && self.watched => Step::Wait(Some(free_at)),
            Some(free_at) if !self.look && now < self.poll_at => Step::Wait(Some(free_at.min(self.poll_at))),
            _ => Step::Send(Request::Get),
        }
    }

    /// When a candidate may take the lease. Counts from when *this process* saw it, never from the times written in it.
    pub(super) fn free_at(&self) -> Option<Moment> {
        match &self.seen {
            ObservedLease::Nothing => None,
            ObservedLease::Absent { .. } => Some(Moment::ZERO),
            ObservedLease::Present { lease, since } if is_released(lease) || self.is_claimed(lease) => Some(*since),
            // Wait for the longer of the holder's lease duration and ours. An invalid duration of the holder counts as zero.
            ObservedLease::Present { lease, since } => {
                Some(since.saturating_add(lease::duration(lease).max(self.config.lease_duration)))
            }
        }
    }

    pub(super) fn claim(&self, wall: Timestamp) -> Request {
        let Config { namespace, name, identity, lease_duration, .. } = &self.config;
        match &self.seen {
            ObservedLease::Present { lease, .. } => {
                // Even if we are the holder already: each term has its own number.
                let transitions = transitions(lease).max(self.highest).saturating_add(1);
                Request::Replace(Box::new(lease::claimed(lease, identity, *lease_duration, transitions, wall)))
            }
            // A process may still lead by the deleted lease. A new lease without a holder makes all candidates wait, including
            // this one, as if that leader had just renewed.
            ObservedLease::Nothing | ObservedLease::Absent { fresh: false } => {
                Request::Create(Box::new(lease::first(namespace, name, "", *lease_duration, wall)))
            }
            ObservedLease::Absent { fresh: true } => {
                Request::Create(Box::new(lease::first(namespace, name, identity, *lease_duration, wall)))
            }
        }
    }

    pub(super) fn lead(&self, term: &Term, now: Moment, wall: Timestamp) -> Step {
        let at = term.renew_at.max(self.not_before);
        if now < at {
            return Step::Wait(Some(at.min(term.until)));
        }
        match &self.seen {
            ObservedLease::Present { lease, .. } if !self.look => {
                // If the time of day stands still or steps back, two renewals must still differ.
                let wall = wall.max(term.written.saturating_add(SignedDuration::from_micros(1)).unwrap_or(wall));
                let Config { identity, lease_duration, .. } = &self.config;
                let renewed = lease::renewed(lease, identity, *lease_duration, term.transitions, wall);
                Step::Send(Request::Replace(Box::new(renewed)))
            }
            _ => Step::Send(Request::Get),
        }
    }

    pub(super) fn release(&mut self, until: Moment, now: Moment, wall: Timestamp) -> Step {
        if now >= until {
            self.role = Role::Finished;
            return Step::Finished;
        }
        if now < self.not_before {
            return Step::Wait(Some(self.not_before.min(until)));
        }
        match &self.seen {
            _ if self.look => Step::Send(Request::Get),
            ObservedLease::Present { lease, .. } if self.is_claimed(lease) => {
                Step::Send(Request::Replace(Box::new(lease::released(lease, wall))))
            }
            ObservedLease::Nothing | ObservedLease::Absent { .. } | ObservedLease::Present { .. } => {
                self.role = Role::Finished;
                Step::Finished
            }
        }
    }

    pub(super) fn begin_release(&mut self, now: Moment) {
        self.role = Role::Releasing { until: now + self.config.call_timeout() };
        self.not_before = now;
    }
}
