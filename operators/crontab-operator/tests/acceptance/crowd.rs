//! Many objects that are due in the same minute. `CRONTAB_CROWD=1000` runs this test with 1000 objects, for more than a minute.

use std::time::Duration;

use crontab_operator::CronTab;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use serde_json::json;

use crate::kit::{crontab, quiet_world};

/// The promised limit for a thousand objects on two cores.
const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn t18_many_due_runs_start_in_time() {
    let Some(count) = std::env::var("CRONTAB_CROWD").ok().and_then(|count| count.parse::<usize>().ok()) else {
        return skip::unasked("takes minutes: set CRONTAB_CROWD=1000");
    };
    let Some(mut world) = quiet_world().await else { return };
    // Suspended until all objects exist.
    let held = json!({"cronSpec": "* * * * *", "suspend": true, "concurrencyPolicy": "Allow", "maxActiveJobs": 100});
    let applied = stream::iter(0..count).map(|number| {
        let (world, yaml) = (&world, crontab(&format!("c{number}"), &held));
        async move { drop(world.apply(&yaml).await) }
    });
    applied.buffer_unordered(8).collect::<Vec<_>>().await;
    world.run(&[]);
    let ready = async || {
        let all = world.list::<CronTab>().await;
        all.iter().all(|crontab| crontab.status.is_some()).then_some(())
    };
    world.within(Duration::from_mins(30), "all are known", ready).await;
    let resumed = stream::iter(0..count).map(|number| {
        let world = &world;
        async move { drop(world.patch::<CronTab>(&format!("c{number}"), json!({"spec": {"suspend": false}})).await) }
    });
    resumed.buffer_unordered(8).collect::<Vec<_>>().await;
    let resumed = Timestamp::now();
    // The first minute that begins for all of them.
    let minute = (resumed.as_second() / 60 + 1) * 60;
    let due = async || {
        let jobs = world.list::<Job>().await;
        let ours: Vec<Job> = jobs.into_iter().filter(|job| job.name_any().ends_with(&format!("-{minute}"))).collect();
        (ours.len() == count).then_some(ours)
    };
    let jobs = world.within(Duration::from_mins(30), "every run of that minute", due).await;
    let mut delays: Vec<i64> =
        jobs.iter().filter_map(|job| Some(job.metadata.creation_timestamp.as_ref()?.0.as_second() - minute)).collect();
    delays.sort_unstable();
    let (p50, p99) = (delays[count / 2], delays[count * 99 / 100]);
    println!("{count} CronTabs: Jobs created after {p50} s (p50), {p99} s (p99), {} s (all)", delays[count - 1]);
    let limit = LIMIT.as_secs_f64() * (f64::from(u32::try_from(count).expect("not so many")) / 1000.0).max(1.0);
    assert!(std::time::Duration::from_secs(p99.unsigned_abs()).as_secs_f64() <= limit, "{p99} s");
}
