//! The reconciler of [`CronTab`]: creates one Job for each scheduled time, and deletes old Jobs.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::ResourceExt;
use manager::{Action, Context, Creation, Error, Event, FieldError};
use schedule::Decision;
use workloads::{JobView, SecurityPolicy, SecurityProfile};

use crate::{
    CronTab,
    api::v1::{ConcurrencyPolicy, JobReference},
    desired::{self, Run},
    history,
    known::{Known, LiveJob, Missed},
    metrics::{Runs, Tally},
    status,
    timing::Timing,
};

/// Limit per reconcile, so that an operator that finds thousands of old Jobs does not delete them in one burst.
const DELETED_AT_ONCE: usize = 50;
/// How long to wait for the cache if the API server has no such object any more, as in a cluster that was restored.
const UNTIL_GONE: Duration = Duration::from_secs(1);
const NEXT_DELETION: Duration = Duration::from_secs(1);

/// What all reconciles share.
pub(crate) struct Shared {
    pub(crate) security: SecurityPolicy,
    pub(crate) runs: Runs,
}

/// The decisions of one reconcile. Events and metrics about them follow only after the status has been written.
#[derive(Default)]
struct Decided {
    events: Vec<Event>,
    missed: Vec<Missed>,
    /// Whether the memory in the status has changed, so that its write must not be held back.
    remember: bool,
    again: Option<Duration>,
}

impl Decided {
    fn skip(&mut self, events: Vec<Event>, why: Missed) {
        self.events.extend(events);
        self.missed.push(why);
        self.remember = true;
    }
}

/// Starts the run that is due, if any. Returns when to reconcile again.
///
/// Deletion of a CronTab needs no code: it owns its Jobs, so the garbage collector deletes them.
///
/// The order matters. A run is started before the status records it, because the name of its Job prevents a second start. The
/// status records the run before its Job is deleted, because afterwards the status is the only record.
pub(crate) async fn reconcile(crontab: Arc<CronTab>, ctx: Context<CronTab, Shared>) -> Result<Action, Error> {
    let cached = ctx.owned::<Job>();
    let timing = match Timing::of(&crontab.spec) {
        Ok(timing) => timing,
        Err(wrong) => {
            ctx.apply_status(status::wrong(&crontab, &cached, &wrong)).await?;
            return Ok(Action::Done); // only an edit of the spec helps
        }
    };
    profile(&crontab, &ctx)?;
    let jobs = with_unseen(&crontab, cached, &ctx).await?;
    let mut known = Known::of(&crontab, &timing, jobs, ctx.now());
    let mut decided = Decided { remember: known.has_unrecorded_edit(), ..Decided::default() };
    let mut outcome = Ok(());
    if known.has_to_decide() {
        match ctx.refresh_status().await? {
            Some(latest) if latest.resource_version() == crontab.resource_version() => {}
            Some(_) => return Ok(Action::After(Duration::ZERO)), // the cache was stale: decide on the newer status
            None => return Ok(Action::Done),
        }
        outcome = decide(&mut known, &mut decided, &ctx).await;
    }

    let report = status::of(&known, &ctx.labelled::<Pod>(), ctx.config().security);
    let wanted = report.status.clone();
    let surplus = history::surplus(&crontab.spec, &known.jobs, known.now);
    let has_more = surplus.len() > DELETED_AT_ONCE;
    // A deletion before the write of the status delays it. But if the API server refuses that deletion, the write reports it.
    let stored = crontab.status.as_ref();
    let most_early = match &outcome {
        Err(_) => 0, // each retry of the start would send them again
        Ok(()) if status::is_stored(&wanted, stored) => DELETED_AT_ONCE, // there is no news to delay
        // The status has news. If it also reports a refusal, one deletion shows whether that still holds.
        Ok(()) => usize::from(status::reports_refusal(stored)),
    };
    let (mut early, mut late) = (Vec::new(), Vec::new());
    for job in surplus.into_iter().take(DELETED_AT_ONCE) {
        let is_early = early.len() < most_early && known.is_recorded(&job);
        let group = if is_early { &mut early } else { &mut late };
        group.push(job);
    }
    let deleted = delete_all(&early, &ctx).await;
    if decided.remember {
        ctx.apply_status_at_once(report).await?;
    } else {
        ctx.apply_status(report).await?;
    }
    for missed in decided.missed {
        count(&ctx, Tally::Missed(missed));
    }
    let stored = ctx.object();
    let before = crontab.status.as_ref().map_or(&[][..], |status| &status.active);
    let still = |job: &JobReference| stored.status.iter().any(|status| status.active.contains(job));
    let left: Vec<JobReference> = before.iter().filter(|job| !still(job)).cloned().collect();
    for event in decided.events.into_iter().chain(known.departed(&left)) {
        emit(&ctx, event);
    }
    outcome?;

    let is_stored = status::is_stored(&wanted, stored.status.as_ref());
    if decided.remember && !is_stored {
        return Ok(Action::After(UNTIL_GONE)); // the object is gone, but the cache still has it
    }
    let mut again = decided.again.into_iter().chain(known.situation().wait()).min();
    let deleted = match deleted {
        Ok(()) if is_stored => delete_all(&late, &ctx).await,
        other => other,
    };
    if let Err(error) = deleted {
        // The next run must not wait for the back-off of the deletions.
        if let Some(next) = again.and_then(|wait| known.now.checked_add(wait).ok()) {
            ctx.requeue_at(next);
        }
        return Err(error);
    }
    if is_stored {
        if has_more {
            again = again.into_iter().chain([NEXT_DELETION]).min();
        }
        if let Some(time) = history::next_expiry(&crontab.spec, &known.jobs, known.now) {
            ctx.requeue_at(time);
        }
    }
    Ok(again.map_or(Action::Done, Action::After))
}

/// Starts the run that is due or the run that the user requests with `run-now`, or decides to skip them.
///
/// The status has to record a run before another run may replace its Job. So this starts only one of them.
async fn decide(known: &mut Known<'_>, decided: &mut Decided, ctx: &Context<CronTab, Shared>) -> Result<(), Error> {
    // Before any run: once the status has a memory, the token would look like a request.
    decided.events.extend(known.answer_inherited_request());
    if known.depends_on_jobs() {
        let jobs = present(&known.jobs, ctx).await?;
        known.look(jobs);
    }
    if !known.has_unrecorded_runs() {
        decide_due(known, decided, ctx).await?;
    }
    if known.has_unrecorded_runs() {
        decided.remember = true;
        decided.again = Some(Duration::ZERO);
        return Ok(());
    }
    match known.requested_run() {
        Some(token) => decide_requested(token, known, decided, ctx).await,
        None => Ok(()),
    }
}

/// Decides on the run that is due.
async fn decide_due(known: &mut Known<'_>, decided: &mut Decided, ctx: &Context<CronTab, Shared>) -> Result<(), Error> {
    match known.situation().decide() {
        Decision::Nothing => {}
        Decision::Skip(due, why) => decided.skip(known.skip(due, why.into()), why.into()),
        Decision::Start(due) => match start(Run::At(due.time), known, ctx).await? {
            Creation::Created(job) | Creation::Ours(job) => {
                decided.events.extend(known.started(due, job));
                decided.remember = true;
            }
            Creation::Taken => decided.skip(known.skip(due, Missed::NameTaken), Missed::NameTaken),
            Creation::Dying => decided.again = Some(known.wait_for_name()),
            Creation::Refused(_) => {} // the run stays due
        },
    }
    Ok(())
}

/// Decides on the run that the user requests with this token.
async fn decide_requested(
    token: &str,
    known: &mut Known<'_>,
    decided: &mut Decided,
    ctx: &Context<CronTab, Shared>,
) -> Result<(), Error> {
    let run = Run::Now(token);
    let job = if known.crontab.spec.replicas == 0 {
        decided.events.push(Event::normal("NoReplicas", "Not starting job because spec.replicas is 0"));
        None
    } else if let Some(why) = known.against_running_now() {
        decided.skip(vec![known.left_out(run, why)], why);
        None
    } else {
        match start(run, known, ctx).await? {
            Creation::Created(job) | Creation::Ours(job) => Some(job),
            Creation::Taken => {
                decided.skip(vec![known.left_out(run, Missed::NameTaken)], Missed::NameTaken);
                None
            }
            Creation::Dying => {
                decided.again = Some(known.wait_for_name());
                return Ok(());
            }
            Creation::Refused(_) => return Ok(()),
        }
    };
    known.answered(token, job);
    decided.remember = true;
    Ok(())
}

/// Returns the security profile of the pods, unless the administrator does not permit it.
fn profile(crontab: &CronTab, ctx: &Context<CronTab, Shared>) -> Result<SecurityProfile, Error> {
    let profile = ctx.config().security.profile(crontab.spec.security_profile);
    Ok(profile.map_err(|why| FieldError { field: "spec.securityProfile".to_owned(), why })?)
}

/// Creates the Job of a run. With `Replace`, it first deletes the active Jobs.
async fn start(
    run: Run<'_>,
    known: &mut Known<'_>,
    ctx: &Context<CronTab, Shared>,
) -> Result<Creation<JobView>, Error> {
    if known.crontab.spec.concurrency_policy == ConcurrencyPolicy::Replace {
        let replaced: Vec<LiveJob> = known.active().filter(|job| job.deleting.is_none()).cloned().collect();
        for job in &replaced {
            if delete(job, ctx).await? {
                emit(ctx, Event::normal("SuccessfulDelete", format!("Deleted job {}", job.name)));
            }
        }
        known.replace(replaced);
    }
    let job = desired::job(known.crontab, run, &known.timing.zone, profile(known.crontab, ctx)?);
    let name = job.name_any();
    let creation = ctx.create(job).await.inspect_err(|_| count(ctx, Tally::Failed))?;
    match &creation {
        Creation::Created(_) => {
            emit(ctx, Event::normal("SuccessfulCreate", format!("Created job {name}")));
            count(
                ctx,
                match run {
                    Run::At(time) => Tally::Started(ctx.now().duration_since(known.situation().start_of(time))),
                    Run::Now(_) => Tally::Requested,
                },
            );
        }
        Creation::Refused(words) => {
            emit(ctx, Event::warning("FailedCreate", format!("Error creating job: {words}")));
            count(ctx, Tally::Failed);
        }
        Creation::Ours(_) | Creation::Dying | Creation::Taken => {}
    }
    Ok(creation)
}

/// Deletes these Jobs, up to the first one whose deletion fails.
async fn delete_all(jobs: &[LiveJob], ctx: &Context<CronTab, Shared>) -> Result<(), Error> {
    for job in jobs {
        delete(job, ctx).await?;
    }
    Ok(())
}

/// Deletes a Job. Returns whether it still existed.
async fn delete(job: &LiveJob, ctx: &Context<CronTab, Shared>) -> Result<bool, Error> {
    ctx.delete_quietly::<Job>(job).await.inspect_err(|error| {
        // Other errors are usually transient, and the runtime reports those that are not.
        if error.reason() == "Forbidden" {
            let words = format!("Error deleting job {}: {}", job.name, error.chain());
            emit(ctx, Event::warning("FailedDelete", words));
        }
    })
}

/// Adds to the cached Jobs those that the status lists as active and the cache does not contain. Reads them from the API server.
async fn with_unseen(
    crontab: &CronTab,
    mut jobs: Vec<LiveJob>,
    ctx: &Context<CronTab, Shared>,
) -> Result<Vec<LiveJob>, Error> {
    for reference in crontab.status.iter().flat_map(|status| &status.active) {
        if jobs.iter().all(|job| *job.uid != *reference.uid) {
            let found = ctx.get_uncached::<Job>(&reference.name).await?;
            jobs.extend(found.filter(|job| *job.uid == *reference.uid));
        }
    }
    Ok(jobs)
}

/// Returns all existing Jobs. Reads those that have not ended from the API server. Also looks up the `known` Jobs that the cache
/// does not contain, because another client may have removed their labels.
async fn present(known: &[LiveJob], ctx: &Context<CronTab, Shared>) -> Result<Vec<LiveJob>, Error> {
    ctx.sync_cache::<Job>().await?;
    let mut jobs = ctx.owned::<Job>();
    let unseen = known.iter().filter(|job| jobs.iter().all(|other| other.uid != job.uid));
    jobs.extend(unseen.cloned().collect::<Vec<_>>());
    let mut present = Vec::with_capacity(jobs.len());
    for job in jobs {
        if job.end().is_some() {
            present.push(job);
        } else if let Some(found) = ctx.get_uncached::<Job>(&job.name).await? {
            present.extend(Some(found).filter(|found| found.uid == job.uid));
        }
    }
    Ok(present)
}

fn emit(ctx: &Context<CronTab, Shared>, Event { type_, reason, message }: Event) {
    ctx.event(type_, reason, message);
}

fn count(ctx: &Context<CronTab, Shared>, tally: Tally) {
    ctx.config().runs.count(tally);
}
