//! What the core learns from answers and events.

use k8s_openapi::api::coordination::v1::Lease;

use super::{Core, ObservedLease, Pending, Role, Term};
use crate::{
    StopReason,
    clock::Moment,
    lease::{same, transitions, uid, version},
};

impl Core {
    /// A get has returned the lease.
    pub(super) fn looked(&mut self, now: Moment, lease: Lease) {
        self.look = false;
        self.perhaps_ours = false;
        let kept = self.term().is_some_and(|term| self.is_of(term, &lease));
        self.see(now, lease);
        if self.free_at().is_some_and(|free_at| now < free_at) && !kept {
            self.conflicts = 0; // another candidate has won, so the race is over
        }
        if !kept {
            self.lose(StopReason::Taken);
        }
    }

    /// A write has succeeded.
    pub(super) fn wrote(&mut self, now: Moment, pending: &Pending, lease: Lease) {
        // With an unchanged version, the API server changed nothing, and candidates saw no renewal.
        let fresh = pending.replaces != version(&lease);
        let ours = self.is_ours(&lease) && fresh;
        let (uid, transitions) = (uid(&lease).to_owned(), transitions(&lease));
        let until = pending.sent + self.config.renew_deadline;
        let renew_at = pending.sent + self.config.retry_period;
        self.look = false;
        self.conflicts = 0;
        self.perhaps_ours = false;
        let kept = self.term().is_some_and(|term| self.is_of(term, &lease)) && fresh;
        self.see(now, lease);
        match &mut self.role {
            Role::Standby if ours && self.stopping => self.begin_release(now),
            Role::Standby if ours && now < until => {
                self.not_before = now;
                self.role = Role::Leading(Term { uid, transitions, until, renew_at, written: pending.written });
            }
            // The lease is not ours, or the answer came after the renew deadline.
            Role::Standby => self.pause(now, pending.sent),
            Role::Leading(term) if kept => {
                (term.until, term.renew_at) = (until, renew_at);
            }
            Role::Leading(_) => self.lose(StopReason::Taken),
            Role::Releasing { .. } if !ours => self.role = Role::Finished,
            Role::Ending(_) | Role::Releasing { .. } | Role::Finished => {}
        }
    }

    pub(super) fn see(&mut self, now: Moment, lease: Lease) {
        self.poll_at = now + self.jittered();
        let since = match &self.seen {
            ObservedLease::Present { lease: before, since } if same(before, &lease) => *since,
            ObservedLease::Present { lease: before, .. } if uid(before) == uid(&lease) => now,
            ObservedLease::Nothing | ObservedLease::Absent { .. } | ObservedLease::Present { .. } => {
                self.highest = 0;
                now
            }
        };
        self.highest = self.highest.max(transitions(&lease));
        // If the lease does not show our last claim, that claim is over. If the lease shows it again later, it was restored from
        // a backup, and another process may still lead.
        if matches!(self.role, Role::Standby) && since == now && !self.is_claimed(&lease) {
            self.claimed = None;
        }
        self.seen = ObservedLease::Present { lease: Box::new(lease), since };
    }

    pub(super) fn gone(&mut self, now: Moment) {
        self.poll_at = now + self.jittered();
        self.seen = ObservedLease::Absent { fresh: matches!(self.seen, ObservedLease::Nothing) };
    }
}
