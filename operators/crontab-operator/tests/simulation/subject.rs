//! What random worlds must know about `CronTab`: its specs, and how to judge its runs and its final state. The judge is written
//! from the specification and uses nothing of the operator's code.

pub(crate) mod every;
pub(crate) mod jobs;

use crontab_operator::CronTabOperator;
use fastrand::Rng;
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use manager::Operator;
use model_apiserver::Model;
use serde_json::{Map, Value, json};
use simulation::{
    Period, Subject, condition,
    oracle::{contains, labels, owner, say},
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The operator, as its specification describes it.
pub(crate) struct CronTab;

const JOBS: &str = "jobs.batch";

/// Whether a schedule is due at this minute of the day.
type IsDue = fn(i64) -> bool;

/// Schedules, each with a function that says when it is due.
const SCHEDULES: &[(&str, IsDue)] = &[
    ("*/5 * * * *", |minute| minute % 5 == 0),
    ("*/7 * * * *", |minute| minute % 60 % 7 == 0),
    ("1-59/20 * * * *", |minute| minute % 60 % 20 == 1),
    ("3,4,30 * * * *", |minute| [3, 4, 30].contains(&(minute % 60))),
    ("@hourly", |minute| minute % 60 == 0),
    ("30 12 * * *", |minute| minute == 12 * 60 + 30),
    ("61 * * * *", |_| false),
    ("*/10 * * * *; 20-40/5 * * * *;30 12 * * *", |minute| {
        minute % 10 == 0 || (20..=40).contains(&(minute % 60)) && minute % 5 == 0
    }),
    ("@hourly; 7,30 */2 * * *", |minute| minute % 60 == 0 || minute / 60 % 2 == 0 && [7, 30].contains(&(minute % 60))),
    ("*/5 * * * *; @every 1h", |_| false),
];

/// Time zones with their UTC offsets in 2026: pairs of the time from which an offset holds, in seconds since 1970, and the offset
/// in minutes.
const ZONES: &[(&str, &[(i64, i64)])] = &[
    ("UTC", &[(0, 0)]),
    ("Asia/Kolkata", &[(0, 330)]),
    ("America/Bogota", &[(0, -300)]),
    ("Europe/Berlin", &[(0, 60), (1_774_746_000, 120), (1_792_890_000, 60)]),
    ("Australia/Lord_Howe", &[(0, 660), (1_775_314_800, 630), (1_791_041_400, 660)]),
    (NOWHERE, &[]),
];
/// Without disturbances, the operator creates a Job within this time after it is due. Clocks differ by seconds.
const LATEST: SignedDuration = SignedDuration::from_secs(30);
/// The longest `jitterSeconds` of an object.
const LONGEST_JITTER: i64 = 25;
/// Those of the schedules that are invalid.
const INVALID: [&str; 2] = ["61 * * * *", "*/5 * * * *; @every 1h"];
/// The annotation with which users request a run.
const RUN_NOW: &str = "stable.example.com/run-now";
/// A time zone that does not exist.
const NOWHERE: &str = "Mars/Olympus";
/// Makes the draws of later fields independent of the earlier draws. With this value, the specs of the worlds in `tests/worlds`
/// stay as they were when these worlds found something.
const LATER_FIELDS: u64 = 0x6_5766_5727_902c;

impl Subject for CronTab {
    fn operator(&self) -> &'static dyn Operator {
        &CronTabOperator
    }

    fn kind(&self) -> (&'static str, &'static str) {
        ("stable.example.com/v1", "CronTab")
    }

    fn resource(&self) -> &'static str {
        "crontabs.stable.example.com"
    }

    fn children(&self) -> &'static [&'static str] {
        &[JOBS]
    }

    fn remembers(&self, object: &Value, job: &Value) -> bool {
        if let Some(token) = object["status"]["lastRunNow"].as_str()
            && job["metadata"]["name"] == *requested_name(object, token)
        {
            return true;
        }
        scheduled_at(job).is_ok_and(|time| last_schedule_time(object).is_some_and(|last| last >= time))
    }

    /// The operator deletes a Job because of its age, or because another run replaces it. In both cases its run is over.
    fn happens_once(&self, _: &Value) -> bool {
        true
    }

    fn request(&self, rng: &mut Rng) -> Option<Value> {
        Some(json!({"metadata": {"annotations": {RUN_NOW: format!("{:016x}", rng.u64(..))}}}))
    }

    fn spec(&self, _: &str, rng: &mut Rng) -> Value {
        let mut later = Rng::with_seed(rng.get_seed() ^ LATER_FIELDS);
        let mut spec = Map::new();
        spec.insert("cronSpec".to_owned(), json!(SCHEDULES[rng.usize(..SCHEDULES.len())].0));
        spec.insert("image".to_owned(), json!(format!("example.com/report:{}", rng.u8(..3))));
        let mut sometimes = |field: &str, value: &dyn Fn(&mut Rng) -> Value| {
            if rng.u8(..4) == 0 {
                let value = value(rng);
                spec.insert(field.to_owned(), value);
            }
        };
        sometimes("replicas", &|rng| json!(rng.u8(..4)));
        sometimes("timeZone", &|rng| json!(ZONES[rng.usize(..ZONES.len())].0));
        sometimes("suspend", &|rng| json!(rng.bool()));
        sometimes("concurrencyPolicy", &|rng| json!(["Allow", "Forbid", "Replace"][rng.usize(..3)]));
        sometimes("startingDeadlineSeconds", &|rng| json!(10 + i64::from(rng.u8(..100))));
        sometimes("successfulJobsHistoryLimit", &|rng| json!(rng.u8(..5)));
        sometimes("failedJobsHistoryLimit", &|rng| json!(rng.u8(..3)));
        sometimes("jitterSeconds", &|rng| json!(rng.i64(..=LONGEST_JITTER)));
        sometimes("ttlSecondsAfterFinished", &|rng| json!(rng.u8(..)));
        sometimes("command", &|rng| json!(["report", format!("--level={}", rng.u8(..2))]));
        if later.u8(..6) == 0 {
            spec.insert("cronSpec".to_owned(), json!(every::SCHEDULES[later.usize(..every::SCHEDULES.len())].0));
        }
        if later.u8(..4) == 0 {
            spec.insert("maxActiveJobs".to_owned(), json!(later.u8(1..4)));
            if later.bool() {
                spec.insert("concurrencyPolicy".to_owned(), json!("Allow")); // without it, the limit has no effect
            }
        }
        spec.into()
    }

    /// The pod template of a Job is immutable, and the operator does not revert labels.
    fn damage(&self, _: &str, rng: &mut Rng) -> Option<Value> {
        Some(json!({"metadata": {"labels": {"team": rng.u8(..4).to_string()}}}))
    }

    /// Without a TTL, the last Jobs stay: after clocks were put back, one may reach its age when the world is at rest.
    fn calm(&self) -> Option<Value> {
        let spec = json!({"suspend": true, "cronSpec": "@hourly", "timeZone": "UTC", "ttlSecondsAfterFinished": null});
        Some(json!({"spec": spec}))
    }

    /// Checks that each due time has a Job, that there are no other Jobs, which of them run at the same time, and which stay. A Job
    /// takes a minute at most, so runs of cron expressions overlap only if two successive minutes are due; `Forbid` and
    /// `maxActiveJobs` may then skip the second one.
    fn judge_period(&self, object: &Value, period: &Period) -> Result<(), String> {
        let uid = &object["metadata"]["uid"];
        let jitter = SignedDuration::from_secs(object["spec"]["jitterSeconds"].as_i64().unwrap_or_default());
        let (mut made, mut requested) = (Vec::new(), Vec::new());
        for change in period.changes.iter().filter(|change| *change.resource == *JOBS && change.before.is_none()) {
            let Some(job) = change.after.as_deref().filter(|job| job["metadata"]["ownerReferences"][0]["uid"] == *uid)
            else {
                continue;
            };
            contains(job, &wanted_job(object), "Job")?;
            if is_requested(job) {
                requested.push(job);
                continue;
            }
            let (due, created) = (scheduled_at(job)?, creation_time(job));
            if due > period.from && created.is_none_or(|created| created > due + jitter + LATEST) {
                return Err(format!("the operator created the Job for {due} at {created:?}"));
            }
            if made.contains(&due) {
                return Err(format!("the operator created two Jobs for {due}"));
            }
            made.push(due);
        }
        judge_requested(object, period, &requested)?;
        jobs::judge_concurrency(object, period)?;
        jobs::judge_history(object, period)?;
        // Nothing hinders the operator, so it sees the end of each run before the Job goes after its `ttlSecondsAfterFinished`.
        let events = period.changes.iter().filter(|change| change.resource.starts_with("events"));
        let mut events = events.filter_map(|change| change.after.as_deref());
        if let Some(lost) = events.find(|it| it["reason"] == "MissingJob" && it["regarding"]["uid"] == *uid) {
            return Err(format!("the operator reports a run as lost: {}", lost["note"]));
        }
        if let Some(seconds) = every::seconds(&object["spec"]) {
            return every::judge(&object["spec"], period, seconds, &made);
        }
        let is_due = |time: Timestamp| is_due(&object["spec"], time);
        if let Some(time) = made.iter().find(|time| !is_due(**time)) {
            return Err(format!("the operator created a Job for {time}, when none was due"));
        }
        let room = every::room(&object["spec"]);
        // A clock that is ahead or behind may move a run at an edge out of the period. After the clocks were put back, the operator
        // starts no run again, and no run of a time before the object was created or its schedule was edited.
        let mut time = minute_of(period.latest_before) + 2.minutes();
        while time < minute_of(period.until - jitter) {
            // The run that was requested at the begin of the period takes a minute at most too.
            let is_near_request = time < minute_of(period.from) + 3.minutes();
            let others = usize::from(is_due(time - 1.minute())) + usize::from(is_near_request);
            let is_left_out = others >= room;
            if is_due(time) && !is_left_out && !made.contains(&time) {
                return Err(format!("the operator created no Job for {time}"));
            }
            time += 1.minute();
        }
        Ok(())
    }

    /// The status counts the Jobs whose runs are not over. Those that are being deleted may count or not.
    fn judge_claim(&self, object: &Value, cluster: &Model) -> Result<(), String> {
        let mut jobs = cluster.objects(JOBS);
        jobs.retain(|job| job["metadata"]["ownerReferences"][0]["uid"] == object["metadata"]["uid"]);
        if jobs.iter().any(|job| !job["metadata"]["deletionTimestamp"].is_null()) {
            return Ok(());
        }
        let is_over =
            |job: &&Value| ["Complete", "Failed"].iter().any(|end| condition(&job["status"], end)["status"] == "True");
        let active = jobs.len() - jobs.iter().filter(is_over).count();
        contains(&object["status"], &json!({"activeJobs": active}), "status")
    }

    /// A run that the status has recorded stays recorded, so that no run starts twice.
    fn judge_change(&self, before: &Value, after: &Value) -> Result<(), String> {
        let (before, after) = (last_schedule_time(before), last_schedule_time(after));
        if after < before {
            return Err(format!("lastScheduleTime goes back from {before:?} to {after:?}"));
        }
        Ok(())
    }

    /// Judges a suspended object: [`calm`](Subject::calm) suspends all objects before the end.
    fn judge(&self, object: &Value, cluster: &Model) -> Result<(), String> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let mut ours = cluster.objects(JOBS);
        ours.retain(|job| job["metadata"]["ownerReferences"][0]["uid"] == object["metadata"]["uid"]);
        for (type_, field, default) in jobs::ENDS {
            let limit = jobs::limit(spec, field, default);
            let count = ours.iter().filter(|job| condition(&job["status"], type_)["status"] == "True").count();
            if count > limit {
                return Err(format!("{count} Jobs are {type_}, but the limit is {limit}"));
            }
        }
        let request = &object["metadata"]["annotations"][RUN_NOW];
        if !request.is_null() && status["lastRunNow"] != *request {
            return Err(format!("{request} is requested, and lastRunNow is {}", status["lastRunNow"]));
        }
        for job in ours.iter().filter(|job| !is_requested(job)) {
            let time = scheduled_at(job)?;
            let last = last_schedule_time(object);
            if last.is_none_or(|last| last < time) {
                return Err(format!("lastScheduleTime is {last:?}, but there is a Job of {time}"));
            }
        }
        contains(status, &json!({"activeJobs": 0, "replicas": 0}), "status")?;
        if status["active"].as_array().is_some_and(|active| !active.is_empty()) {
            return Err(format!("active is {}", status["active"]));
        }
        let ready = if spec["replicas"] == 0 { ["Suspended", "ScaledToZero"] } else { ["Suspended"; 2] };
        if !ready.iter().any(|reason| say(status, &[("Ready", ("True", reason))]).is_ok()) {
            return Err(format!("Ready is {}", condition(status, "Ready")));
        }
        let degraded = [("False", "AsExpected"), ("True", "LastRunFailed")];
        if !degraded.iter().any(|says| say(status, &[("Degraded", *says)]).is_ok()) {
            return Err(format!("Degraded is {}", condition(status, "Degraded")));
        }
        jobs::judge_last_run(status, &ours)
    }
}

/// Checks that the run which was requested at the begin of the period has exactly one Job, unless no run may start then, and that
/// nothing else was started outside of the schedule.
fn judge_requested(object: &Value, period: &Period, requested: &[&Value]) -> Result<(), String> {
    let spec = &object["spec"];
    let token = object["metadata"]["annotations"][RUN_NOW].as_str().unwrap_or_default();
    let name = requested_name(object, token);
    for job in requested {
        if token.is_empty() || job["metadata"]["name"] != *name {
            return Err(format!("the operator created {} without a request", job["metadata"]["name"]));
        }
        let created = creation_time(job);
        if created.is_none_or(|created| created > period.from + LATEST) {
            return Err(format!("the operator created {name} at {created:?}, the request is of {}", period.from));
        }
    }
    let is_valid = spec["timeZone"] != *NOWHERE && !INVALID.iter().any(|invalid| spec["cronSpec"] == **invalid);
    let may_start = is_valid && spec["replicas"] != 0;
    // A run takes a minute at most. One that was due shortly before, or is due just now, may be active.
    let is_near = |minutes: &i64| is_due(spec, minute_of(period.from) + minutes.minutes());
    let of_cron = (-3..=1).filter(is_near).count();
    // Where the grid of `@every` is in these minutes is not known.
    let near = every::seconds(spec).map_or(of_cron, |seconds| if seconds < 60 { 5 } else { 2 });
    let may_be_skipped = near >= every::room(spec);
    match requested.len() {
        0 if !may_start || may_be_skipped || token.is_empty() => Ok(()),
        1 if may_start => Ok(()),
        count => Err(format!("{count} Jobs {name} were created for one request")),
    }
}

/// The name of the Job of a request that is the last one which the status counts. It is part of the specification, because it makes
/// the Job unique.
fn requested_name(object: &Value, token: &str) -> String {
    let before = object["status"]["runNowCount"].as_u64().unwrap_or_default().saturating_sub(1);
    let hash = xxh3_64_with_seed(token.as_bytes(), before);
    format!("{}-{:010x}", object["metadata"]["name"].as_str().unwrap_or_default(), hash >> 24)
}

/// Whether a user has requested this Job, so that it has no due time.
fn is_requested(job: &Value) -> bool {
    job["metadata"]["annotations"]["stable.example.com/scheduled-at"].is_null()
}

/// The Job of an object, as section 4.7 of the specification describes it.
fn wanted_job(object: &Value) -> Value {
    let (name, spec) = (object["metadata"]["name"].as_str().unwrap_or_default(), &object["spec"]);
    let replicas = spec["replicas"].as_i64().unwrap_or(1);
    let mut container = json!({"name": "cron", "image": spec["image"]});
    if !spec["command"].is_null() {
        container["command"] = spec["command"].clone();
    }
    json!({
        "metadata": {"labels": labels("crontab", name), "ownerReferences": [owner(object)]},
        "spec": {
            "completions": replicas, "parallelism": replicas, "completionMode": "Indexed", "backoffLimit": 6,
            "ttlSecondsAfterFinished": null, // only the operator deletes Jobs, once the status remembers their runs
            "template": {
                "metadata": {"labels": labels("crontab", name)},
                "spec": {"restartPolicy": "OnFailure", "containers": [container]},
            },
        },
    })
}

/// Returns the due time of a Job, and checks that its name and its annotation agree on it.
fn scheduled_at(job: &Value) -> Result<Timestamp, String> {
    let metadata = &job["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let seconds = name.rsplit_once('-').and_then(|(_, seconds)| seconds.parse().ok());
    let by_name = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
    let annotation = metadata["annotations"]["stable.example.com/scheduled-at"].as_str().unwrap_or_default();
    match (by_name, annotation.parse::<Timestamp>()) {
        (Some(by_name), Ok(told)) if by_name == told => Ok(told),
        _ => Err(format!("{name} has the annotation scheduled-at {annotation:?}")),
    }
}

fn creation_time(job: &Value) -> Option<Timestamp> {
    job["metadata"]["creationTimestamp"].as_str()?.parse().ok()
}

fn last_schedule_time(object: &Value) -> Option<Timestamp> {
    object["status"]["lastScheduleTime"].as_str()?.parse().ok()
}

fn minute_of(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second().div_euclid(60) * 60).expect("a time")
}

/// Whether a valid schedule of this spec is in effect.
fn starts_runs(spec: &Value) -> bool {
    spec["suspend"] != true && spec["replicas"] != 0 && spec["timeZone"] != NOWHERE
}

fn is_due(spec: &Value, time: Timestamp) -> bool {
    if !starts_runs(spec) {
        return false;
    }
    let zone = spec["timeZone"].as_str().unwrap_or("UTC");
    let offsets = ZONES.iter().find(|(name, _)| *name == zone).map_or(&[][..], |(_, offsets)| *offsets);
    let east = offsets.iter().rev().find(|(from, _)| time.as_second() >= *from).map_or(0, |(_, east)| *east);
    let minute = (time.as_second().div_euclid(60) + east).rem_euclid(24 * 60);
    SCHEDULES.iter().any(|(schedule, is_due)| spec["cronSpec"] == *schedule && is_due(minute))
}
