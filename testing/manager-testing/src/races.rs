//! Races: pairs of changes within milliseconds, on a real API server. Does the operator react to each second change?
//!
//! An operator reacts to a change with its own write, usually of the status. If a second change reaches the API server just
//! before this write, the answer to the write contains it. An operator that assumes that the answer contains only its own write
//! never reacts to this change. [`Races`] makes such pairs of changes at random, and counts the second ones that have no effect.
//!
//! `wish` is the pure part: the user's changes, and the difference between an object and the user's wish. `seen` watches the
//! objects.

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

/// The longest time between the two changes of a round. An operator's write follows a change within this time.
const GAP: Duration = Duration::from_millis(12);
/// The longest rest before a round. Operators delay a second status write by 400 ms. So rounds with a short rest meet a delayed
/// write, and rounds with a long rest meet an immediate one.
const REST: Duration = Duration::from_millis(600);
/// The limit for steps that may wait for the garbage collector, and for the recovery from a missed change.
const LONG: Duration = Duration::from_mins(1);

/// Many rounds of two changes, on several objects at the same time. No other client may change the objects.
#[derive(Clone)]
pub struct Races {
    /// The user's client.
    pub client: Client,
    /// The namespace of the objects. It holds no other objects of this kind.
    pub namespace: String,
    /// A kind with a field `spec.size` that becomes the replicas of a Deployment of the same name.
    pub resource: ApiResource,
    /// The number of objects.
    pub objects: usize,
    /// The total number of rounds on all objects.
    pub rounds: usize,
    /// Determines the changes and the times between them, but not how they meet the operator's writes.
    pub seed: u64,
    /// A change that has no effect after this time counts as missed.
    pub patience: Duration,
}

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub struct Raced {
    /// The number of finished rounds.
    pub rounds: usize,
    /// The longest time from a last change until its effect, without missed changes.
    pub slowest: Duration,
    /// Last changes without an effect.
    pub missed: Vec<Missed>,
}

/// A change to which the operator did not react.
#[derive(Debug, Clone)]
pub struct Missed {
    /// The time of the change since the start of the run.
    pub at: Duration,
    /// The name of the object.
    pub name: String,
    /// The change before it.
    first: Change,
    /// The change itself.
    last: Change,
    /// The time between the answer to the first change and the request of the last.
    gap: Duration,
    /// How the object differed from the user's wish after `patience`.
    difference: String,
}

/// One object and its user.
struct Racer {
    name: String,
    wish: Wish,
    rng: Rng,
    rounds: usize,
}

/// The state that all racers share.
struct Course<'a> {
    races: &'a Races,
    objects: Api<DynamicObject>,
    seen: Seen,
    begun: Instant,
}

impl Races {
    /// Runs all rounds. Calls `progress` with the result so far after each round.
    ///
    /// # Errors
    ///
    /// The API server refuses a change, or the operator does not react to an object any more.
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
    /// Creates the object and waits until the operator has reconciled it.
    async fn begin(&self, racer: &mut Racer) -> Result<()> {
        self.create(racer).await?;
        let begun = self.seen.until(&racer.name, LONG, |it| it.difference(&racer.wish)).await;
        begun.map(drop).map_err(anyhow::Error::msg).with_context(|| format!("no first reconcile of {}", racer.name))
    }

    /// Runs all rounds of one object. Each item is the time until the last change had its effect, or the missed change.
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
            // After a replacement, the garbage collector must remove the old children before the operator can create new ones.
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

    /// Makes one more change, so that the next round starts with a reconciled object.
    async fn help(&self, racer: &mut Racer) -> Result<()> {
        let ask = racer.wish.ask();
        self.carry_out(&ask, racer).await?;
        let helped = self.seen.until(&racer.name, LONG, |it| it.difference(&racer.wish)).await;
        helped.map_err(anyhow::Error::msg).context("the operator does not react to another change either")
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
        ensure!(!uid.is_empty(), "the API server returns no uid");
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
