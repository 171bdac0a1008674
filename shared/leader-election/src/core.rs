//! The whole behaviour of an elector as a state machine: no clock, no network, no waiting.
//!
//! Two rules ensure that there is never more than one leader. First, a leader's time runs from *before* it sent its last
//! successful write, a candidate's from *after* it saw that write, and the leader's is shorter; clocks of different machines are
//! never compared. Second, every write names the version that it replaces, so of two candidates that waited equally long, the
//! API server refuses one.

mod decide;
mod learn;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;

use crate::{
    Config, StopReason,
    clock::Moment,
    config::JITTER,
    lease::{self, holder, uid, version},
};

/// The state of an elector.
#[expect(clippy::struct_excessive_bools, reason = "four facts that do not depend on each other")]
pub(crate) struct Core {
    config: Config,
    random: fastrand::Rng,
    role: Role,
    seen: ObservedLease,
    /// `seen` may be outdated: get the lease before writing.
    look: bool,
    /// The highest `leaseTransitions` of this lease so far, in case a user lowers them.
    highest: i32,
    /// The request that has no answer yet.
    pending: Option<Pending>,
    not_before: Moment,
    /// When to get the lease again, unless a watch reports its changes.
    poll_at: Moment,
    watched: bool,
    conflicts: u32,
    /// A claim of ours may have succeeded although its answer was lost.
    perhaps_ours: bool,
    /// The `acquireTime` of our last claim. It identifies the claim, because a user may have written our name as the holder.
    claimed: Option<Timestamp>,
    stopping: bool,
    slow_paths: u64,
}

/// The role of this process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Role {
    Standby,
    Leading(Term),
    /// It no longer leads, but the guarded work has not ended yet.
    Ending(StopReason),
    /// The work has ended. The lease is released if it is ours, but only until the moment `until`.
    Releasing {
        until: Moment,
    },
    Finished,
}

/// One leadership.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Term {
    pub(crate) uid: String,
    pub(crate) transitions: i32,
    /// When it ends unless it is renewed.
    pub(crate) until: Moment,
    renew_at: Moment,
    /// The time of day of the last write. The next must be later, or the write would change nothing.
    written: Timestamp,
}

#[derive(Debug)]
enum ObservedLease {
    Nothing,
    /// The lease does not exist. `fresh`: it was absent at the first look, so it has probably never existed, and has no leader.
    Absent {
        fresh: bool,
    },
    /// `since`: when this process first saw this version.
    Present {
        lease: Box<Lease>,
        since: Moment,
    },
}

#[derive(Debug)]
struct Pending {
    get: bool,
    sent: Moment,
    /// The version that it replaces; `written` is the time of day that it writes.
    replaces: String,
    written: Timestamp,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Step {
    Send(Request),
    /// Wait until this moment, or until an answer or an event arrives.
    Wait(Option<Moment>),
    Finished,
}

#[derive(Debug, Clone)]
pub(crate) enum Request {
    Get,
    Create(Box<Lease>),
    Replace(Box<Lease>),
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Lease(Box<Lease>),
    Absent,
    /// Another client wrote first.
    Conflict,
    /// No answer, or one without information about the lease. The request may have been executed, or may still be.
    Unknown,
}

impl Core {
    pub(crate) fn new(config: Config, random: fastrand::Rng) -> Self {
        Self {
            config,
            random,
            role: Role::Standby,
            seen: ObservedLease::Nothing,
            look: true,
            highest: 0,
            pending: None,
            not_before: Moment::ZERO,
            poll_at: Moment::ZERO,
            watched: false,
            conflicts: 0,
            perhaps_ours: false,
            claimed: None,
            stopping: false,
            slow_paths: 0,
        }
    }

    pub(crate) fn role(&self) -> &Role {
        &self.role
    }

    /// Whether the lease is known to exist or to have existed.
    #[cfg(test)]
    pub(crate) fn knows_the_lease(&self) -> bool {
        matches!(self.seen, ObservedLease::Present { .. } | ObservedLease::Absent { fresh: false })
    }

    /// The holder of the lease, as last seen.
    pub(crate) fn holder(&self) -> Option<&str> {
        match &self.seen {
            ObservedLease::Present { lease, .. } => Some(holder(lease)).filter(|holder| !holder.is_empty()),
            ObservedLease::Nothing | ObservedLease::Absent { .. } => None,
        }
    }

    /// The number of renewals that took more than one request.
    pub(crate) fn slow_paths(&self) -> u64 {
        self.slow_paths
    }

    /// Sets whether a watch reports changes through [`Core::noticed`]. Otherwise the core polls.
    pub(crate) fn watched(&mut self, watched: bool) {
        self.watched = watched;
    }

    /// The next step. After it has returned a request, it returns no other one before [`Core::answered`].
    pub(crate) fn next(&mut self, now: Moment, wall: Timestamp) -> Step {
        let wall = lease::in_micros(wall);
        self.expire(now);
        if self.pending.is_some() {
            return Step::Wait(self.term().map(|term| term.until));
        }
        let step = match &self.role {
            Role::Standby => self.stand_by(now, wall),
            Role::Leading(term) => self.lead(term, now, wall),
            Role::Ending(_) => Step::Wait(None),
            Role::Releasing { until } => self.release(*until, now, wall),
            Role::Finished => Step::Finished,
        };
        if let Step::Send(request) = &step {
            let written = request.lease().and_then(lease::renewed_at);
            let replaces = request.lease().map(version).unwrap_or_default().to_owned();
            let get = matches!(request, Request::Get);
            self.pending = Some(Pending { get, sent: now, replaces, written: written.unwrap_or(wall) });
            if let Role::Leading(term) = &mut self.role {
                term.written = written.unwrap_or(term.written); // now: the write counts even if its answer is lost
            }
            if matches!(self.role, Role::Standby) {
                let claim = request.lease().filter(|lease| self.is_ours(lease));
                self.claimed = claim.and_then(lease::acquired_at).or(self.claimed);
            }
        }
        step
    }

    /// Processes the answer to the last request.
    pub(crate) fn answered(&mut self, now: Moment, answer: Answer) {
        self.expire(now);
        let Some(pending) = self.pending.take() else { return };
        if let ObservedLease::Absent { fresh } = &mut self.seen {
            *fresh &= pending.get || matches!(answer, Answer::Lease(_));
        }
        match answer {
            Answer::Lease(lease) if pending.get => self.looked(now, *lease),
            Answer::Lease(lease) => self.wrote(now, &pending, *lease),
            Answer::Absent if pending.get || !matches!(self.seen, ObservedLease::Absent { .. }) => {
                self.look = false;
                self.gone(now);
                self.lose(StopReason::Deleted);
            }
            // Another client wrote in between: look who. After two conflicts in a row, pause and let others go first.
            Answer::Conflict if !pending.get => {
                self.look = true;
                self.conflicts += 1;
                if self.conflicts > 1 {
                    self.pause(now, pending.sent);
                }
                if self.term().is_some() {
                    self.slow_paths += 1;
                }
            }
            Answer::Absent | Answer::Conflict | Answer::Unknown => {
                if matches!(self.role, Role::Standby) {
                    self.perhaps_ours |= !pending.get;
                    self.look = true;
                }
                self.pause(now, pending.sent);
            }
        }
    }

    /// Processes the lease from a watch event; `None` if it was deleted. A leader ignores it, because its own writes show the
    /// current lease.
    pub(crate) fn noticed(&mut self, now: Moment, lease: Option<Lease>) {
        if !matches!(self.role, Role::Standby) {
            return;
        }
        match lease {
            Some(lease) => self.see(now, lease),
            None => self.gone(now),
        }
    }

    /// Records that the token has died by itself, after the core's last look at the clock.
    pub(crate) fn expired(&mut self) {
        self.lose(StopReason::Expired);
    }

    /// Records that a term with this number has existed, whatever the lease shows now. Ends our term if that one is later.
    pub(crate) fn witnessed(&mut self, transitions: u32) {
        let transitions = i32::try_from(transitions).unwrap_or(i32::MAX);
        if self.term().is_some_and(|term| term.transitions < transitions) {
            self.highest = self.highest.max(transitions);
            self.lose(StopReason::Outdated);
        }
    }

    /// Records that the guarded work has ended.
    pub(crate) fn work_ended(&mut self, now: Moment) {
        match &self.role {
            Role::Leading(_) => self.begin_release(now),
            Role::Ending(_) if self.stopping => {
                self.look = true;
                self.begin_release(now);
            }
            Role::Ending(_) => {
                self.role = Role::Standby;
                self.look = true;
                self.not_before = now;
            }
            Role::Standby | Role::Releasing { .. } | Role::Finished => {}
        }
    }

    /// Stops taking leadership. The current one continues until the work has ended.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
        if matches!(self.role, Role::Standby) && self.pending.as_ref().is_some_and(|pending| pending.get) {
            self.pending = None; // the answer does not matter any more
        }
    }

    /// Whether a request has no answer yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }

    fn term(&self) -> Option<&Term> {
        match &self.role {
            Role::Leading(term) => Some(term),
            Role::Standby | Role::Ending(_) | Role::Releasing { .. } | Role::Finished => None,
        }
    }

    /// Ends the term if its renew deadline has passed.
    pub(crate) fn expire(&mut self, now: Moment) {
        if self.term().is_some_and(|term| now >= term.until) {
            self.lose(StopReason::Expired);
        }
    }

    fn lose(&mut self, loss: StopReason) {
        if self.term().is_some() {
            self.role = Role::Ending(loss);
        }
    }

    /// Sets the wait after a failed request, counted from when it was sent.
    fn pause(&mut self, now: Moment, sent: Moment) {
        let wait = match self.role {
            Role::Leading(_) => self.config.retry_period / 2, // the renew deadline is near
            Role::Releasing { .. } => self.config.retry_period / 4, // the process waits for this to exit
            Role::Standby | Role::Ending(_) | Role::Finished => self.jittered(),
        };
        self.not_before = now.max(sent + wait);
    }

    fn jittered(&mut self) -> Duration {
        self.config.retry_period.mul_f64(self.random.f64().mul_add(JITTER, 1.0))
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        holder(lease) == self.config.identity
    }

    fn is_claimed(&self, lease: &Lease) -> bool {
        self.is_ours(lease) && self.claimed.is_some() && lease::acquired_at(lease) == self.claimed
    }

    fn is_of(&self, term: &Term, lease: &Lease) -> bool {
        self.is_ours(lease) && uid(lease) == term.uid
    }
}

impl Request {
    /// The lease that it writes.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Get => None,
            Self::Create(lease) | Self::Replace(lease) => Some(lease),
        }
    }
}
