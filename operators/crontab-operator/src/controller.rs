//! Keeps one Job per time of a [`CronTab`]'s schedule.

use std::{sync::Arc, time::Duration};

use kube::ResourceExt;
use manager::{Action, Context, Creation, Error};
use schedule::Decision;

use crate::{
    CronTab,
    api::v1::{ConcurrencyPolicy, JobReference},
    config::Config,
    desired::{self, Run},
    history,
    known::{Known, LiveJob, Missed, News},
    metrics::Tally,
    status,
    timing::Timing,
};

mod cluster;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod year;

use cluster::Cluster;

/// A Job of a former object of the same name is being collected: its name is free in a moment.
const DYING: Duration = Duration::from_secs(1);
/// An operator that finds thousands of old Jobs does not delete them in one burst.
const DELETED_AT_ONCE: usize = 50;
const NEXT_DELETION: Duration = Duration::from_secs(1);

/// Starts the run that is due, if there is one, and says when to look again.
///
/// Deletion needs no code: the Jobs are owned, so Kubernetes collects them.
pub(crate) async fn reconcile(crontab: Arc<CronTab>, ctx: Context<CronTab>) -> Result<Action, Error> {
    wake_up(&crontab, &ctx, ctx.config()).await
}

/// What has been decided at this wake-up, to be told when it is remembered.
#[derive(Default)]
struct Decided {
    news: Vec<News>,
    missed: Vec<Missed>,
    /// Whether the memory has changed.
    remember: bool,
    again: Option<Duration>,
}

/// The same on any [`Cluster`].
///
/// In this order: a run is started before the status says so, since its name keeps it from being started twice; and the
/// status says so before a Job is deleted, since then nothing else does.
async fn wake_up<C: Cluster>(crontab: &CronTab, cluster: &C, config: &Config) -> Result<Action, Error> {
    let cached = cluster.owned();
    let timing = match Timing::of(&crontab.spec) {
        Ok(timing) => timing,
        Err(wrong) => {
            cluster.report(status::wrong(crontab, &cached, &wrong), false).await?;
            return Ok(Action::Done); // nothing but an edit helps
        }
    };
    let jobs = with_unseen(crontab, cached, cluster).await?;
    let mut known = Known::of(crontab, &timing, jobs, cluster.now());
    let mut decided = Decided::default();
    let mut outcome = Ok(());
    if known.has_to_decide() {
        match cluster.recall().await? {
            Some(latest) if latest.resource_version() == crontab.resource_version() => {}
            Some(_) => return Ok(Action::After(Duration::ZERO)), // with the memory that is there, and the cache was behind
            None => return Ok(Action::Done),
        }
        outcome = decide(&mut known, &mut decided, cluster, config).await;
    }

    let report = status::of(&known, &cluster.pods());
    let wanted = report.status.clone();
    cluster.report(report, decided.remember).await?;
    for missed in decided.missed {
        cluster.count(Tally::Missed(missed));
    }
    let stored = cluster.object();
    let before = crontab.status.as_ref().map_or(&[][..], |status| &status.active);
    let still = |job: &JobReference| stored.status.iter().any(|status| status.active.contains(job));
    let left: Vec<JobReference> = before.iter().filter(|job| !still(job)).cloned().collect();
    for news in decided.news.into_iter().chain(known.departed(&left)) {
        cluster.tell(news);
    }
    outcome?;

    let mut again = decided.again.into_iter().chain(known.situation().wait()).min();
    if status::is_stored(&wanted, stored.status.as_ref()) {
        let surplus = history::surplus(&crontab.spec, &known.jobs);
        for job in surplus.iter().take(DELETED_AT_ONCE) {
            delete(job, cluster).await?;
        }
        if surplus.len() > DELETED_AT_ONCE {
            again = again.into_iter().chain([NEXT_DELETION]).min();
        }
    }
    Ok(again.map_or(Action::Done, Action::After))
}

/// Starts what is due or asked for, or decides to leave it out.
async fn decide<C: Cluster>(
    known: &mut Known<'_>,
    decided: &mut Decided,
    cluster: &C,
    config: &Config,
) -> Result<(), Error> {
    if known.depends_on_jobs() {
        let jobs = present(&known.jobs, cluster).await?;
        known.look(jobs);
    }
    match known.situation().decide() {
        Decision::Nothing => {}
        Decision::Skip(due, why) => {
            decided.news.extend(known.skip(due, why.into()));
            decided.missed.push(why.into());
            decided.remember = true;
        }
        Decision::Start(due) => match start(Run::At(due.time), known, cluster, config).await? {
            Creation::Created(job) | Creation::Ours(job) => {
                decided.news.extend(known.started(due, job));
                decided.remember = true;
            }
            Creation::Taken => {
                decided.news.extend(known.skip(due, Missed::NameTaken));
                decided.missed.push(Missed::NameTaken);
                decided.remember = true;
            }
            Creation::Dying => decided.again = Some(DYING),
            Creation::Refused(_) => {} // it stays due
        },
    }

    let Some(token) = known.asked() else { return Ok(()) };
    let job = if known.crontab.spec.replicas == 0 {
        None
    } else if let Some(why) = known.against_running_now() {
        decided.news.push(known.left_out(why, known.now));
        None
    } else {
        match start(Run::Now(token), known, cluster, config).await? {
            Creation::Created(job) | Creation::Ours(job) => Some(job),
            Creation::Taken => None,
            Creation::Dying => {
                decided.again = Some(DYING);
                return Ok(());
            }
            Creation::Refused(_) => return Ok(()),
        }
    };
    known.answered(token, job);
    decided.remember = true;
    Ok(())
}

/// Makes the Job of a run, after those that it replaces are gone.
async fn start<C: Cluster>(
    run: Run<'_>,
    known: &mut Known<'_>,
    cluster: &C,
    config: &Config,
) -> Result<Creation<workloads::JobView>, Error> {
    if known.crontab.spec.concurrency_policy == ConcurrencyPolicy::Replace {
        let replaced: Vec<LiveJob> = known.active().filter(|job| job.deleting.is_none()).cloned().collect();
        for job in &replaced {
            if delete(job, cluster).await? {
                cluster.tell(News::normal("SuccessfulDelete", format!("Deleted job {}", job.name)));
            }
        }
        known.replace(replaced);
    }
    let job = desired::job(known.crontab, run, &known.timing.zone, config);
    let name = job.name_any();
    let creation = cluster.create(job).await.inspect_err(|_| cluster.count(Tally::Failed))?;
    match &creation {
        Creation::Created(_) => {
            cluster.tell(News::normal("SuccessfulCreate", format!("Created job {name}")));
            cluster.count(match run {
                Run::At(time) => Tally::Started(cluster.now().duration_since(time)),
                Run::Now(_) => Tally::Asked,
            });
        }
        Creation::Refused(words) => {
            cluster.tell(News::warning("FailedCreate", format!("Error creating job: {words}")));
            cluster.count(Tally::Failed);
        }
        Creation::Ours(_) | Creation::Dying | Creation::Taken => {}
    }
    Ok(creation)
}

async fn delete<C: Cluster>(job: &LiveJob, cluster: &C) -> Result<bool, Error> {
    cluster.delete(job).await.inspect_err(|error| {
        // Others pass by themselves, and are told if they do not.
        if error.reason() == "Forbidden" {
            let words = format!("Error deleting job {}: {}", job.name, error.chain());
            cluster.tell(News::warning("FailedDelete", words));
        }
    })
}

/// The cached Jobs, and those that the status has as running and only the cache does not know.
async fn with_unseen<C: Cluster>(
    crontab: &CronTab,
    mut jobs: Vec<LiveJob>,
    cluster: &C,
) -> Result<Vec<LiveJob>, Error> {
    for reference in crontab.status.iter().flat_map(|status| &status.active) {
        if jobs.iter().all(|job| *job.uid != *reference.uid) {
            let found = cluster.live(&reference.name).await?;
            jobs.extend(found.filter(|job| *job.uid == *reference.uid));
        }
    }
    Ok(jobs)
}

/// All Jobs that are there, and of those that have not ended what the API server says now. What was known before and the
/// cache does not know is kept: somebody may have taken its labels off.
async fn present<C: Cluster>(known: &[LiveJob], cluster: &C) -> Result<Vec<LiveJob>, Error> {
    cluster.catch_up().await?;
    let mut jobs = cluster.owned();
    let unseen = known.iter().filter(|job| jobs.iter().all(|other| other.uid != job.uid));
    jobs.extend(unseen.cloned().collect::<Vec<_>>());
    let mut present = Vec::with_capacity(jobs.len());
    for job in jobs {
        if job.end().is_some() {
            present.push(job);
        } else if let Some(found) = cluster.live(&job.name).await? {
            present.extend(Some(found).filter(|found| found.uid == job.uid));
        }
    }
    Ok(present)
}
