//! The same scenario of a CronTab, repeated with a different fault between operator and API server each time.
//!
//! `FAULT_PLANS=all` runs every plan; `FAULT_PLANS='after create jobs.batch #1 -> drop'` runs only that one.

use crontab_operator::{CronTab, CronTabOperator};
use manager_testing::{Campaign, Subject, World};
use serde_json::{Value, json};

use crate::kit::{BINARY, NAME, at, begin, finish, job, jobs, run, tick};

#[derive(Debug, Clone)]
struct CronTabs;

const TIMES: [&str; 3] = ["2037-11-20T10:00:00Z", "2037-11-20T11:00:00Z", "2037-11-20T12:00:00Z"];

impl Subject for CronTabs {
    fn operator(&self) -> &'static dyn manager::Operator {
        &CronTabOperator
    }

    fn binary(&self) -> &'static str {
        BINARY
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["stable.example.com/v1/CronTab", "batch/v1/Job"]
    }

    async fn live(&self, world: &World) {
        world.set_clock(at("2037-11-20T09:30:00Z"));
        let spec = json!({"cronSpec": "0 * * * *", "concurrencyPolicy": "Replace", "successfulJobsHistoryLimit": 0});
        begin(world, NAME, &spec).await;

        // A run that completes and whose Job is deleted; a run that is replaced; and the run that replaces it.
        started(world, TIMES[0]).await;
        finish(world, &job(NAME, TIMES[0]), "Complete", TIMES[0]).await;
        world.until("its Job is deleted", async || jobs(world, NAME).await.is_empty().then_some(())).await;
        started(world, TIMES[1]).await;
        run(world, &job(NAME, TIMES[1]), TIMES[1]).await;
        started(world, TIMES[2]).await;
        let known = async || {
            let status = world.get::<CronTab>(NAME).await?.status?;
            (status.active.len() == 1 && status.last_schedule_time == Some(at(TIMES[2]))).then_some(())
        };
        world.until("the status lists the run", known).await;
    }

    fn mask(&self, object: &mut Value) {
        // The token of the test's last reconcile request differs from life to life.
        object["metadata"]["annotations"]["stable.example.com/reconcile-requested-at"] = Value::Null;
        object["status"]["lastHandledReconcileAt"] = Value::Null;
    }
}

async fn started(world: &World, time: &str) {
    tick(world, NAME, time).await;
    world
        .until("the run has its Job and no other", async || {
            (jobs(world, NAME).await == [job(NAME, time)]).then_some(())
        })
        .await;
}

/// Faults that last, or occur more than once.
const ROWS: &[(&str, &str)] = &[
    ("nothing", ""),
    ("t08: stored, and the answer is lost", "after create jobs.batch -> drop"),
    ("the status is never answered at once", "after patch crontabs.stable.example.com/status #1..4 -> drop"),
    ("a conflict at every first write", "before write * #1..4 -> answer 409"),
    ("the cache is behind", "frame * jobs.batch -> hold"),
    ("the cache is behind on the object", "frame MODIFIED crontabs.stable.example.com own -> delay 600ms"),
    ("everything twice", "frame * * -> duplicate"),
    ("the past is gone", "before watch * #1..4 -> answer 410"),
];

#[tokio::test(flavor = "multi_thread")]
async fn t08_every_run_has_one_job_under_any_fault() {
    let Some(campaign) = Campaign::begin(CronTabs).await else { return };
    let rows = ROWS.iter().map(|(row, plan)| plan.parse().unwrap_or_else(|error| panic!("{row}: {error}"))).collect();
    campaign.run("crashes", campaign.crashes(), 8).await;
    campaign.run("errors", campaign.errors(), 4).await;
    campaign.run("rows", rows, 4).await;
}
