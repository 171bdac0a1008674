//! Acceptance tests of runs: their Jobs, and how they end.

use crontab_operator::CronTab;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use manager_testing::{condition, contains};
use serde_json::json;

use crate::kit::{NAME, at, begin, finish, job, jobs, kubectl, look, quiet_world, run, table, tick, told, world};

const FRIDAY: &str = "2037-11-20T00:00:00Z";

#[tokio::test(flavor = "multi_thread")]
async fn t02_t03_t04_sample_starts_one_job_and_reports_image_pull() {
    let Some(world) = world("2037-11-19T12:34:56Z").await else { return };
    begin(&world, NAME, &json!({})).await;
    let waiting = look(&world, NAME).await;
    assert_eq!(waiting.status.and_then(|it| it.next_schedule_time), Some(at(FRIDAY)));
    assert!(jobs(&world, NAME).await.is_empty());

    let before = world.requests();
    let started = tick(&world, NAME, FRIDAY).await;
    let name = "my-new-cron-object-2142288000";
    assert_eq!(jobs(&world, NAME).await, [name]);
    let live: Job = world.get(name).await.expect("the Job");
    let uid = started.metadata.uid.clone();
    let labels = json!({
        "app.kubernetes.io/name": "crontab", "app.kubernetes.io/instance": NAME,
        "app.kubernetes.io/managed-by": "crontab-operator",
    });
    let container = json!({
        "name": "cron", "image": "my-awesome-cron-image", "env": [{"name": "CRON_SCHEDULED_AT", "value": FRIDAY}],
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true},
    });
    let wanted = json!({
        "metadata": {
            "labels": labels, "annotations": {"stable.example.com/scheduled-at": FRIDAY},
            "ownerReferences": [{
                "apiVersion": "stable.example.com/v1", "kind": "CronTab", "name": NAME, "uid": uid, "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "completions": 1, "parallelism": 1, "completionMode": "Indexed", "backoffLimit": 6,
            "template": {"metadata": {"labels": labels}, "spec": {
                "restartPolicy": "OnFailure", "automountServiceAccountToken": false, "enableServiceLinks": false,
                "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [container],
            }},
        },
    });
    contains(&serde_json::to_value(&live).expect("JSON"), &wanted, "");
    let status = started.status.expect("a status");
    assert_eq!((status.active[0].name.as_str(), status.active_jobs), (name, 1));
    assert_eq!(
        (status.last_schedule_time, status.next_schedule_time),
        (Some(at(FRIDAY)), Some(at("2037-11-20T00:01:00Z")))
    );
    let after = world.requests();
    let sent = |what: &str| after.count(what) - before.count(what);
    println!(
        "one run: {} writes, {} lists, {} reads",
        after.writes() - before.writes(),
        sent("list jobs"),
        sent("get jobs")
    );
    assert_eq!((sent("create jobs"), sent("list jobs"), sent("get jobs")), (1, 0, 0));
    assert!(sent("patch crontabs/status") <= 2, "one for the run, and one that handles the test's reconcile request");

    let printed = table(&world);
    let columns: Vec<&str> =
        printed.lines().next().unwrap_or_default().split("  ").filter(|it| !it.is_empty()).map(str::trim).collect();
    assert_eq!(
        columns,
        ["NAME", "SCHEDULE", "SUSPEND", "STATUS", "ACTIVE", "LAST SCHEDULE", "NEXT", "AGE"],
        "{printed}"
    );
    for cell in ["* * * * */5", "Scheduled", "2037-11-20T00:01:00Z"] {
        assert!(printed.contains(cell), "{printed}");
    }

    // t04: its pod cannot pull the image for an hour.
    let template = &live.spec.expect("a spec").template;
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template.metadata, "spec": template.spec});
    pod["metadata"]["name"] = json!("cron-0");
    world.create::<Pod>(pod).await;
    world.container_state("cron-0", json!({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}})).await;
    for minute in ["01", "02", "17", "59"] {
        tick(&world, NAME, &format!("2037-11-20T00:{minute}:00Z")).await;
    }
    let stuck = world.until_condition::<CronTab>(NAME, "Degraded", "True", "ImagePullFailed").await;
    let message = "Pod cron-0: cannot pull image \"my-awesome-cron-image\": not found";
    assert_eq!(condition(&stuck, "Degraded").map(|it| it.message.as_str()), Some(message));
    assert_eq!(condition(&stuck, "Ready").map(|it| it.reason.as_str()), Some("Scheduled"), "the schedule stays valid");
    assert!(table(&world).contains("ImagePullFailed"), "{}", table(&world));
    assert_eq!(jobs(&world, NAME).await, [name], "the cluster is not flooded");
    world.until_event(NAME, "Normal", "JobAlreadyActive").await;
    assert_eq!(told(&world, NAME, "JobAlreadyActive").await, 1);
    let status = look(&world, NAME).await.status.expect("a status");
    assert_eq!(status.last_missed_time, Some(at("2037-11-20T00:59:00Z")));
    assert_eq!(status.last_missed_reason.as_deref(), Some("JobAlreadyActive"));
    assert!(world.requests().forbidden().is_empty(), "{:?}", world.requests());
}

#[tokio::test(flavor = "multi_thread")]
async fn t06_allow_forbid_and_replace() {
    let Some(world) = world("2037-11-20T09:30:00Z").await else { return };
    let (first, second) = ("2037-11-20T10:00:00Z", "2037-11-20T11:00:00Z");
    for (policy, left) in [("Allow", vec![first, second]), ("Forbid", vec![first]), ("Replace", vec![second])] {
        let name = policy.to_lowercase();
        world.set_clock(at("2037-11-20T09:30:00Z"));
        begin(&world, &name, &json!({"cronSpec": "0 * * * *", "concurrencyPolicy": policy})).await;
        tick(&world, &name, first).await;
        run(&world, &job(&name, first), first).await;
        let crontab = tick(&world, &name, second).await;
        let left: Vec<String> = left.into_iter().map(|time| job(&name, time)).collect();
        assert_eq!(jobs(&world, &name).await, left, "{policy}");
        let active: Vec<String> = crontab.status.expect("a status").active.into_iter().map(|it| it.name).collect();
        assert_eq!(active, left, "{policy}");
        let reason = match policy {
            "Forbid" => "JobAlreadyActive",
            "Replace" => "SuccessfulDelete",
            _ => "SuccessfulCreate",
        };
        world.until_event(&name, "Normal", reason).await;
        assert_eq!(told(&world, &name, "MissingJob").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t10_scaling_applies_to_the_next_run() {
    let Some(world) = world("2037-11-20T09:30:00Z").await else { return };
    begin(&world, NAME, &json!({"cronSpec": "0 * * * *", "concurrencyPolicy": "Allow"})).await;
    tick(&world, NAME, "2037-11-20T10:00:00Z").await;
    let scale = |replicas: &str| {
        let arguments = ["scale", "ct/my-new-cron-object", "--namespace", &world.namespace, replicas];
        assert!(world.cluster.kubectl(arguments).output().expect("kubectl").status.success());
    };
    scale("--replicas=3");
    tick(&world, NAME, "2037-11-20T11:00:00Z").await;
    let pods = async |time: &str| {
        let spec = world.get::<Job>(&job(NAME, time)).await.and_then(|it| it.spec).expect("a Job");
        (spec.completions, spec.parallelism, spec.completion_mode)
    };
    let indexed = || Some("Indexed".to_owned());
    assert_eq!(pods("2037-11-20T11:00:00Z").await, (Some(3), Some(3), indexed()));
    assert_eq!(pods("2037-11-20T10:00:00Z").await, (Some(1), Some(1), indexed()), "the active Job is unchanged");
    scale("--replicas=0");
    world.until_condition::<CronTab>(NAME, "Ready", "True", "ScaledToZero").await;
    tick(&world, NAME, "2037-11-20T13:00:00Z").await;
    assert_eq!(jobs(&world, NAME).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn t11_history_respects_limits_and_reports_last_failure() {
    let Some(world) = world("2037-11-20T09:30:00Z").await else { return };
    begin(&world, NAME, &json!({"cronSpec": "0 * * * *"})).await;
    for hour in 10..18 {
        let time = format!("2037-11-20T{hour}:00:00Z");
        tick(&world, NAME, &time).await;
        finish(&world, &job(NAME, &time), if hour % 3 == 1 { "Failed" } else { "Complete" }, &time).await;
        world
            .until("it is not active any more", async || {
                let status = world.get::<CronTab>(NAME).await?.status?;
                status.active.is_empty().then_some(())
            })
            .await;
    }
    // 10, 13 and 16 failed; 11, 12, 14, 15 and 17 completed.
    let kept: Vec<String> = [14, 15, 16, 17].map(|hour| job(NAME, &format!("2037-11-20T{hour}:00:00Z"))).into();
    world.until("the newest are left", async || (jobs(&world, NAME).await == kept).then_some(())).await;
    let status = look(&world, NAME).await.status.expect("a status");
    assert_eq!(status.last_successful_time, Some(at("2037-11-20T17:00:00Z")));
    assert_eq!(status.last_failure.map(|it| it.job), Some(job(NAME, "2037-11-20T16:00:00Z")));
    world.until_event(NAME, "Normal", "SawCompletedJob").await;
    let wait_for = |result: &str| {
        let condition = format!("--for=condition=LastRunSucceeded{result}");
        kubectl(&world, &["wait", &condition, &format!("ct/{NAME}"), "--timeout=0"]);
    };
    kubectl(&world, &["wait", "--for=jsonpath={.status.activeJobs}=0", &format!("ct/{NAME}"), "--timeout=0"]);
    wait_for("");

    let failed = "2037-11-20T18:00:00Z";
    tick(&world, NAME, failed).await;
    finish(&world, &job(NAME, failed), "Failed", failed).await;
    let degraded = world.until_condition::<CronTab>(NAME, "Degraded", "True", "LastRunFailed").await;
    let message = format!("job {} failed: BackoffLimitExceeded", job(NAME, failed));
    assert_eq!(condition(&degraded, "Degraded").map(|it| &it.message), Some(&message));
    assert_eq!(condition(&degraded, "LastRunSucceeded").map(|it| &it.message), Some(&message));
    wait_for("=False");
    assert!(table(&world).contains("LastRunFailed"), "{}", table(&world));

    // The cells are ages, which depend on the clock of the API server.
    let wide = kubectl(&world, &["get", "ct", "--output", "wide"]);
    let (head, row) = wide.split_once('\n').expect("two lines");
    for column in ["LAST SUCCESS", "LAST FAILURE"] {
        let start = head.find(column).unwrap_or_else(|| panic!("no {column}: {wide}"));
        let cell = row[start..].split("  ").next().unwrap_or_default().trim();
        assert!(!["", "<none>"].contains(&cell), "{column}: {wide}");
        assert!(!table(&world).contains(column), "only in the wide table");
    }
    assert!(row.trim_end().ends_with(&message), "the reason in STATUS has its message: {wide}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t13_unowned_job_is_left_alone_and_the_next_run_starts() {
    let Some(world) = world("2037-11-20T09:30:00Z").await else { return };
    begin(&world, NAME, &json!({"cronSpec": "0 * * * *"})).await;
    let taken = job(NAME, "2037-11-20T10:00:00Z");
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]});
    let unowned = json!({"metadata": {"name": taken}, "spec": {"template": {"spec": pod}}});
    let uid = world.create::<Job>(unowned).await.metadata.uid;
    tick(&world, NAME, "2037-11-20T10:00:00Z").await;
    let note = world.until_event(NAME, "Warning", "JobNameConflict").await;
    assert_eq!(
        note,
        format!(
            "Job \"{taken}\" already exists and is not managed by CronTab; the run at 2037-11-20T10:00:00Z is skipped"
        )
    );
    tick(&world, NAME, "2037-11-20T11:00:00Z").await;
    assert_eq!(jobs(&world, NAME).await, [job(NAME, "2037-11-20T11:00:00Z")]);
    assert_eq!(world.get::<Job>(&taken).await.and_then(|it| it.metadata.uid), uid);
}

#[tokio::test(flavor = "multi_thread")]
async fn t17_deleted_job_is_reported_missing_and_not_restarted() {
    let Some(world) = world("2037-11-20T09:30:00Z").await else { return };
    begin(&world, NAME, &json!({"cronSpec": "0 * * * *"})).await;
    tick(&world, NAME, "2037-11-20T10:00:00Z").await;
    let name = job(NAME, "2037-11-20T10:00:00Z");
    let background = kube::api::DeleteParams::background();
    drop(world.api::<Job>().delete(&name, &background).await.expect("deleted"));
    assert_eq!(world.until_event(NAME, "Normal", "MissingJob").await, format!("Active job went missing: {name}"));
    look(&world, NAME).await;
    assert!(jobs(&world, NAME).await.is_empty());
    tick(&world, NAME, "2037-11-20T11:00:00Z").await;
    assert_eq!(jobs(&world, NAME).await, [job(NAME, "2037-11-20T11:00:00Z")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_now_annotation_starts_one_job() {
    let Some(world) = world("2037-11-20T09:30:00Z").await else { return };
    begin(&world, NAME, &json!({"cronSpec": "0 12 * * *"})).await;
    let ask = json!({"metadata": {"annotations": {"stable.example.com/run-now": "please"}}});
    world.patch::<CronTab>(NAME, ask).await;
    world.until("a Job", async || (jobs(&world, NAME).await.len() == 1).then_some(())).await;
    let asked: Job = world.get(&jobs(&world, NAME).await[0]).await.expect("the Job");
    assert_eq!(asked.metadata.annotations, None);
    let status = look(&world, NAME).await.status.expect("a status");
    assert_eq!((status.last_run_now.as_deref(), status.last_schedule_time), (Some("please"), None));
    assert_eq!(jobs(&world, NAME).await.len(), 1, "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn weakest_security_profile_flag_refuses_weaker_ones() {
    let Some(mut world) = quiet_world().await else { return };
    world.set_clock(at("2037-11-19T12:34:56Z"));
    world.run(&["--weakest-security-profile", "RootAllowed"]);
    begin(&world, NAME, &json!({"securityProfile": "RootAllowed"})).await;
    world.patch::<CronTab>(NAME, json!({"spec": {"securityProfile": "Baseline"}})).await;
    world.until_condition::<CronTab>(NAME, "Degraded", "True", "InvalidSpec").await;
    tick(&world, NAME, FRIDAY).await;
    assert!(jobs(&world, NAME).await.is_empty(), "no pods of a forbidden profile");
    world.patch::<CronTab>(NAME, json!({"spec": {"securityProfile": "RootAllowed"}})).await;
    world.until_condition::<CronTab>(NAME, "Ready", "True", "Scheduled").await;
    let next = "2037-11-20T00:01:00Z";
    tick(&world, NAME, next).await;
    assert_eq!(jobs(&world, NAME).await, [job(NAME, next)], "a run that was due meanwhile is not made up");
}
