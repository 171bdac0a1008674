//! Shares the provider among the namespaces. Pure: the time is an argument.
//!
//! Each namespace has its own circuit breaker, and its own memory of refused credentials. All namespaces have the same credentials,
//! but a provider may refuse them for a single booking: that must not stop the other namespaces. If it refuses them for all, each
//! namespace finds that out with one request, or a few that were under way. Two limits are shared:
//!
//! - The *places*: how many tickets may use the provider at once. A namespace gets another place only while it has fewer than are
//!   free, and only one while its requests fail. So one namespace gets at most half of the places, and a place is left for each of
//!   the next ones, even if the requests of all others hang. A ticket without a place waits outside of the workers.
//! - The *rate*: one request each [`SPACING`]. Of the namespaces that wait, the turn goes to the one whose last turn is longest ago.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Refusal,
    circuit::{Circuit, Open},
};

/// Minimum time between two requests.
pub(crate) const SPACING: Duration = Duration::from_millis(50);
/// Maximum time until a ticket without a place tries again.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long a namespace does not send refused credentials again, unless they change.
const REFUSED: Duration = Duration::from_secs(55);

/// What each namespace uses of the provider.
#[derive(Debug)]
pub(crate) struct Admission {
    /// How many tickets may use the provider at once.
    places: usize,
    shares: BTreeMap<String, Share>,
    /// The requests that wait for their turn, oldest first, with their namespaces.
    waiting: Vec<(Waiter, String)>,
    /// When the next request may be sent.
    next_turn: Option<Instant>,
    /// The number of the last waiter.
    waiters: u64,
    /// The number of turns so far.
    turns: u64,
}

/// The share of one namespace.
#[derive(Debug, Default)]
struct Share {
    places: usize,
    circuit: Circuit,
    refused: Option<Refused>,
    /// The number of its last turn.
    last_turn: u64,
    /// When the last ticket without a place tries again.
    last_retry: Option<Instant>,
}

/// Credentials that the provider refused.
#[derive(Debug)]
struct Refused {
    token: Option<String>,
    until: Instant,
    refusal: Refusal,
}

/// A request that waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Waiter(u64);

impl Admission {
    pub(crate) fn with_places(places: usize) -> Self {
        Self { places, shares: BTreeMap::new(), waiting: Vec::new(), next_turn: None, waiters: 0, turns: 0 }
    }

    /// Gives a ticket of this namespace a place, until [`leave`](Self::leave).
    ///
    /// # Errors
    ///
    /// If its namespace has no place left: the time until the ticket should try again.
    pub(crate) fn enter(&mut self, namespace: &str, now: Instant) -> Result<(), Duration> {
        let taken: usize = self.shares.values().map(|share| share.places).sum();
        let free = self.places.saturating_sub(taken);
        let share = self.share(namespace);
        if share.places < free && !(share.circuit.is_failing() && share.places > 0) {
            share.places += 1;
            return Ok(());
        }
        let retry = share.last_retry.map_or(now, |last| last.max(now)) + SPACING;
        let wait = retry - now;
        if wait > LONGEST_WAIT {
            return Err(LONGEST_WAIT);
        }
        share.last_retry = Some(retry);
        Err(wait)
    }

    pub(crate) fn leave(&mut self, namespace: &str) {
        let share = self.share(namespace);
        share.places = share.places.saturating_sub(1);
    }

    /// Returns the refusal if the provider has just refused the same credentials to this namespace, so that thousands of tickets do
    /// not all send them.
    pub(crate) fn refused_before(&mut self, namespace: &str, token: Option<&str>, now: Instant) -> Option<Refusal> {
        let refused = &mut self.share(namespace).refused;
        refused.take_if(|it| it.token.as_deref() != token || now >= it.until);
        refused.as_ref().map(|it| it.refusal.clone())
    }

    /// Notes that the provider refused the credentials.
    pub(crate) fn refused(&mut self, namespace: &str, token: Option<String>, refusal: &Refusal, now: Instant) {
        self.share(namespace).refused = Some(Refused { token, until: now + REFUSED, refusal: refusal.clone() });
    }

    /// Lets a request of this namespace through its circuit breaker.
    ///
    /// # Errors
    ///
    /// If the circuit of the namespace is open.
    pub(crate) fn pass_circuit(&mut self, namespace: &str, now: Instant) -> Result<(), Open> {
        self.share(namespace).circuit.enter(now)
    }

    /// Lets a request wait for its turn, until it has it, or until [`forget`](Self::forget).
    pub(crate) fn wait(&mut self, namespace: &str) -> Waiter {
        self.waiters += 1;
        let waiter = Waiter(self.waiters);
        self.waiting.push((waiter, namespace.to_owned()));
        waiter
    }

    /// Gives the request its turn.
    ///
    /// # Errors
    ///
    /// If it is not its turn: when it should try again.
    pub(crate) fn turn(&mut self, waiter: Waiter, now: Instant) -> Result<(), Instant> {
        if let Some(next) = self.next_turn.filter(|next| now < *next) {
            return Err(next);
        }
        let last_turn = |namespace: &String| self.shares.get(namespace).map_or(0, |share| share.last_turn);
        let next = self.waiting.iter().min_by_key(|(waiter, namespace)| (last_turn(namespace), *waiter));
        let Some((_, namespace)) = next.filter(|(next, _)| *next == waiter).cloned() else {
            return Err(now + SPACING); // the other one tries at this moment too
        };
        self.forget(waiter);
        self.next_turn = Some(now + SPACING);
        self.turns += 1;
        let turn = self.turns;
        self.share(&namespace).last_turn = turn;
        Ok(())
    }

    pub(crate) fn forget(&mut self, waiter: Waiter) {
        self.waiting.retain(|(waiting, _)| *waiting != waiter);
    }

    pub(crate) fn succeeded(&mut self, namespace: &str) {
        self.share(namespace).circuit.succeeded();
    }

    pub(crate) fn failed(&mut self, namespace: &str, why: &str, retry_after: Option<Duration>, now: Instant) {
        self.share(namespace).circuit.failed(why, retry_after, now);
    }

    /// Returns in how many namespaces the circuit is open. A namespace does not count when its next trial is long overdue.
    pub(crate) fn open_circuits(&self, now: Instant) -> usize {
        self.shares.values().filter(|share| share.circuit.is_open(now)).count()
    }

    /// Returns to how many namespaces the provider has last answered that it refuses the credentials. A namespace does not count
    /// when its next try is long overdue: then its tickets send no requests any more, for example because they are paused.
    pub(crate) fn refused_credentials(&self, now: Instant) -> usize {
        let is_recent = |share: &&Share| share.refused.as_ref().is_some_and(|it| now < it.until + REFUSED);
        self.shares.values().filter(is_recent).count()
    }

    /// Forgets what the provider answered to each namespace.
    pub(crate) fn forget_answers(&mut self) {
        self.retain(&BTreeSet::new());
        for share in self.shares.values_mut() {
            (share.circuit, share.refused) = (Circuit::default(), None);
        }
    }

    /// Forgets all namespaces but these. One with a ticket that uses the provider stays.
    pub(crate) fn retain(&mut self, namespaces: &BTreeSet<Arc<str>>) {
        self.shares.retain(|namespace, share| share.places > 0 || namespaces.contains(namespace.as_str()));
    }

    fn share(&mut self, namespace: &str) -> &mut Share {
        self.shares.entry(namespace.to_owned()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::booking::Why;

    /// Returns how many places a namespace gets if it wants all.
    fn crowd(admission: &mut Admission, namespace: &str) -> usize {
        let now = Instant::now();
        (0..100).take_while(|_| admission.enter(namespace, now).is_ok()).count()
    }

    #[test]
    fn crowded_namespaces_leave_places_for_others() {
        let mut admission = Admission::with_places(16);
        let got = ["a", "b", "c", "d", "e"].map(|namespace| crowd(&mut admission, namespace));
        assert_eq!(got, [8, 4, 2, 1, 1]);
        admission.leave("a");
        assert_eq!(crowd(&mut admission, "a"), 0, "the place is for another namespace");
        assert_eq!(crowd(&mut admission, "f"), 1);
    }

    #[test]
    fn failing_namespace_has_one_place() {
        let (mut admission, now) = (Admission::with_places(16), Instant::now());
        admission.failed("a", "down", None, now);
        assert_eq!((crowd(&mut admission, "a"), crowd(&mut admission, "b")), (1, 8));
        admission.succeeded("a");
        assert_eq!(crowd(&mut admission, "a"), 3);
    }

    #[test]
    fn single_place_is_usable() {
        let mut admission = Admission::with_places(1);
        assert_eq!((crowd(&mut admission, "a"), crowd(&mut admission, "b")), (1, 0));
        admission.leave("a");
        assert_eq!(crowd(&mut admission, "b"), 1);
    }

    #[test]
    fn tickets_without_a_place_try_again_one_after_the_other() {
        let (mut admission, now) = (Admission::with_places(2), Instant::now());
        admission.enter("a", now).expect("a place");
        let waits: Vec<Duration> = (0..120).filter_map(|_| admission.enter("a", now).err()).collect();
        assert_eq!((waits[0], waits[1], waits[99]), (SPACING, SPACING * 2, LONGEST_WAIT));
        assert_eq!(waits[119], LONGEST_WAIT);
        assert_eq!(admission.enter("b", now), Ok(()), "only its own namespace waits");
        let later = now + LONGEST_WAIT * 2;
        assert_eq!(admission.enter("a", later), Err(SPACING));
    }

    #[test]
    fn one_request_is_sent_each_spacing() {
        let (mut admission, now) = (Admission::with_places(8), Instant::now());
        let (first, second) = (admission.wait("a"), admission.wait("a"));
        assert_eq!(admission.turn(second, now), Err(now + SPACING), "the older one is first");
        assert_eq!(admission.turn(first, now), Ok(()));
        assert_eq!(admission.turn(second, now), Err(now + SPACING));
        assert_eq!(admission.turn(second, now + SPACING), Ok(()));
        let third = admission.wait("a");
        assert_eq!(admission.turn(third, now + Duration::from_mins(1)), Ok(()));
    }

    #[test]
    fn namespaces_take_turns() {
        let (mut admission, mut now) = (Admission::with_places(8), Instant::now());
        let mut waiting: Vec<(Waiter, &str)> = Vec::new();
        for namespace in ["a", "a", "a", "a", "b", "b"] {
            waiting.push((admission.wait(namespace), namespace));
        }
        let mut order = String::new();
        while !waiting.is_empty() {
            let at =
                waiting.iter().position(|(waiter, _)| admission.turn(*waiter, now).is_ok()).expect("one has its turn");
            order.push_str(waiting.remove(at).1);
            now += SPACING;
        }
        assert_eq!(order, "ababaa");
    }

    #[test]
    fn cancelled_request_does_not_keep_its_turn() {
        let (mut admission, now) = (Admission::with_places(8), Instant::now());
        let (first, second) = (admission.wait("a"), admission.wait("a"));
        admission.forget(first);
        assert_eq!(admission.turn(second, now), Ok(()));
    }

    #[test]
    fn refused_credentials_are_not_sent_again_by_their_namespace() {
        let (mut admission, now) = (Admission::with_places(8), Instant::now());
        let refusal = Refusal {
            why: Why::Credentials,
            code: "UNAUTHENTICATED".to_owned(),
            detail: String::new(),
            status: 401,
            anonymous: false,
        };
        admission.refused("a", Some("old".to_owned()), &refusal, now);
        assert_eq!(admission.refused_credentials(now), 1);
        let last = now + REFUSED - Duration::from_millis(1);
        assert_eq!(admission.refused_before("b", Some("old"), now), None);
        assert_eq!(admission.refused_before("a", Some("old"), last), Some(refusal.clone()));
        assert_eq!(admission.refused_before("a", Some("old"), now + REFUSED), None);

        admission.refused("a", Some("old".to_owned()), &refusal, now);
        let overdue = now + REFUSED * 2;
        assert_eq!(admission.refused_credentials(overdue - Duration::from_millis(1)), 1);
        assert_eq!(admission.refused_credentials(overdue), 0, "its tickets send no requests any more");
        assert_eq!(admission.refused_before("a", Some("new"), now), None);
        assert_eq!(admission.refused_before("a", Some("old"), now), None, "a refusal ends with a change of the token");
        assert_eq!(admission.refused_credentials(now), 0);
    }

    #[test]
    fn answers_to_a_ticket_that_uses_the_provider_are_forgotten_too() {
        let (mut admission, now) = (Admission::with_places(8), Instant::now());
        admission.enter("a", now).expect("a place is free");
        for _ in 0..10 {
            admission.failed("a", "no answer", None, now);
        }
        assert_eq!(admission.open_circuits(now), 1);
        admission.forget_answers();
        assert_eq!(admission.open_circuits(now), 0);
    }

    #[test]
    fn circuit_of_one_namespace_does_not_open_for_another() {
        let (mut admission, now) = (Admission::with_places(8), Instant::now());
        for _ in 0..10 {
            admission.failed("a", "down", None, now);
        }
        assert!(admission.pass_circuit("a", now).is_err());
        assert_eq!(admission.pass_circuit("b", now), Ok(()));
        assert_eq!(admission.open_circuits(now), 1);
        admission.retain(&BTreeSet::from(["b".into()]));
        assert_eq!(admission.open_circuits(now), 0, "the namespace has no ticket any more");
    }
}
