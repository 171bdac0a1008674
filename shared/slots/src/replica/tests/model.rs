//! A group of replicas on a model of the API server, for a model checker that explores each order of all steps.
//!
//! A tick is the shortest time that matters. In each round every clock ticks once, at any moment in the round. So in any time two
//! clocks differ by up to two ticks. Each tick makes a replica's stored times older, and its own present is always [`NOW`].
//!
//! Of three replicas, there are too many orders of all steps. There, all clocks tick at once, and drift is a fault.

use std::num::NonZeroU16;

use stateright::{Model, Property};

use super::super::*;
use super::S;

/// The present of every replica.
pub(super) const NOW: Moment = Moment::from_secs(100);
/// How many rounds after the last fault the slots must be shared.
const CALM: u8 = 8;
/// The present version of an object.
pub(super) const CURRENT: u64 = 1;
/// Any former version.
pub(super) const STALE: u64 = 0;

/// The promise that no two replicas work on one slot.
pub(super) const ALONE: &str = "a slot has at most one worker";

/// How replicas run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Each replica runs at any time or never: a pause, a slow watch or a slow network at each moment.
    Any,
    /// Each replica runs between two ticks of its clock, until it has nothing more to do, unless a fault stops it.
    Prompt,
    /// As with `Prompt`, and all clocks tick at once.
    Rounds,
}

/// The version of an object that a write creates or replaces; `forget` makes it [`CURRENT`].
fn fresh(replaced: Option<u64>) -> u64 {
    replaced.unwrap_or(CURRENT) + 1
}

/// What is checked.
#[derive(Clone, Debug)]
pub(super) struct Group {
    config: Config,
    replicas: usize,
    pace: Pace,
    /// How many faults a run has: crashes, departures, deletions of the map, lost and late requests, pauses of prompt replicas, and
    /// ticks of one clock between rounds.
    faults: u8,
}

impl Group {
    pub(super) fn new(replicas: usize, slots: u16, pace: Pace, faults: u8) -> Self {
        let slots = NonZeroU16::new(slots).unwrap();
        // Three ticks are enough for a deadline of one, because two clocks differ by up to two. Between two renewals of a prompt
        // replica, the clock of another one ticks up to three times, which must not look like a crash.
        let lease_duration = if pace == Pace::Any { 3 * S } else { 4 * S };
        let config = Config { slots, lease_duration, renew_deadline: S, retry_period: S };
        Self { config, replicas, pace, faults }
    }

    pub(super) fn with_lease(mut self, ticks: u32) -> Self {
        self.config.lease_duration = ticks * S;
        self
    }

    fn slots(&self) -> usize {
        usize::from(self.config.slots.get())
    }
}

/// The API server and all replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) stored: View,
    pub(super) nodes: Vec<Node>,
    /// A request that arrives late or never.
    pub(super) late: Option<Request>,
    faults: u8,
    /// The rounds since the last fault, at most [`CALM`].
    calm: u8,
    /// The promise that a write has broken.
    broken: Option<&'static str>,
}

/// A place for a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) replica: Option<Replica>,
    /// Whether its clock has ticked in this round.
    ticked: bool,
    /// Whether it has had nothing more to do since its clock ticked.
    ran: bool,
    paused: bool,
}

impl Node {
    /// The slots whose work has to end.
    fn draining(&self) -> impl Iterator<Item = usize> {
        let drains = self.replica.iter().flat_map(|replica| &replica.drains);
        drains.filter(|(_, drain)| !drain.done).map(|(slot, _)| *slot)
    }

    fn tick(&mut self) {
        (self.ticked, self.ran) = (true, false);
        self.age();
    }

    /// Makes all stored times older by a tick.
    fn age(&mut self) {
        let Some(replica) = &mut self.replica else { return };
        replica.sent -= S;
        replica.heard = replica.heard.map(|heard| heard.saturating_sub(S));
        for peer in replica.peers.values_mut() {
            peer.since -= S;
        }
    }

    fn works_on(&self, slot: usize) -> bool {
        self.replica.as_ref().is_some_and(|replica| replica.duty(slot, NOW) != Duty::Stop)
    }
}

/// One step. The numbers are those of a node and of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Start(usize),
    /// The replica gets the present view, and sends its next request.
    Send(usize, Fate),
    /// The replica sends its next request without a new view.
    SendBlindly(usize, Fate),
    /// The replica sends requests until it has nothing more to do, and gets the present view before each.
    Run(usize),
    /// So many of these requests arrive, then there is a fault.
    RunUntil(usize, u8, Mishap),
    Tick(usize),
    /// All clocks tick.
    Round,
    /// One clock ticks once more.
    Drift(usize),
    Drained(usize, usize),
    Crash(usize),
    Leave(usize),
    Resume(usize),
    DeleteMap,
    /// The late request arrives.
    Arrive,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It arrives at once. The replica never sees its answer, only the next view.
    Arrives,
    Lost,
    Late,
}

/// What happens to a replica that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mishap {
    /// The next request is lost.
    Lost,
    /// The next request arrives later or never.
    Late,
    Crash,
    Pause,
}

const MISHAPS: [Mishap; 4] = [Mishap::Lost, Mishap::Late, Mishap::Crash, Mishap::Pause];
/// The most requests of one run that are worth a fault after them: a renewal, a map, a fence and another map.
const MOST_REQUESTS: u8 = 4;

impl State {
    /// What a replica sees. Renewals of others mean nothing to it, so they are all the same.
    fn view(&self, node: usize) -> View {
        let own = self.nodes[node].replica.as_ref().map(Replica::id);
        let mut view = self.stored.clone();
        for (_, lease) in view.leases.iter_mut().filter(|(id, _)| Some(**id) != own) {
            lease.renewal = 0;
        }
        view
    }

    /// Whether a request would succeed.
    pub(super) fn accepts(&self, request: &Request) -> bool {
        let version = |id: &ReplicaId| self.stored.leases.get(id).map(|lease| lease.version);
        match request {
            Request::PutLease { id, expected, .. } => version(id) == *expected,
            Request::DeleteLease { id, expected } => version(id) == Some(*expected),
            Request::PutMap { expected, .. } => self.stored.map.as_ref().map(|map| map.version) == *expected,
        }
    }

    fn carry_out(&mut self, request: Request) {
        if !self.accepts(&request) {
            return;
        }
        match request {
            Request::PutLease { id, expected, renewal, fenced } => {
                self.stored.leases.insert(id, Lease { version: fresh(expected), renewal, fenced });
            }
            Request::DeleteLease { id, expected: _ } => {
                self.stored.leases.remove(&id);
            }
            Request::PutMap { expected, slots } => {
                let map = SlotMap { uid: "map".into(), version: fresh(expected), slots };
                if self.calm == CALM {
                    self.broken = Some("a slot moved without a reason");
                }
                if self.stored.map.as_ref().is_some_and(|before| !map.follows(before)) {
                    self.broken = Some("a holder changed, but not the epoch");
                }
                self.stored.map = Some(map);
            }
        }
    }

    /// A fault, if there may be another one.
    fn fault(&mut self) -> Option<()> {
        self.faults = self.faults.checked_sub(1)?;
        Some(())
    }

    fn start(&mut self, node: usize, config: &Config) {
        let process = node as u64;
        let lives = self.ids().into_iter().filter(|id| id.process == process).map(|id| id.life).max().unwrap_or(0);
        let mut replica = Replica::new(config.clone(), process);
        (replica.lives, replica.id.life) = (lives + 1, lives + 1);
        self.nodes[node].replica = Some(replica);
    }

    fn observe(&mut self, node: usize) -> Option<()> {
        let view = self.view(node);
        self.nodes[node].replica.as_mut()?.observe(NOW, &view);
        Some(())
    }

    fn send(&mut self, node: usize, fate: Fate) -> Option<()> {
        match (self.nodes[node].replica.as_mut()?.act(NOW), fate) {
            (None, Fate::Arrives) => {}
            (Some(request), Fate::Arrives) => self.carry_out(request),
            (Some(_), Fate::Lost) => self.fault()?,
            (Some(request), Fate::Late) if self.late.is_none() => {
                self.fault()?;
                self.late = Some(request);
            }
            (None, Fate::Lost) | (_, Fate::Late) => return None,
        }
        Some(())
    }

    /// Runs a replica until it has nothing more to do, or until this fault after so many requests.
    fn run(&mut self, node: usize, mishap: Option<(u8, Mishap)>) -> Option<()> {
        let mut requests = 0;
        loop {
            self.observe(node)?;
            match mishap.filter(|(after, _)| *after == requests).map(|(_, mishap)| mishap) {
                Some(Mishap::Lost) => break self.send(node, Fate::Lost)?,
                Some(Mishap::Late) => break self.send(node, Fate::Late)?,
                Some(Mishap::Crash) => {
                    self.nodes[node] = Node::default();
                    return self.fault();
                }
                Some(Mishap::Pause) => {
                    self.nodes[node].paused = true;
                    return self.fault();
                }
                None => {}
            }
            match self.nodes[node].replica.as_mut()?.act(NOW) {
                Some(request) => self.carry_out(request),
                None if mishap.is_some() => return None,
                None => break,
            }
            requests += 1;
        }
        self.nodes[node].ran = true;
        Some(())
    }

    /// Ends the processes that have left.
    fn end_processes(&mut self) {
        for node in &mut self.nodes {
            if node.replica.as_ref().is_some_and(Replica::has_left) {
                *node = Node::default();
            }
        }
    }

    /// Begins the next round once all clocks have ticked.
    fn end_round(&mut self) {
        let mut running = self.nodes.iter().filter(|node| node.replica.is_some());
        if running.clone().next().is_some() && running.all(|node| node.ticked) {
            for node in &mut self.nodes {
                node.ticked = false;
            }
            self.calm = (self.calm + 1).min(CALM);
        }
    }

    /// Whether the replicas that run hold all slots, in equal shares.
    fn is_shared(&self) -> bool {
        let ids: Vec<ReplicaId> = self.nodes.iter().filter_map(|node| Some(node.replica.as_ref()?.id())).collect();
        let Some(map) = &self.stored.map else { return ids.is_empty() };
        let counts: Vec<usize> = ids.iter().map(|id| map.held_by(*id).count()).collect();
        let (least, most) = (counts.iter().min().copied(), counts.iter().max().copied());
        ids.is_empty() || (counts.iter().sum::<usize>() == map.slots.len() && most <= least.map(|least| least + 1))
    }
}

impl Group {
    fn perform(&self, state: &mut State, step: Step) -> Option<()> {
        match step {
            Step::Start(node) => state.start(node, &self.config),
            Step::Send(node, fate) => {
                state.observe(node)?;
                state.send(node, fate)?;
            }
            Step::SendBlindly(node, fate) => state.send(node, fate)?,
            Step::Run(node) => state.run(node, None)?,
            Step::RunUntil(node, requests, mishap) => state.run(node, Some((requests, mishap)))?,
            Step::Tick(node) => state.nodes[node].tick(),
            Step::Round => {
                for node in &mut state.nodes {
                    node.tick();
                }
            }
            Step::Drift(node) => {
                state.fault()?;
                state.nodes[node].age();
            }
            Step::Drained(node, slot) => state.nodes[node].replica.as_mut()?.drained(slot),
            Step::Crash(node) => {
                state.fault()?;
                state.nodes[node] = Node::default();
            }
            Step::Leave(node) => {
                state.fault()?;
                state.nodes[node].replica.as_mut()?.leave();
            }
            Step::Resume(node) => state.nodes[node].paused = false,
            Step::DeleteMap => {
                state.fault()?;
                state.stored.map = None;
            }
            Step::Arrive => {
                let request = state.late.take()?;
                state.carry_out(request);
            }
        }
        Some(())
    }
}

impl Model for Group {
    type State = State;
    type Action = Step;

    /// Nothing exists. With [`Pace::Any`] one replica already holds all slots: that saves the steps of a new map.
    fn init_states(&self) -> Vec<State> {
        let nodes = vec![Node::default(); self.replicas];
        let faults = self.faults;
        let mut state = State { stored: View::default(), nodes, late: None, faults, calm: 0, broken: None };
        if self.pace == Pace::Any {
            let ticks = self.config.lease_duration.as_secs();
            let waiting = (0..ticks).flat_map(|_| [Step::Run(0), Step::Tick(0)]);
            for step in [Step::Start(0)].into_iter().chain(waiting).chain([Step::Run(0)]) {
                state = self.next_state(&state, step).unwrap_or(state);
            }
            state.nodes[0].ran = false;
        }
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        let is_prompt = self.pace != Pace::Any;
        let mut all_may_tick = state.nodes.iter().any(|node| node.replica.is_some());
        let is_faulty = state.faults > 0;
        let fates: &[Fate] = if is_faulty { &[Fate::Arrives, Fate::Lost, Fate::Late] } else { &[Fate::Arrives] };
        for (index, node) in state.nodes.iter().enumerate() {
            if node.replica.is_none() {
                steps.push(Step::Start(index));
                continue;
            }
            let waits = is_prompt && !node.paused && (!node.ran || node.draining().next().is_some());
            all_may_tick &= !waits;
            if self.pace != Pace::Rounds && !node.ticked && !waits {
                steps.push(Step::Tick(index));
            }
            if self.pace == Pace::Rounds && is_faulty {
                steps.push(Step::Drift(index));
            }
            if node.paused {
                steps.push(Step::Resume(index));
            } else {
                if !is_prompt {
                    steps.extend(
                        fates.iter().flat_map(|fate| [Step::Send(index, *fate), Step::SendBlindly(index, *fate)]),
                    );
                } else if !node.ran {
                    steps.push(Step::Run(index));
                    let mishaps = (0..=MOST_REQUESTS).flat_map(|after| MISHAPS.map(|mishap| (after, mishap)));
                    let mishaps = mishaps.filter(|_| is_faulty);
                    steps.extend(mishaps.map(|(after, mishap)| Step::RunUntil(index, after, mishap)));
                }
                steps.extend(node.draining().map(|slot| Step::Drained(index, slot)));
            }
            if is_faulty {
                steps.extend([Step::Crash(index), Step::Leave(index)]);
            }
        }
        if self.pace == Pace::Rounds && all_may_tick {
            steps.push(Step::Round);
        }
        if is_faulty && state.stored.map.is_some() {
            steps.push(Step::DeleteMap);
        }
        if state.late.is_some() {
            steps.push(Step::Arrive);
        }
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        self.perform(&mut state, step)?;
        state.end_processes();
        state.end_round();
        state.forget(&self.config);
        let is_quiet = matches!(step, Step::Run(_) | Step::Tick(_) | Step::Round | Step::Drained(..));
        let is_disturbed = state.late.is_some() || state.nodes.iter().any(|node| node.paused);
        if !is_quiet || is_disturbed || self.pace == Pace::Any {
            state.calm = 0;
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always(ALONE, |group: &Self, state: &State| {
                (0..group.slots()).all(|slot| state.nodes.iter().filter(|node| node.works_on(slot)).count() <= 1)
            }),
            Property::<Self>::always("each write keeps its promise", |_, state: &State| state.broken.is_none()),
            Property::<Self>::always("calm replicas share all slots", |_, state: &State| {
                state.calm < CALM || state.is_shared()
            }),
            // Without a calm state, the promise above would say nothing. With `Pace::Any`, no state is calm.
            Property::<Self>::sometimes("calm replicas work on all slots", |group: &Self, state: &State| {
                (group.pace == Pace::Any || state.calm == CALM)
                    && (0..group.slots()).all(|slot| state.nodes.iter().any(|node| node.works_on(slot)))
            }),
        ]
    }
}
