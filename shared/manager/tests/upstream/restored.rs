//! A cluster that is restored from a backup: resource versions go back, although watches and pending writes rest on later ones.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fault_plan::Plan;
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use model_apiserver::{Collecting, Model, NoFaults, Planned, Signalled, Snapshot};
use serde_json::json;
use tokio::time::sleep;

use crate::kit::{
    Calls, MOMENT, TOYS, Toy, change, is_ready, keeper, model, plan, port, put, ready, report_size, run, until, value,
    writes,
};

/// How long the API server is down.
const AWAY: Duration = Duration::from_secs(3);
/// Within this time the operator must have caught up.
const SOON: Duration = Duration::from_secs(10);

/// Stops the API server, restores an earlier state, and starts it again.
async fn restore(model: &Model, snapshot: &Snapshot) {
    plan(model, "before * * -> drop");
    model.restore(snapshot);
    sleep(AWAY).await;
    model.set_faults(NoFaults);
}

async fn settled(model: &Model, sizes: &[(&str, i64)]) {
    until("settled", || sizes.iter().all(|(name, size)| port(model, name) == Some(*size) && is_ready(model, name)))
        .await;
    sleep(MOMENT).await;
}

#[tokio::test(start_paused = true)]
async fn a_restored_cluster_is_followed() {
    // Whether the versions of the restored cluster overtake the known ones before the informers relist.
    for is_overtaken in [true, false] {
        let model = model();
        model.set_collecting(Collecting::AtOnce);
        put(&model, &["untouched", "changed", "robbed", "reverted", "deleted"]);
        let harness = run(&model, &[], keeper(&Calls::default()));
        settled(&model, &[("untouched", 1), ("changed", 1), ("robbed", 1), ("reverted", 1), ("deleted", 1)]).await;
        let backup = model.snapshot();
        change(&model, "changed", 2).await;
        change(&model, "reverted", 2).await;
        model.take(TOYS, "default", "deleted");
        put(&model, &["created"]);
        settled(&model, &[("changed", 2), ("reverted", 2), ("created", 1)]).await;
        restore(&model, &backup).await;
        if !is_overtaken {
            sleep(SOON).await;
        }
        for number in 0..100 {
            model.put(json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("new-{number}"), "namespace": "default"}}));
        }
        change(&model, "untouched", 3).await;
        change(&model, "changed", 4).await;
        change(&model, "deleted", 5).await;
        model.take("services", "default", "robbed");
        // No later event of the object itself shows that it was reverted.
        model.take("services", "default", "reverted");
        put(&model, &["created"]);
        let wanted = [("untouched", 3), ("changed", 4), ("deleted", 5), ("robbed", 1), ("reverted", 1), ("created", 1)];
        let is_so = || wanted.iter().all(|(name, size)| port(&model, name) == Some(*size) && is_ready(&model, name));
        let took = until("the wanted state", is_so).await;
        assert!(took < SOON, "{is_overtaken}: {took:?}");

        let scrape = harness.scrape();
        let restarts = "operator_informer_restarts_total{kind=\"Toy\",reason=\"restored\"}";
        // Versions that have overtaken the known ones do not show the restore. The informers relist nevertheless.
        let is_told = value(&scrape, restarts).is_some_and(|count| count >= 1.0);
        assert!(is_told || is_overtaken, "{scrape}");
        sleep(60 * MOMENT).await;
        let before = writes(&model).len();
        sleep(600 * MOMENT).await;
        assert_eq!(writes(&model).len(), before, "{is_overtaken}: the operator still writes");
    }
}

/// The restore causes no failed request, as for a process that was suspended meanwhile. So no outage is visible.
#[tokio::test(start_paused = true)]
async fn unnoticed_restore_is_detected_by_the_next_older_event() {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], keeper(&Calls::default()));
    settled(&model, &[("a", 1)]).await;
    let backup = model.snapshot();
    change(&model, "a", 2).await;
    settled(&model, &[("a", 2)]).await;
    let none: Plan = Plan::default();
    model.set_faults(model_apiserver::Planned::new(&none));
    model.restore(&backup);
    let took = until("the restored state", || port(&model, "a") == Some(1) && is_ready(&model, "a")).await;
    assert!(took < Duration::from_mins(5), "{took:?}");
}

/// A simulated world found this bug: the cluster lost only the deletion of a child, and no event showed that. The watch of the child's
/// kind waited behind the lost version, so the child was unknown for ever.
#[tokio::test(start_paused = true)]
async fn child_whose_deletion_was_lost_by_a_restore_is_found() {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], keeper(&Calls::default()));
    settled(&model, &[("a", 1)]).await;
    let backup = model.snapshot();
    plan(&model, "before create services.core -> drop");
    model.take("services", "default", "a");
    sleep(MOMENT).await;
    model.set_faults(NoFaults);
    model.restore(&backup);
    // The versions overtake the known one before a bookmark could show the restore.
    for number in 0..10 {
        model.put(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("new-{number}"), "namespace": "default"}}));
    }
    sleep(SOON).await;
    let before = writes(&model).len();
    change(&model, "a", 2).await;
    settled(&model, &[("a", 2)]).await;
    let sent = writes(&model).split_off(before);
    assert!(sent.iter().all(|(verb, ..)| *verb != "create"), "the child is known: {sent:?}");
}

/// A simulated world found this bug: each reconcile acted on the later object that the cache still held, read the restored one,
/// and requeued itself at once.
#[tokio::test(start_paused = true)]
async fn stale_cache_after_a_restore_causes_no_reconcile_loop() {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], keeper(&Calls::default()));
    settled(&model, &[("a", 1)]).await;
    let backup = model.snapshot();
    change(&model, "a", 2).await;
    settled(&model, &[("a", 2)]).await;
    // If a child disappears right after its creation, the reconcile first checks whether its owner still exists.
    model.take("services", "default", "a");
    until("the second Service", || port(&model, "a") == Some(2)).await;
    plan(&model, "before create services.core -> answer 500; before list * -> delay 5s");
    model.take("services", "default", "a");
    sleep(MOMENT).await;
    model.restore(&backup);
    let before = model.requests().len();
    sleep(3 * MOMENT).await;
    let asked = model.requests().len() - before;
    assert!(asked < 50, "{asked} requests in three seconds");
    model.set_faults(NoFaults);
    sleep(SOON).await;
    assert_eq!((port(&model, "a"), is_ready(&model, "a")), (Some(1), true));
}

/// A simulated world found this bug: the cluster is restored while a write is on its way, and this write gets the same version as
/// the write before it. Only its answer shows that the restore undid the earlier write.
#[tokio::test(start_paused = true)]
async fn write_with_a_repeated_version_reveals_the_restore() {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], report_size);
    until("ready", || is_ready(&model, "a")).await;
    let (stage, backup) = (model.clone(), Mutex::new(None));
    let signal = move |name: &str| -> Signalled {
        let mut backup = backup.lock().expect("no panic");
        if name == "restore" {
            stage.restore(backup.as_ref().expect("the backup exists"));
            return Box::pin(std::future::ready(()));
        }
        let stage = stage.clone();
        // Change the object once more before the API server handles the request, so that the answer causes a reconcile at once.
        let mut toy = stage.object(TOYS, "default", "a").expect("it is there");
        toy["spec"]["size"] = json!(3);
        toy["metadata"]["generation"] = json!(2);
        stage.put(toy);
        *backup = Some(stage.snapshot());
        Box::pin(std::future::ready(()))
    };
    let faults =
        format!("before patch {TOYS}/status #1 -> signal backup; before patch {TOYS}/status #2 -> signal restore");
    let planned = Arc::new(Planned::with_signals(&faults.parse().expect("a plan"), signal));
    model.set_shared_faults(planned.clone());
    let asked = json!({"metadata": {"annotations": {"tests.example.com/reconcile-requested-at": "now"}}});
    let toys: Api<Toy> = Api::namespaced(model.client(), "default");
    toys.patch("a", &PatchParams::default(), &Patch::Merge(asked)).await.expect("the patch is taken");
    sleep(SOON).await;
    assert!(planned.unused().is_empty());
    let status = model.object(TOYS, "default", "a").expect("it is there")["status"].clone();
    assert_eq!(ready(&model, "a")["message"], "size 3");
    assert_eq!(status["lastHandledReconcileAt"], "now");
}

/// The watch of Toys is ahead of the restored cluster, so its informer notices the restore. The watch of Services is not ahead
/// and continues as if nothing had happened: it never shows that the restore undid a repair.
#[tokio::test(start_paused = true)]
async fn restore_found_by_one_informer_makes_all_relist() {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], keeper(&Calls::default()));
    settled(&model, &[("a", 1)]).await;
    let (stage, backup) = (model.clone(), Arc::new(Mutex::new(None)));
    let taken = backup.clone();
    let signal = move |_: &str| -> Signalled {
        *taken.lock().expect("no panic") = Some(stage.snapshot());
        Box::pin(std::future::ready(()))
    };
    let faults = "before patch services.core as toys #1 -> signal backup";
    model.set_shared_faults(Arc::new(Planned::with_signals(&faults.parse().expect("a plan"), signal)));
    let services: Api<Service> = Api::namespaced(model.client(), "default");
    let damage = json!({"spec": {"ports": [{"name": "damaged", "port": 1, "protocol": "TCP", "targetPort": 1}]}});
    services.patch("a", &PatchParams::default(), &Patch::Merge(damage)).await.expect("the patch is taken");
    let is_repaired = || {
        let service = model.object("services", "default", "a");
        service.is_some_and(|service| service["spec"]["ports"][0]["name"] == "a")
    };
    until("repaired", is_repaired).await;
    let repaired = model.version();
    let toys: Api<Toy> = Api::namespaced(model.client(), "default");
    for number in 0..9 {
        let note = json!({"metadata": {"annotations": {"note": number.to_string()}}});
        toys.patch("a", &PatchParams::default(), &Patch::Merge(note)).await.expect("the patch is taken");
    }
    sleep(MOMENT).await;
    let backup = backup.lock().expect("no panic").take().expect("a backup from before the repair");
    model.restore(&backup);
    for number in 0..3 {
        model.put(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("new-{number}"), "namespace": "default"}}));
    }
    assert!(model.version() >= repaired && !is_repaired(), "the watch of Services can continue");
    let took = until("repaired again", is_repaired).await;
    assert!(took < Duration::from_mins(5), "{took:?}");
}
