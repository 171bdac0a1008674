//! A simulated world: candidates, a network that delays and loses requests, differing clocks, paused processes, and one lease.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
};

use super::*;
use crate::lease::{is_released, transitions};

/// The faults of a world. Probabilities are in percent.
#[derive(Debug, Clone)]
pub(super) struct Faults {
    /// The usual maximum for each direction of a request, in milliseconds.
    pub(super) delay: u64,
    pub(super) lost_before: u32,
    pub(super) lost_after: u32,
    pub(super) pauses: u32,
    pub(super) restarts: u32,
    /// Whether users edit and delete the lease.
    pub(super) hands: bool,
}

pub(super) struct World {
    now: Duration,
    random: fastrand::Rng,
    faults: Faults,
    candidates: Vec<Candidate>,
    lease: Option<Lease>,
    version: u64,
    uids: u64,
    names: u64,
    agenda: BinaryHeap<Reverse<(Duration, u64)>>,
    events: BTreeMap<u64, Event>,
    count: u64,
    /// The last events, for the message of a failure.
    story: VecDeque<String>,
}

struct Candidate {
    core: Core,
    name: String,
    rate: f64,
    offset: Duration,
    wall: i64,
    paused_until: Duration,
    /// The number of the request in flight; an answer with another number is too late.
    flight: u64,
    work: Work,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Work {
    None,
    Runs,
    EndsAt(Duration),
}

#[derive(Debug)]
enum Event {
    Wake { candidate: usize, name: String },
    Arrive { candidate: usize, name: String, flight: u64, request: Request },
    Answer { candidate: usize, name: String, flight: u64, answer: Answer },
    Trouble,
}

const TICK: Duration = Duration::from_millis(1);

impl World {
    pub(super) fn new(seed: u64, candidates: usize, faults: Faults) -> Self {
        let mut world = Self {
            now: Duration::from_secs(1),
            random: fastrand::Rng::with_seed(seed),
            faults,
            candidates: Vec::new(),
            lease: None,
            version: 0,
            uids: 0,
            names: 0,
            agenda: BinaryHeap::new(),
            events: BTreeMap::new(),
            count: 0,
            story: VecDeque::new(),
        };
        for index in 0..candidates {
            let candidate = world.candidate();
            world.candidates.push(candidate);
            world.plan_wake(Duration::ZERO, index);
        }
        world.plan(Duration::from_secs(2), Event::Trouble);
        world
    }

    /// Ends all faults.
    pub(super) fn heal(&mut self) {
        self.faults = Faults { delay: 50, lost_before: 0, lost_after: 0, pauses: 0, restarts: 0, hands: false };
    }

    pub(super) fn leader(&self) -> Option<&str> {
        self.candidates.iter().find(|candidate| candidate.leads(self.now)).map(|candidate| &*candidate.name)
    }

    /// Lets this much time pass. Fails as soon as two candidates lead.
    pub(super) fn run(&mut self, time: Duration) -> Result<(), String> {
        let end = self.now + time;
        while let Some(&Reverse((at, number))) = self.agenda.peek()
            && at <= end
        {
            self.agenda.pop();
            self.now = at;
            let event = self.events.remove(&number).expect("planned");
            self.tell(&event);
            self.happen(event)?;
            let leaders = self.candidates.iter().filter(|candidate| candidate.leads(at));
            let leaders: Vec<_> = leaders.map(|candidate| &*candidate.name).collect();
            if leaders.len() > 1 {
                return Err(format!("{leaders:?} lead at {at:?}\n{}", self.story.make_contiguous().join("\n")));
            }
        }
        self.now = end;
        Ok(())
    }

    fn tell(&mut self, event: &Event) {
        let brief =
            |lease: &Lease| format!("{:?} {} n{} v{}", holder(lease), uid(lease), transitions(lease), version(lease));
        let what = match event {
            Event::Wake { .. } => return,
            Event::Trouble => format!("trouble; {:?}", self.lease.as_ref().map(brief)),
            Event::Arrive { name, request, .. } => format!("{name} sends {:?}", request.lease().map(brief)),
            Event::Answer { name, answer: Answer::Lease(lease), .. } => format!("{name} gets {}", brief(lease)),
            Event::Answer { name, answer, .. } => format!("{name} gets {answer:?}"),
        };
        self.story.push_back(format!("{:?} {what}", self.now));
        if self.story.len() > 60 {
            self.story.pop_front();
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Wake { candidate, name } if self.candidates[candidate].name == name => self.wake(candidate),
            Event::Wake { .. } => {}
            Event::Trouble => self.trouble(),
            Event::Arrive { candidate, name, flight, request } => {
                let answer = self.serve(request)?;
                if !self.chance(self.faults.lost_after) {
                    let delay = self.delay();
                    self.plan(delay, Event::Answer { candidate, name, flight, answer });
                }
            }
            Event::Answer { candidate: index, name, flight, answer } => {
                let candidate = &mut self.candidates[index];
                if candidate.name != name || candidate.flight != flight {
                    return Ok(());
                }
                if self.now < candidate.paused_until {
                    let wait = candidate.paused_until.saturating_sub(self.now);
                    self.plan(wait, Event::Answer { candidate: index, name, flight, answer });
                    return Ok(());
                }
                let now = candidate.local(self.now);
                candidate.flight += 1;
                candidate.core.answered(now, answer);
                self.act(index);
            }
        }
        Ok(())
    }

    /// Lets a candidate act, and plans its next wake: each candidate has one chain of wakes.
    fn wake(&mut self, index: usize) {
        let wait = if self.now < self.candidates[index].paused_until {
            self.candidates[index].paused_until.saturating_sub(self.now)
        } else {
            self.act(index);
            Duration::from_millis(self.random.u64(1..800))
        };
        self.plan_wake(wait, index);
    }

    /// Carries out the core's next step.
    fn act(&mut self, index: usize) {
        let candidate = &mut self.candidates[index];
        candidate.wall += self.random.i64(-3_600_000..3_600_000); // the time of day keeps stepping
        let (now, wall) = (candidate.local(self.now), Timestamp::from_millisecond(candidate.wall).expect("in range"));
        let step = candidate.core.next(now, wall);
        match (candidate.core.role(), candidate.work) {
            (Role::Leading(_), Work::None) => candidate.work = Work::Runs,
            (Role::Ending(_), Work::Runs) => {
                candidate.work = Work::EndsAt(self.now + Duration::from_millis(self.random.u64(0..5_000)));
            }
            (_, Work::EndsAt(at)) if at <= self.now => {
                candidate.work = Work::None;
                candidate.core.work_ended(now);
            }
            _ => {}
        }
        match step {
            Step::Send(request) => {
                let (name, flight) = (candidate.name.clone(), candidate.flight);
                let lost = Event::Answer { candidate: index, name: name.clone(), flight, answer: Answer::Unknown };
                self.plan(Duration::from_secs(5), lost);
                if !self.chance(self.faults.lost_before) {
                    let delay = self.delay();
                    self.plan(delay, Event::Arrive { candidate: index, name, flight, request });
                }
            }
            Step::Wait(_) => {}
            // It has stopped: another process takes its place.
            Step::Finished => self.replace(index),
        }
    }

    fn trouble(&mut self) {
        self.plan(Duration::from_secs(2), Event::Trouble);
        let index = self.random.usize(..self.candidates.len());
        if self.chance(self.faults.pauses) {
            self.candidates[index].paused_until = self.now + Duration::from_millis(self.random.u64(0..30_000));
        }
        if self.chance(self.faults.restarts) {
            if self.random.bool() {
                self.replace(index); // killed
            } else {
                let ends = self.now + Duration::from_millis(self.random.u64(0..5_000));
                let candidate = &mut self.candidates[index];
                candidate.core.stop();
                if candidate.work == Work::Runs {
                    candidate.work = Work::EndsAt(ends);
                }
            }
        }
        // Not in the first seconds: to a new process, a deleted lease looks like one that never existed.
        if self.faults.hands
            && self.candidates.iter().all(|candidate| candidate.core.knows_the_lease())
            && self.chance(10)
        {
            self.meddle();
        }
        // An unreliable watch, which delivers only some changes.
        let lease = self.lease.clone();
        for index in 0..self.candidates.len() {
            let listens = self.random.bool();
            let candidate = &mut self.candidates[index];
            if listens && self.now >= candidate.paused_until {
                candidate.core.noticed(candidate.local(self.now), lease.clone());
            }
        }
    }

    /// A user edits or deletes the lease, in any way but one: the edit is never what a release writes.
    fn meddle(&mut self) {
        let names = ["", "garbage", &*self.candidates[0].name, &*self.candidates[1].name].map(str::to_owned);
        // No deletion while a create from before the lease existed is in flight: it would succeed after the deletion, and its
        // sender would lead before the deposed leader has noticed. The README names this limit.
        let create = |event: &Event| matches!(event, Event::Arrive { request: Request::Create(_), .. });
        if self.random.u8(..4) == 0 && !self.events.values().any(create) {
            self.lease = None;
        }
        let Some(lease) = &mut self.lease else { return };
        let spec = lease.spec.as_mut().expect("a spec");
        let empty = spec.holder_identity.as_deref().unwrap_or_default().is_empty();
        match self.random.u8(..4) {
            0 if spec.lease_duration_seconds != Some(1) => spec.holder_identity = self.random.choice(names),
            1 if !empty => {
                spec.lease_duration_seconds = self.random.choice([None, Some(-1), Some(0), Some(20)]).flatten();
            }
            2 => spec.lease_transitions = Some(self.random.i32(-1..5)),
            _ => spec.renew_time = None,
        }
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
    }

    /// Answers a request, as the API server.
    fn serve(&mut self, request: Request) -> Result<Answer, String> {
        match (request, &self.lease) {
            (Request::Get, None) => return Ok(Answer::Absent),
            (Request::Get, Some(lease)) => return Ok(Answer::Lease(Box::new(lease.clone()))),
            (Request::Create(_), Some(_)) | (Request::Replace(_), None) => return Ok(Answer::Conflict),
            (Request::Create(mut lease), None) => {
                self.uids += 1;
                lease.metadata.uid = Some(self.uids.to_string());
                self.lease = Some(*lease);
            }
            (Request::Replace(lease), Some(now)) => {
                let known = &lease.metadata.resource_version;
                if (known.is_some() && *known != now.metadata.resource_version)
                    || lease.metadata.uid != now.metadata.uid
                {
                    return Ok(Answer::Conflict);
                }
                let owner = self.candidates.iter().find(|candidate| candidate.name == holder(now));
                if is_released(&lease) && owner.is_some_and(|candidate| candidate.work != Work::None) {
                    return Err(format!("{} gave the lease back while it worked", holder(now)));
                }
                if lease.spec == now.spec {
                    return Ok(Answer::Lease(Box::new(now.clone()))); // nothing changes, not even the version
                }
                self.lease = Some(*lease);
            }
        }
        self.version += 1;
        let lease = self.lease.as_mut().expect("just written");
        lease.metadata.resource_version = Some(self.version.to_string());
        Ok(Answer::Lease(Box::new(lease.clone())))
    }

    fn replace(&mut self, index: usize) {
        self.candidates[index] = self.candidate();
        self.plan_wake(TICK, index);
    }

    fn candidate(&mut self) -> Candidate {
        self.names += 1;
        let name = format!("candidate-{}", self.names);
        let config = Config { identity: name.clone(), ..Config::new("operators", "manager") };
        Candidate {
            core: Core::new(config, fastrand::Rng::with_seed(self.random.u64(..))),
            name,
            // The ratio of the fastest to the slowest clock stays below 15 s / 10 s.
            rate: self.random.f64().mul_add(0.4, 0.82),
            offset: Duration::from_secs(self.random.u64(..1_000_000)),
            wall: self.random.i64(0..1_000_000_000_000),
            paused_until: Duration::ZERO,
            flight: 0,
            work: Work::None,
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.u32(..100) < percent
    }

    /// Mostly quick, sometimes later than any time-out.
    fn delay(&mut self) -> Duration {
        let most = if self.chance(5) { self.faults.delay * 8 } else { self.faults.delay };
        Duration::from_millis(1 + self.random.u64(..=most))
    }

    fn plan_wake(&mut self, wait: Duration, candidate: usize) {
        let name = self.candidates[candidate].name.clone();
        self.plan(wait, Event::Wake { candidate, name });
    }

    fn plan(&mut self, wait: Duration, event: Event) {
        self.count += 1;
        self.events.insert(self.count, event);
        self.agenda.push(Reverse((self.now + wait, self.count)));
    }
}

impl Candidate {
    fn local(&self, now: Duration) -> Moment {
        self.offset + now.mul_f64(self.rate)
    }

    /// Whether its token is alive. The token reads the clock itself, even while the process is paused.
    fn leads(&self, now: Duration) -> bool {
        self.core.term().is_some_and(|term| self.local(now) < term.until)
    }
}
