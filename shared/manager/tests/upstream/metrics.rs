//! The metrics of running controllers.

use std::{collections::BTreeMap, future::pending, sync::Arc};

use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use manager::{Action, Controller, FleetMetrics, Manager, Pods, harness::Harness};
use model_apiserver::Model;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    kit::{Calls, MOMENT, NO_RESYNC, Toy, Toys, change, failure, keep, model, plan, put, run, run_as, until, value},
    namespaces::filled,
};

fn results(scrape: &str) -> Vec<(&'static str, Option<f64>)> {
    let of = |result| (result, value(scrape, &total(result)));
    ["success", "error", "requeue", "requeue_after"].into_iter().map(of).collect()
}

fn total(result: &str) -> String {
    format!("controller_runtime_reconcile_total{{controller=\"toy\",result=\"{result}\"}}")
}

#[tokio::test(start_paused = true)]
async fn all_result_series_exist_from_the_start() {
    let harness = run(&model(), &[], |_, _| async { Ok(Action::Done) });
    let zero = Some(0.0);
    assert_eq!(
        results(&harness.scrape()),
        [("success", zero), ("error", zero), ("requeue", zero), ("requeue_after", zero)]
    );
}

#[tokio::test(start_paused = true)]
async fn each_result_is_counted() {
    let model = model();
    put(&model, &["success", "error", "later"]);
    let calls = Calls::default();
    let noted = calls.clone();
    let harness = run(&model, &[], move |toy, _| {
        noted.note(&toy);
        async move {
            match &*toy.name_any() {
                "error" => Err(failure()),
                "later" => Ok(Action::After(MOMENT / 4)),
                _ => Ok(Action::Done),
            }
        }
    });
    sleep(MOMENT).await;
    let scrape = harness.scrape();
    let counted = |name: &str| u32::try_from(calls.of(name)).ok().map(f64::from);
    assert!(calls.of("error") > 1 && calls.of("later") > 1);
    assert_eq!(
        results(&scrape),
        [
            ("success", Some(1.0)),
            ("error", counted("error")),
            ("requeue", Some(0.0)),
            ("requeue_after", counted("later"))
        ]
    );
    let observed = value(&scrape, r#"controller_runtime_reconcile_time_seconds_count{controller="toy"}"#);
    assert_eq!(observed, u32::try_from(calls.count()).ok().map(f64::from));
}

/// Puts objects with a true condition `Ready` into the model.
fn put_ready(model: &Model, numbers: std::ops::Range<usize>) {
    for number in numbers {
        model.put(json!({
            "apiVersion": "tests.example.com/v1", "kind": "Toy",
            "metadata": {"name": format!("toy-{number}"), "namespace": "default", "generation": 1}, "spec": {"size": 1},
            "status": {"conditions": [{
                "type": "Ready", "status": "True", "reason": "Ready", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        }));
    }
}

const NAMED: &str = "operator_resource_condition{";
const COUNTED: &str = r#"operator_resource_conditions{kind="Toy",status="True",type="Ready"}"#;

#[tokio::test(start_paused = true)]
async fn a_deleted_object_leaves_no_series_behind() {
    let model = model();
    put_ready(&model, 0..2);
    let harness = run(&model, &[], |_, _| async { Ok(Action::Done) });
    sleep(MOMENT).await;
    let before = harness.scrape();
    assert_eq!(before.matches("name=\"toy-1\"").count(), 1, "{before}");
    assert_eq!(value(&before, COUNTED), Some(2.0));

    model.take("toys.tests.example.com", "default", "toy-1").expect("the object existed");
    sleep(MOMENT).await;
    let after = harness.scrape();
    assert!(!after.contains("toy-1"), "{after}");
    assert_eq!(after.matches(NAMED).count(), 1, "{after}");
    assert_eq!(value(&after, COUNTED), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn condition_metrics_aggregate_above_max_objects() {
    let model = model();
    put_ready(&model, 0..3);
    let harness = run(&model, &["--metrics-max-objects=3"], |_, _| async { Ok(Action::Done) });
    sleep(MOMENT).await;
    let scrape = harness.scrape();
    assert_eq!(scrape.matches(NAMED).count(), 3, "{scrape}");
    assert_eq!(value(&scrape, r#"operator_resource_condition_aggregated{kind="Toy"}"#), Some(0.0));

    put_ready(&model, 3..4);
    sleep(MOMENT).await;
    let four = harness.scrape();
    assert_eq!(four.matches(NAMED).count(), 0, "{four}");
    assert_eq!(value(&four, r#"operator_resource_condition_aggregated{kind="Toy"}"#), Some(1.0));
    assert_eq!(value(&four, COUNTED), Some(4.0));

    put_ready(&model, 4..200);
    sleep(MOMENT).await;
    let many = harness.scrape();
    assert_eq!(value(&many, COUNTED), Some(200.0));
    assert_eq!(many.lines().count(), four.lines().count(), "as many series for 200 objects as for four");
}

/// Starts a controller with the gauge `toy_operator_parts`.
fn run_fleet(model: &Model, flags: &[&str]) -> Harness {
    let setup = |manager: &mut Manager| {
        let fleet = FleetMetrics::new::<Toy>(manager.metrics(), "toy_operator", "parts");
        let parts = |toy: &Toy| Pods { desired: toy.spec.size, ready: 2, updated: 0 };
        let controller = Controller::of::<Toy>()
            .on_scrape(move |toys, _| fleet.show(toys, parts))
            .reconcile(|_: Arc<Toy>, _| async { Ok(Action::Done) });
        manager.add(controller);
    };
    let (flags, clock) = ([flags, &[NO_RESYNC]].concat(), model.clone());
    Harness::start(&Toys(setup), &flags, model.client_named("toys"), move || clock.now())
}

/// The series of the gauge, with their values.
fn parts(scrape: &str) -> Vec<&str> {
    scrape.lines().filter_map(|line| line.strip_prefix("toy_operator_parts{")).collect()
}

#[tokio::test(start_paused = true)]
async fn fleet_metrics_are_sums_above_max_objects() {
    let model = model();
    put_ready(&model, 0..2);
    let harness = run_fleet(&model, &["--metrics-max-objects=2"]);
    sleep(MOMENT).await;
    let named = [
        r#"name="toy-0",namespace="default",state="desired"} 1"#,
        r#"name="toy-0",namespace="default",state="ready"} 2"#,
        r#"name="toy-0",namespace="default",state="updated"} 0"#,
        r#"name="toy-1",namespace="default",state="desired"} 1"#,
        r#"name="toy-1",namespace="default",state="ready"} 2"#,
        r#"name="toy-1",namespace="default",state="updated"} 0"#,
    ];
    for _ in 0..2 {
        assert_eq!(parts(&harness.scrape()), named, "each scrape has all series");
    }

    put_ready(&model, 2..5);
    sleep(MOMENT).await;
    let sums = [
        r#"name="",namespace="",state="desired"} 5"#,
        r#"name="",namespace="",state="ready"} 10"#,
        r#"name="",namespace="",state="updated"} 0"#,
    ];
    assert_eq!(parts(&harness.scrape()), sums);

    for name in ["toy-2", "toy-3", "toy-4"] {
        model.take("toys.tests.example.com", "default", name).expect("the object existed");
    }
    sleep(MOMENT).await;
    assert_eq!(parts(&harness.scrape()), named);
}

#[tokio::test(start_paused = true)]
async fn child_writes_and_drift_repairs_are_counted_by_kind() {
    let model = model();
    let harness = run(&model, &[], |toy, context| async move {
        let ports = json!([{"name": "a", "port": toy.spec.size, "protocol": "TCP", "targetPort": toy.spec.size}]);
        let service = json!({"metadata": {"name": toy.name_any()}, "spec": {"ports": ports}});
        let service: Option<Service> = serde_json::from_value(service).ok().filter(|_| toy.spec.size > 0);
        context.apply_or_delete(service).await?;
        Ok(Action::Done)
    });
    let counted = || {
        let scrape = harness.scrape();
        let writes =
            |op| value(&scrape, &format!("toy_operator_children_writes_total{{child=\"Service\",op=\"{op}\"}}"));
        let drift = value(&scrape, "toy_operator_drift_repairs_total{child=\"Service\"}");
        [writes("create"), writes("update"), writes("delete"), drift]
            .map(|it| it.map(|it| format!("{it}")).unwrap_or_default())
    };
    sleep(MOMENT).await;
    assert_eq!(counted(), ["0", "0", "0", "0"], "all series exist from the start");
    put(&model, &["a"]);
    sleep(MOMENT).await;
    assert_eq!(counted(), ["1", "0", "0", "0"]);
    change(&model, "a", 2).await;
    sleep(MOMENT).await;
    assert_eq!(counted(), ["1", "1", "0", "0"]);
    let services: Api<Service> = Api::namespaced(model.client(), "default");
    let theirs = json!({"spec": {"ports": [{"name": "a", "port": 9, "protocol": "TCP", "targetPort": 9}]}});
    services.patch("a", &PatchParams::default(), &Patch::Merge(theirs)).await.expect("the patch is accepted");
    sleep(MOMENT).await;
    assert_eq!(counted(), ["1", "2", "0", "1"]);
    change(&model, "a", 0).await;
    sleep(MOMENT).await;
    assert_eq!(counted(), ["1", "2", "1", "1"]);
}

/// Gauges that may differ between a former leader and a process that has never led, with the reasons.
const OF_EACH_PROCESS: &[(&str, &str)] = &[
    ("process_", "the machine's figures about the process"),
    ("operator_informer_last_event_timestamp_seconds", "each process has its own watches"),
    ("workqueue_depth", "a standby collects what the workers of its next term have to look at"),
];

/// The value of each gauge of a scrape, without those of [`OF_EACH_PROCESS`].
fn gauges(scrape: &str) -> BTreeMap<&str, &str> {
    let mut is_gauge = false;
    let series = scrape.lines().filter(|line| {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            is_gauge = declared.ends_with(" gauge");
        }
        is_gauge && !line.starts_with('#') && !OF_EACH_PROCESS.iter().any(|(name, _)| line.starts_with(name))
    });
    series.filter_map(|line| line.rsplit_once(' ')).collect()
}

#[tokio::test(start_paused = true)]
async fn gauges_of_a_former_leader_are_those_of_a_standby() {
    let model = filled();
    let flags = ["--leader-elect", "--leader-election-namespace=default", "--watch-namespaces=one,two"];
    let start = |name| {
        run_as(&model, name, &flags, |toy, context| async move {
            keep(toy, context).await?;
            pending().await
        })
    };
    let refused = "before list services.core two/* -> answer 403";
    plan(&model, refused);
    let former = start("toys-1");
    sleep(10 * MOMENT).await;
    let leading = former.scrape();
    for gauge in [
        r#"leader_election_master_status{name="controller-manager.operators"}"#,
        r#"controller_runtime_active_workers{controller="toy"}"#,
        r#"operator_waiting_objects{kind="Toy"}"#,
    ] {
        assert_eq!(value(&leading, gauge), Some(1.0), "{gauge}: {leading}");
    }
    assert!(value(&leading, r#"workqueue_unfinished_work_seconds{controller="toy",name="toy"}"#) > Some(1.0));

    plan(&model, &format!("{refused}; before * leases.coordination.k8s.io -> drop"));
    let active = || value(&former.scrape(), r#"controller_runtime_active_workers{controller="toy"}"#);
    until("it no longer works", || active() == Some(0.0)).await;
    let standby = start("toys-2");
    sleep(10 * MOMENT).await;
    let (former, standby) = (former.scrape(), standby.scrape());
    assert!(gauges(&standby).len() > 10, "{standby}");
    assert_eq!(gauges(&former), gauges(&standby));
}
