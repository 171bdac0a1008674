//! Changes that follow one another within milliseconds, on a real API server: is each last one acted on?
//!
//! An operator answers a change with a write of its own, mostly of the status. A second change that reaches the API server
//! just before that write is part of the write's answer. An operator that takes the answer for its own echo never acts on
//! that change. [`Races`] makes such pairs of changes at random and counts the second ones that have no effect.
//!
//! `wish` is the pure part: what a user does, and how an object differs from what the user wants. `seen` watches.

use std::{fmt, time::Duration};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use self::{
    seen::Seen,
    wish::{Change, Wish},
};

mod seen;
mod wish;

/// The longest time between the two changes of a round: an operator's write follows a change within this time.
const GAP: Duration = Duration::from_millis(12);
/// The longest rest before a round. Operators hold a second status write back for 400 ms, so rounds with a short rest meet
/// a write that was held back, and rounds with a long rest one that is sent at once.
const REST: Duration = Duration::from_millis(600);
/// For what may wait for the garbage collector, and for an object that is helped out of a miss.
const LONG: Duration = Duration::from_mins(1);

/// Many rounds of two changes, on several objects at the same time. Nothing else may change the objects.
#[derive(Clone)]
pub struct Races {
    /// The user's client.
    pub client: Client,
    /// The namespace of the objects; it holds nothing else of this kind.
    pub namespace: String,
    /// A kind with a field `spec.size` that becomes the replicas of a Deployment of the same name.
    pub resource: ApiResource,
    /// How many objects there are.
    pub objects: usize,
    /// How many rounds there are on all objects together.
    pub rounds: usize,
    /// The changes and the times between them follow from it. How they meet the operator's writes does not.
    pub seed: u64,
    /// A change without an effect after this time is missed.
    pub patience: Duration,
}

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Raced {
    /// Rounds that were carried out.
    pub rounds: usize,
    /// The longest time from a last change until its effect; missed ones are left out.
    pub slowest: Duration,
    /// Last changes without an effect.
    pub missed: Vec<Missed>,
}

/// A change that was not acted on.
#[derive(Debug, Clone)]
pub struct Missed {
    /// When it was made, from the beginning of the run.
    pub at: Duration,
    /// The object.
    pub name: String,
    /// The change before it.
    first: Change,
    /// The change itself.
    last: Change,
    /// The time between the answer to the first change and the request of the last.
    gap: Duration,
    /// How the object differed from what its user wanted, when patience ended.
    difference: String,
}

/// One object.
struct Racer {
    name: String,
    wish: Wish,
    rng: Rng,
    rounds: usize,
}

/// What all racers share.
struct Course<'a> {
    races: &'a Races,
    objects: Api<DynamicObject>,
    seen: Seen,
    begun: Instant,
}

impl Races {
    /// Runs all rounds. `progress` gets the result so far after each.
    ///
    /// Fails when the API server refuses a change, or when an object stays as it is whatever is done to it.
    pub async fn run(&self, mut progress: impl FnMut(&Raced)) -> Result<Raced> {
        let objects = Api::namespaced_with(self.client.clone(), &self.namespace, &self.resource);
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), &self.namespace);
        let seen = Seen::watch(objects.clone(), deployments);
        let course = Course { races: self, objects, seen, begun: Instant::now() };
        let mut seeds = Rng::with_seed(self.seed);
        let racers: Vec<Racer> = (0..self.objects)
            .map(|index| {
                let rounds = self.rounds / self.objects + usize::from(index < self.rounds % self.objects);
                Racer { name: format!("race-{index:02}"), wish: Wish::default(), rng: seeds.fork(), rounds }
            })
            .collect();
        let racers: Vec<Racer> = stream::iter(racers)
            .map(async |mut racer| course.begin(&mut racer).await.map(|()| racer))
            .buffer_unordered(self.objects.max(1))
            .try_collect()
            .await?;
        let laps = stream::select_all(racers.into_iter().map(|racer| Box::pin(course.laps(racer))));
        let mut laps = std::pin::pin!(laps);
        let mut raced = Raced::default();
        while let Some(lap) = laps.try_next().await? {
            raced.rounds += 1;
            match lap {
                Ok(took) => raced.slowest = raced.slowest.max(took),
                Err(missed) => raced.missed.push(missed),
            }
            progress(&raced);
        }
        Ok(raced)
    }
}

impl Course<'_> {
    /// Creates the object and waits until the operator has made of it what it should be.
    async fn begin(&self, racer: &mut Racer) -> Result<()> {
        self.create(racer).await?;
        let begun = self.seen.until(&racer.name, LONG, |it| it.difference(&racer.wish)).await;
        begun.map(drop).map_err(anyhow::Error::msg).with_context(|| format!("{} never begins", racer.name))
    }

    /// All rounds of one object: how long each last change took until it was acted on, or that it was missed.
    fn laps(&self, racer: Racer) -> impl stream::Stream<Item = Result<Result<Duration, Missed>>> {
        stream::try_unfold(racer, async |mut racer| {
            if racer.rounds == 0 {
                return Ok(None);
            }
            racer.rounds -= 1;
            let lap = self.lap(&mut racer).await.with_context(|| racer.name.clone())?;
            Ok(Some((lap, racer)))
        })
    }

    async fn lap(&self, racer: &mut Racer) -> Result<Result<Duration, Missed>> {
        sleep(REST.mul_f64(racer.rng.f64())).await;
        let (first, last) = racer.wish.pair(&mut racer.rng);
        let gap = GAP.mul_f64(racer.rng.f64());
        self.carry_out(&first, racer).await?;
        sleep(gap).await;
        let made = Instant::now();
        self.carry_out(&last, racer).await?;

        let (name, patience) = (&racer.name, self.races.patience);
        let acted = self.seen.until(name, patience, |it| it.difference_in_status(&racer.wish)).await;
        let acted = match acted {
            // The children of an object that was replaced have to be collected before there can be others.
            Ok(()) if first == Change::Replace || last == Change::Replace => {
                let took = made.elapsed();
                self.seen.until(name, LONG, |it| it.difference(&racer.wish)).await.map(|()| took)
            }
            Ok(()) => self.seen.until(name, patience, |it| it.difference(&racer.wish)).await.map(|()| made.elapsed()),
            Err(difference) => Err(difference),
        };
        let difference = match acted {
            Ok(took) => return Ok(Ok(took)),
            Err(difference) => difference,
        };
        let at = made - self.begun;
        let missed = Missed { at, name: name.clone(), first, last, gap, difference };
        self.help(racer).await.with_context(|| missed.to_string())?;
        Ok(Err(missed))
    }

    /// One more change, so that the next round begins with an object as it should be.
    async fn help(&self, racer: &mut Racer) -> Result<()> {
        let ask = racer.wish.ask();
        self.carry_out(&ask, racer).await?;
        let helped = self.seen.until(&racer.name, LONG, |it| it.difference(&racer.wish)).await;
        helped.map_err(anyhow::Error::msg).context("another change does not help either")
    }

    async fn carry_out(&self, change: &Change, racer: &mut Racer) -> Result<()> {
        if *change == Change::Replace {
            self.objects.delete(&racer.name, &DeleteParams::background()).await?;
            return self.create(racer).await;
        }
        let patch = Patch::Merge(change.patch(&self.races.resource.group));
        self.objects.patch(&racer.name, &PatchParams::default(), &patch).await?;
        racer.wish.apply(change);
        Ok(())
    }

    async fn create(&self, racer: &mut Racer) -> Result<()> {
        let mut object = DynamicObject::new(&racer.name, &self.races.resource);
        object.data = json!({"spec": {"size": racer.wish.size()}});
        let created = self.objects.create(&PostParams::default(), &object).await?;
        let uid = created.metadata.uid.unwrap_or_default();
        ensure!(!uid.is_empty(), "the API server gives no uid");
        racer.wish.begin(uid);
        Ok(())
    }
}

impl fmt::Display for Raced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rounds, slowest) = (self.rounds, self.slowest.as_secs_f64() * 1_000.0);
        writeln!(
            f,
            "{} of {rounds} last changes missed; the slowest of the others took {slowest:.0} ms",
            self.missed.len()
        )?;
        self.missed.iter().try_for_each(|missed| writeln!(f, "{missed}"))
    }
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, name, first, last, gap, difference } = self;
        let (at, gap) = (at.as_secs_f64(), gap.as_secs_f64() * 1_000.0);
        write!(f, "{at:8.3} s {name}: {first}, {gap:.1} ms later {last}: {difference}")
    }
}
