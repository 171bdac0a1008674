//! The status is fenced: the API server refuses status writes of a former leader, even if it still believes that it leads.

use crontab_operator::CronTab;
use kube::api::{Patch, PatchParams};
use manager_testing::World;
use serde_json::{Value, json};

use crate::kit::{NAME, at, begin, job, jobs, look, quiet_world, tick};

async fn write(world: &World, status: Value) -> Result<CronTab, kube::Error> {
    let patch = Patch::Merge(json!({"status": status}));
    world.api::<CronTab>().patch_status(NAME, &PatchParams::default(), &patch).await
}

#[tokio::test(flavor = "multi_thread")]
async fn t14_status_write_of_a_former_leader_is_rejected() {
    let Some(world) = quiet_world().await else { return };
    world.set_clock(at("2037-11-20T09:30:00Z"));
    let elect = ["--leader-elect", "--leader-election-namespace", &world.namespace];
    let mut first = world.replica("-first", &elect);
    begin(&world, NAME, &json!({"cronSpec": "0 * * * *"})).await;
    let crontab = tick(&world, NAME, "2037-11-20T10:00:00Z").await;
    let former = crontab.status.and_then(|it| it.fence).expect("a fence");

    assert_eq!(first.terminate().code(), Some(0));
    let _second = world.replica("-second", &elect);
    let crontab = tick(&world, NAME, "2037-11-20T11:00:00Z").await;
    let fence = crontab.status.and_then(|it| it.fence).expect("a fence");
    assert_eq!(fence.lease, former.lease);
    assert!(fence.epoch > former.epoch, "{fence:?} after {former:?}");

    // A late write of the first leader, with its fence; and one without a fence.
    let late = json!({"lastScheduleTime": "2037-11-20T10:00:00Z", "fence": former});
    for late in [late, json!({"lastScheduleTime": null, "fence": null})] {
        let error = write(&world, late).await.expect_err("is refused").to_string();
        assert!(error.contains("written by a former leader"), "{error}");
    }
    look(&world, NAME).await;
    // The run of 11:00 was skipped, because the run of 10:00 is still active.
    assert_eq!(jobs(&world, NAME).await, [job(NAME, "2037-11-20T10:00:00Z")]);
    write(&world, json!({"fence": {"lease": "another", "epoch": 0}})).await.expect("another lease starts anew");
}
