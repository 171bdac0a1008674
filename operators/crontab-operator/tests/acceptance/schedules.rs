//! Acceptance tests of schedules: which runs are started, and which are not.

use crontab_operator::CronTab;
use manager_testing::condition;
use serde_json::{Value, json};

use crate::kit::{NAME, at, begin, crontab, finish, job, jobs, look, table, tick, told, world};

#[tokio::test(flavor = "multi_thread")]
async fn t07_outage_starts_newest_run_or_reports_it_missed_once() {
    let Some(mut world) = world("2037-11-20T05:30:00Z").await else { return };
    begin(&world, "patient", &json!({"cronSpec": "0 * * * *"})).await;
    begin(&world, "strict", &json!({"cronSpec": "0 * * * *", "startingDeadlineSeconds": 60})).await;
    world.operator = None;
    world.set_clock(at("2037-11-20T10:30:00Z"));
    world.run(&[]);
    world
        .until("the newest", async || {
            (jobs(&world, "patient").await == [job("patient", "2037-11-20T10:00:00Z")]).then_some(())
        })
        .await;
    let note = world.until_event("strict", "Warning", "MissSchedule").await;
    assert_eq!(note, "Missed scheduled time to start a job: 2037-11-20T10:00:00Z");
    world.restart();
    for name in ["patient", "strict"] {
        look(&world, name).await;
    }
    assert_eq!(told(&world, "strict", "MissSchedule").await, 1, "also after a restart");
    assert!(jobs(&world, "strict").await.is_empty());
    assert_eq!(jobs(&world, "patient").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn t09_edit_and_resume_start_no_missed_run() {
    let Some(world) = world("2037-11-20T15:00:00Z").await else { return };
    begin(&world, NAME, &json!({"cronSpec": "0 0 * * *"})).await;
    world.patch::<CronTab>(NAME, json!({"spec": {"cronSpec": "0 12 * * *"}})).await;
    let edited = look(&world, NAME).await;
    assert_eq!(edited.status.and_then(|it| it.next_schedule_time), Some(at("2037-11-21T12:00:00Z")));
    tick(&world, NAME, "2037-11-21T11:59:59Z").await;
    assert!(jobs(&world, NAME).await.is_empty());
    world.patch::<CronTab>(NAME, json!({"spec": {"timeZone": "Asia/Tokyo"}})).await;
    let moved = look(&world, NAME).await;
    assert_eq!(moved.status.and_then(|it| it.next_schedule_time), Some(at("2037-11-22T03:00:00Z")), "noon in Tokyo");

    world.set_clock(at("2037-11-22T10:00:30Z"));
    begin(&world, "held", &json!({"cronSpec": "0 * * * *", "suspend": false})).await;
    world.patch::<CronTab>("held", json!({"spec": {"suspend": true}})).await;
    world.until_condition::<CronTab>("held", "Ready", "True", "Suspended").await;
    world.set_clock(at("2037-11-22T15:00:00Z"));
    world.patch::<CronTab>("held", json!({"spec": {"suspend": false}})).await;
    let resumed = look(&world, "held").await;
    assert_eq!(resumed.status.and_then(|it| it.next_schedule_time), Some(at("2037-11-22T16:00:00Z")));
    assert!(jobs(&world, "held").await.is_empty());
    let paused = "stable.example.com/paused";
    world.patch::<CronTab>("held", json!({"metadata": {"annotations": {paused: "true"}}})).await;
    world.until_condition::<CronTab>("held", "Ready", "Unknown", "Paused").await;
    assert!(table(&world).contains("Paused"), "{}", table(&world));
    world.set_clock(at("2037-11-22T18:30:00Z"));
    world.patch::<CronTab>("held", json!({"metadata": {"annotations": {paused: null}}})).await;
    world.until_condition::<CronTab>("held", "Ready", "True", "Scheduled").await;
    assert!(jobs(&world, "held").await.is_empty(), "the end of a pause starts no missed run either");
}

#[tokio::test(flavor = "multi_thread")]
async fn t12_invalid_schedule_is_reported_and_not_retried() {
    let Some(world) = world("2037-11-20T09:30:00Z").await else { return };
    for (spec, reason) in [
        (json!({"cronSpec": "0 0 * * 7"}), "InvalidSchedule"),
        (json!({"cronSpec": "0 0 30 2 *"}), "InvalidSchedule"),
        (json!({"timeZone": "Mars/Base"}), "UnknownTimeZone"),
    ] {
        world.apply(&crontab(NAME, &spec)).await;
        let told = world.until_condition::<CronTab>(NAME, "Ready", "False", reason).await;
        assert!(condition(&told, "Stalled").is_some());
        assert_eq!(told.status.and_then(|it| it.next_schedule_time), None);
        world.until_event(NAME, "Warning", reason).await;
        let before = world.requests().writes();
        tick(&world, NAME, "2037-11-20T10:00:00Z").await;
        assert_eq!(world.requests().writes() - before, 1, "only the write that handles the test's reconcile request");
    }
    begin(&world, NAME, &json!({"cronSpec": "0 12 * * *"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_rejects_invalid_specs() {
    let Some(world) = world("2037-11-20T09:30:00Z").await else { return };
    let long = "a".repeat(50);
    let key_of = |key: &str| json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": key}}});
    for (name, spec, words) in [
        (NAME, json!({"cronSpec": "TZ=UTC * * * * *"}), "use timeZone instead"),
        (NAME, json!({"cronSpec": (["@daily"; 9].join(";"))}), "cronSpec may have at most 8 expressions"),
        (NAME, json!({"cronSpec": "@daily; @every 1h"}), "@every cannot be one of several expressions in cronSpec"),
        (NAME, json!({"timeZone": "Local"}), "must be an IANA time zone name"),
        (NAME, json!({"replicas": 101}), "less than or equal to 100"),
        (NAME, json!({"image": "a b"}), "image must not contain blanks"),
        (NAME, json!({"podLabels": {"team": "-"}}), "begin and end with a letter or digit"),
        (NAME, json!({"env": [{"name": "A=B"}]}), "the name of a variable must"),
        (NAME, json!({"env": [key_of("a/b")]}), "a key must consist of letters, digits, '-', '_' and '.'"),
        (NAME, json!({"volumes": [{"name": "A", "emptyDir": {}}]}), "the name of a volume must"),
        (NAME, json!({"volumeMounts": [{"name": "a", "mountPath": "/a:b"}]}), "mountPath must not contain ':'"),
        (NAME, json!({"jitterSeconds": 3601}), "less than or equal to 3600"),
        (NAME, json!({"ttlSecondsAfterFinished": -1}), "greater than or equal to 0"),
        (NAME, json!({"runAsUser": 0}), "runAsUser must be at least 1 under Restricted"),
        (NAME, json!({"concurrencyPolicy": "Queue"}), "Unsupported value"),
        (&long, json!({}), "at most 49 characters"),
    ] {
        let error = world.try_apply(&crontab(name, &spec)).await.expect_err("is refused").to_string();
        assert!(error.contains(words), "{spec}: {error}");
    }
    world.apply(include_str!("../../samples/crontab-report.yaml")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t15_t16_clock_changes_and_jumps_start_the_right_runs() {
    let Some(world) = world("2037-11-01T00:00:00-04:00").await else { return };
    let spec = json!({"cronSpec": "30 1 * * *", "timeZone": "America/New_York"});
    begin(&world, NAME, &spec).await;
    let twice = ["2037-11-01T01:30:00-04:00", "2037-11-01T01:30:00-05:00"];
    for time in twice {
        tick(&world, NAME, time).await;
        finish(&world, &job(NAME, time), "Complete", &at(time).to_string()).await;
    }
    tick(&world, NAME, "2037-11-01T20:00:00-05:00").await;
    assert_eq!(jobs(&world, NAME).await, twice.map(|time| job(NAME, time)));
    tick(&world, NAME, twice[0]).await;
    assert_eq!(jobs(&world, NAME).await.len(), 2, "clock back: no run is repeated");
    tick(&world, NAME, "2037-11-04T20:00:00-05:00").await;
    assert_eq!(jobs(&world, NAME).await.last(), Some(&job(NAME, "2037-11-04T01:30:00-05:00")), "ahead: the newest");
    assert_eq!(jobs(&world, NAME).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_expressions_are_one_schedule() {
    let Some(world) = world("2037-11-20T08:30:00Z").await else { return };
    // 20 November 2037 is a Friday. Both of the first two expressions name 09:00.
    let text = "0 9 * * mon-fri; 0 9,12 20 * *; 30 12 * * sat";
    let spec = json!({"cronSpec": text, "timeZone": "Europe/Berlin", "successfulJobsHistoryLimit": 9});
    begin(&world, NAME, &spec).await;
    assert!(table(&world).contains(text), "{}", table(&world));
    let next = |it: &CronTab| it.status.as_ref().and_then(|status| status.next_schedule_time);
    // 08:30 in UTC is 09:30 in Berlin.
    let times = ["2037-11-20T11:00:00Z", "2037-11-21T11:30:00Z", "2037-11-23T08:00:00Z", "2037-11-24T08:00:00Z"];
    for (n, time) in times.into_iter().enumerate() {
        assert_eq!(next(&look(&world, NAME).await), Some(at(time)));
        tick(&world, NAME, time).await;
        assert_eq!(jobs(&world, NAME).await, times[..=n].iter().map(|time| job(NAME, time)).collect::<Vec<_>>());
        finish(&world, &job(NAME, time), "Complete", time).await;
    }
    // 20 January is a Wednesday. One run at 09:00, although two expressions name it.
    tick(&world, NAME, "2038-01-20T08:00:00Z").await;
    assert_eq!(jobs(&world, NAME).await.last(), Some(&job(NAME, "2038-01-20T08:00:00Z")));
    world.patch::<CronTab>(NAME, json!({"spec": {"cronSpec": "@daily; 0 9 * * 7"}})).await;
    let refused = world.until_condition::<CronTab>(NAME, "Ready", "False", "InvalidSchedule").await;
    let said = condition(&refused, "Ready").map(|it| it.message.clone());
    assert!(said.is_some_and(|it| it.contains("expression 2, day of week, character 17: 7 is too large")));
    tick(&world, NAME, "2038-02-01T08:00:00Z").await;
    assert_eq!(jobs(&world, NAME).await.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_operator_writes_nothing_after_a_restart() {
    let Some(mut world) = world("2037-11-20T09:30:00Z").await else { return };
    begin(&world, NAME, &json!({"cronSpec": "0 * * * *"})).await;
    tick(&world, NAME, "2037-11-20T10:00:00Z").await;
    look(&world, NAME).await;
    let settled = world.requests();
    world.run(&["--resync-interval", "1s"]);
    world
        .until("resyncs of the new process", async || {
            let log = world.operator.as_ref().map(manager_testing::Process::log).unwrap_or_default();
            (log.matches("\"msg\":\"Resync\"").count() >= 3).then_some(())
        })
        .await;
    let after = world.requests();
    assert_eq!(after.writes(), settled.writes(), "{after:?}\n{settled:?}");
    assert_eq!(after.count("get jobs"), settled.count("get jobs"));
    let value: Value = serde_json::to_value(world.get::<CronTab>(NAME).await).expect("JSON");
    assert_eq!(value["status"]["fence"], Value::Null, "without an election there is no fence");
}
