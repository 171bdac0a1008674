//! Random worlds, and what `CronTab` promises of them. The judge is written from the specification and uses nothing of the
//! operator's code.

use std::time::Duration;

use crontab_operator::CronTabOperator;
use fastrand::Rng;
use jiff::{Timestamp, ToSpan as _};
use manager::Operator;
use model_apiserver::Model;
use serde_json::{Map, Value, json};
use simulation::{
    Campaign, Period, Plan, Subject, condition,
    oracle::{contains, labels, owner, say},
};

struct CronTab;

/// For so long, worlds from a fresh seed are played in the usual run.
const USUAL: Duration = Duration::from_secs(20);

const JOBS: &str = "jobs.batch";

/// Whether something is due at a minute of the day.
type IsDue = fn(i64) -> bool;

/// Schedules, and when each is due.
const SCHEDULES: &[(&str, IsDue)] = &[
    ("*/5 * * * *", |minute| minute % 5 == 0),
    ("*/7 * * * *", |minute| minute % 60 % 7 == 0),
    ("1-59/20 * * * *", |minute| minute % 60 % 20 == 1),
    ("3,4,30 * * * *", |minute| [3, 4, 30].contains(&(minute % 60))),
    ("@hourly", |minute| minute % 60 == 0),
    ("30 12 * * *", |minute| minute == 12 * 60 + 30),
    ("61 * * * *", |_| false),
];

/// Zones, each with its minutes east of Greenwich from a time in 2026 on, in seconds since 1970.
const ZONES: &[(&str, &[(i64, i64)])] = &[
    ("UTC", &[(0, 0)]),
    ("Asia/Kolkata", &[(0, 330)]),
    ("America/Bogota", &[(0, -300)]),
    ("Europe/Berlin", &[(0, 60), (1_774_746_000, 120), (1_792_890_000, 60)]),
    ("Australia/Lord_Howe", &[(0, 660), (1_775_314_800, 630), (1_791_041_400, 660)]),
    (NOWHERE, &[]),
];
/// There is no such zone.
const NOWHERE: &str = "Mars/Olympus";

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
        scheduled_at(job).is_ok_and(|time| last_schedule_time(object).is_some_and(|last| last >= time))
    }

    fn spec(&self, _: &str, rng: &mut Rng) -> Value {
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
        sometimes("command", &|rng| json!(["report", format!("--level={}", rng.u8(..2))]));
        spec.into()
    }

    /// What a Job runs cannot be changed, and is not put back.
    fn damage(&self, _: &str, rng: &mut Rng) -> Option<Value> {
        Some(json!({"metadata": {"labels": {"team": rng.u8(..4).to_string()}}}))
    }

    fn calm(&self) -> Option<Value> {
        Some(json!({"spec": {"suspend": true, "cronSpec": "@hourly", "timeZone": "UTC"}}))
    }

    /// Each due time has one Job, and there is none beside them. Nothing overlaps: a Job takes a minute at most, and where
    /// two minutes in a row are due, `Forbid` may leave one out.
    fn judge_period(&self, object: &Value, period: &Period) -> Result<(), String> {
        let uid = &object["metadata"]["uid"];
        let mut made = Vec::new();
        for change in period.changes.iter().filter(|change| *change.resource == *JOBS && change.before.is_none()) {
            let Some(job) = change.after.as_deref().filter(|job| job["metadata"]["ownerReferences"][0]["uid"] == *uid)
            else {
                continue;
            };
            contains(job, &wanted_job(object), "Job")?;
            made.push(scheduled_at(job)?);
        }
        let is_due = |time: Timestamp| is_due(&object["spec"], time);
        if let Some(time) = made.iter().find(|time| !is_due(**time)) {
            return Err(format!("a Job was made for {time}, when none was due"));
        }
        let forbids = object["spec"]["concurrencyPolicy"].as_str().unwrap_or("Forbid") == "Forbid";
        // What is due at an edge may have been made before, by a clock that is ahead, or is made later. What was started before
        // clocks jumped back is not started again.
        let mut time = minute_of(period.from) + 2.minutes();
        if let Some(last) = last_before(object, period) {
            time = time.max(minute_of(last) + 1.minute());
        }
        while time < minute_of(period.until) {
            let is_left_out = forbids && is_due(time - 1.minute());
            if is_due(time) && !is_left_out && !made.contains(&time) {
                return Err(format!("no Job was made for {time}"));
            }
            time += 1.minute();
        }
        Ok(())
    }

    /// When it is suspended.
    fn judge(&self, object: &Value, cluster: &Model) -> Result<(), String> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let mut jobs = cluster.objects(JOBS);
        jobs.retain(|job| job["metadata"]["ownerReferences"][0]["uid"] == object["metadata"]["uid"]);
        for (type_, field, default) in
            [("Complete", "successfulJobsHistoryLimit", 3), ("Failed", "failedJobsHistoryLimit", 1)]
        {
            let limit = usize::try_from(spec[field].as_u64().unwrap_or(default)).unwrap_or(usize::MAX);
            let count = jobs.iter().filter(|job| condition(&job["status"], type_)["status"] == "True").count();
            if count > limit {
                return Err(format!("{count} Jobs are {type_}, and the limit is {limit}"));
            }
        }
        for job in &jobs {
            let time = scheduled_at(job)?;
            let last = last_schedule_time(object);
            if last.is_none_or(|last| last < time) {
                return Err(format!("lastScheduleTime is {last:?}, and there is a Job of {time}"));
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
        Ok(())
    }
}

/// Section 4.7.
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
            "template": {
                "metadata": {"labels": labels("crontab", name)},
                "spec": {"restartPolicy": "OnFailure", "containers": [container]},
            },
        },
    })
}

/// The time for which a Job was made; its name and its annotation say the same.
fn scheduled_at(job: &Value) -> Result<Timestamp, String> {
    let metadata = &job["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let seconds = name.rsplit_once('-').and_then(|(_, seconds)| seconds.parse().ok());
    let by_name = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
    let annotation = metadata["annotations"]["stable.example.com/scheduled-at"].as_str().unwrap_or_default();
    match (by_name, annotation.parse::<Timestamp>()) {
        (Some(by_name), Ok(told)) if by_name == told => Ok(told),
        _ => Err(format!("{name} says that it was scheduled at {annotation:?}")),
    }
}

fn last_schedule_time(object: &Value) -> Option<Timestamp> {
    object["status"]["lastScheduleTime"].as_str()?.parse().ok()
}

/// The `lastScheduleTime` with which the object went into the period.
fn last_before(object: &Value, period: &Period) -> Option<Timestamp> {
    let is_it = |before: &&Value| before["metadata"]["uid"] == object["metadata"]["uid"];
    let first = period.changes.iter().filter_map(|change| change.before.as_deref()).find(is_it);
    last_schedule_time(first.unwrap_or(object))
}

fn minute_of(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second().div_euclid(60) * 60).expect("a time")
}

fn is_due(spec: &Value, time: Timestamp) -> bool {
    let zone = spec["timeZone"].as_str().unwrap_or("UTC");
    if spec["suspend"] == true || spec["replicas"] == 0 || zone == NOWHERE {
        return false;
    }
    let offsets = ZONES.iter().find(|(name, _)| *name == zone).map_or(&[][..], |(_, offsets)| *offsets);
    let east = offsets.iter().rev().find(|(from, _)| time.as_second() >= *from).map_or(0, |(_, east)| *east);
    let minute = (time.as_second().div_euclid(60) + east).rem_euclid(24 * 60);
    SCHEDULES.iter().any(|(schedule, is_due)| spec["cronSpec"] == *schedule && is_due(minute))
}

#[test]
fn every_world_ends_as_specified() {
    Campaign::from_env(USUAL).run(&CronTab);
}

/// Hashes of maps differ from run to run, and random numbers and clocks would.
#[test]
fn the_same_seed_gives_the_same_trace() {
    Plan::of(fastrand::u64(..1_000_000)).is_repeatable(&CronTab);
}
