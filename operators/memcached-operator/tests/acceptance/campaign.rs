//! Runs the life of a Memcached many times, each time with another fault between operator and API server.
//!
//! `FAULT_PLANS=all` runs all plans; `FAULT_PLANS='after create services.core #1 -> drop'` runs only that plan.

use k8s_openapi::api::{core::v1::Pod, core::v1::Service, policy::v1::PodDisruptionBudget};
use kube::api::DeleteParams;
use manager_testing::{Campaign, Subject, World};
use memcached_operator::MemcachedOperator;
use serde_json::json;

use crate::kit::{NAME, converged, deployment, memcached, pod, roll_out, uid, until_condition};

#[derive(Debug, Clone)]
struct Memcacheds;

impl Subject for Memcacheds {
    fn operator(&self) -> &'static dyn manager::Operator {
        &MemcachedOperator
    }

    fn binary(&self) -> &'static str {
        env!("CARGO_BIN_EXE_memcached-operator")
    }

    fn kinds(&self) -> &'static [&'static str] {
        &[
            "memcached.cache.example.com/v1/Memcached",
            "apps/v1/Deployment",
            "v1/Service",
            "policy/v1/PodDisruptionBudget",
        ]
    }

    async fn live(&self, world: &World) {
        converged(world).await;

        // Change the template and the size, then delete a child.
        world.apply(&memcached(NAME, &json!({"size": 4, "config": {"memoryMB": 128}}))).await;
        deployment(world, NAME, 4).await;
        pod(world, NAME, &format!("{NAME}-d"), true).await;
        roll_out(world, NAME, 4).await;
        until_condition(world, NAME, "Ready", "True", "Ready").await;
        let service = world.get::<Service>(NAME).await.expect("a Service");
        world.delete::<Service>(NAME).await;
        world
            .until("another Service", async || {
                world.get::<Service>(NAME).await.filter(|found| uid(found) != uid(&service))
            })
            .await;

        // At size 0 the operator deletes the budget.
        world.apply(&memcached(NAME, &json!({"size": 0, "config": {"memoryMB": 128}}))).await;
        deployment(world, NAME, 0).await;
        for name in ["a", "b", "c", "d"] {
            let now = DeleteParams::default().grace_period(0);
            world.api::<Pod>().delete(&format!("{NAME}-{name}"), &now).await.expect("deleted");
        }
        roll_out(world, NAME, 0).await;
        until_condition(world, NAME, "Ready", "True", "ScaledToZero").await;
        world.until("no budget", async || world.get::<PodDisruptionBudget>(NAME).await.is_none().then_some(())).await;
        let nodes =
            async || world.get::<memcached_operator::Memcached>(NAME).await?.status?.nodes.is_empty().then_some(());
        world.until("no nodes", nodes).await;
    }
}

/// Faults that are permanent or repeat, each with its row in the list of faults.
const ROWS: &[(&str, &str)] = &[
    ("nothing", ""),
    ("A5", "before write * #1..5 -> answer 409"),
    ("A6", "before write * #1..3 -> answer 429 retry-after=\"1\""),
    ("A8", "after write deployments.apps -> drop"),
    ("A8", "after write memcacheds.memcached.cache.example.com/status #1..3 -> drop"),
    ("A9", "before write * -> delay 300ms; after list * -> delay 500ms"),
    ("A9", "after write * -> trickle 50 5ms; after list * -> trickle 100 5ms"),
    ("A10", "after list * #1 -> truncate 100; after watch * #2 -> truncate 30"),
    ("A10", "after watch * -> trickle 7 0ms"),
    ("A10", "frame * * #2 -> join; frame * * #5 -> replace \"{\\\"type\\\":\""),
    ("A16", "before * * #3 -> drop; before * * #9 -> drop; before * * #17 -> drop"),
    ("W2", "frame MODIFIED deployments.apps -> hold"),
    ("W2", "frame * pods.core -> hold"),
    ("W3", "before watch * #1..4 -> answer 410; frame * * #9 -> gone"),
    ("W4", "after watch * #1..10 -> cut"),
    ("W4", "after watch * -> cut 1"),
    ("W4", "after watch * -> cut 2"),
    ("W5", "frame * * -> duplicate"),
    ("W7", "frame DELETED services.core -> gone"),
    ("W8", "frame * * own -> delay 600ms"),
    ("W9", "frame BOOKMARK * -> drop"),
];

#[tokio::test(flavor = "multi_thread")]
async fn t17_crash_around_any_write_converges_without_duplicates() {
    let Some(campaign) = Campaign::begin(Memcacheds).await else { return };
    campaign.run("crashes", campaign.crashes(), 9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn write_with_an_error_answer_is_retried() {
    let Some(campaign) = Campaign::begin(Memcacheds).await else { return };
    campaign.run("errors", campaign.errors(), 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_duplicate_or_lost_watch_events_do_no_harm() {
    let Some(campaign) = Campaign::begin(Memcacheds).await else { return };
    campaign.run("events", campaign.events(), 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permanent_faults_only_delay_convergence() {
    let Some(campaign) = Campaign::begin(Memcacheds).await else { return };
    let rows = ROWS.iter().map(|(row, plan)| plan.parse().unwrap_or_else(|error| panic!("{row}: {error}"))).collect();
    campaign.run("rows", rows, 7).await;
}
