//! Other clients clear `managedFields`, at any moment. The runtime must still remove fields that a new operator version drops.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use model_apiserver::{Planned, Signalled};
use serde_json::{Value, json};

use super::{CONTAINER_FALSE, NAME, NamespacedChild, World, deployment, without, writes};

impl<C: NamespacedChild> World<C> {
    /// Replaces the `managedFields` of the child whenever the plan signals. Returns a counter of the replacements.
    fn replace_managed_fields_at(&self, faults: &str, entries: &Value) -> Arc<AtomicUsize> {
        let resource = ApiResource::erase::<C>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.model.client(), "default", &resource);
        let count = Arc::new(AtomicUsize::new(0));
        let counting = count.clone();
        let patch = Patch::Merge(json!({"metadata": {"managedFields": entries}}));
        let replace = move |_: &str| -> Signalled {
            let (api, count, patch) = (api.clone(), counting.clone(), patch.clone());
            Box::pin(async move {
                api.patch(NAME, &PatchParams::default(), &patch).await.expect("the change is taken");
                count.fetch_add(1, Ordering::Relaxed);
            })
        };
        self.model.set_shared_faults(Arc::new(Planned::with_signals(&faults.parse().expect("a plan"), replace)));
        count
    }
}

#[tokio::test(start_paused = true)]
async fn cleared_managed_fields_hide_no_drift_and_no_dropped_field() {
    let mut world = World::<Deployment>::new();
    world.run(&deployment()).await;
    let clear = |child: &mut Value| child["metadata"]["managedFields"] = json!([{}]);
    world.edit("kubectl-patch", clear).await;
    world.quiet().await;
    let managers = |child: &Value| -> Vec<String> {
        let entries = child["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        entries.iter().filter_map(|it| it["manager"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(managers(&world.child()), ["toy-controller"], "the runtime creates our entry again, and no other");
    assert_eq!(world.told(), [""; 0]);

    world.edit("kubectl", |child| child["spec"]["replicas"] = json!(7)).await;
    world.quiet().await;
    assert_eq!(world.child()["spec"]["replicas"], 0);
    assert_eq!(world.told().len(), 1);

    world.stop().await;
    world.edit("kubectl-patch", clear).await;
    world.edit("kubectl", |child| child["spec"]["replicas"] = json!(7)).await;
    let lighter = without(&deployment(), "/spec/template/spec/tolerations");
    world.run(&lighter).await;
    assert_eq!(world.child()["spec"]["replicas"], 0);
    assert_eq!(world.child().pointer("/spec/template/spec/tolerations"), None);
    world.run(&without(&lighter, CONTAINER_FALSE)).await;
    assert_eq!(world.child().pointer(CONTAINER_FALSE), None);
    assert!(writes(&world.run(&without(&lighter, CONTAINER_FALSE)).await).is_empty());
}

/// No entry shows any more that the old port is ours. If it stayed, the API server would refuse two ports with one name.
#[tokio::test(start_paused = true)]
async fn dropped_element_is_removed_despite_cleared_managed_fields() {
    let service = |port: u16| json!({"metadata": {"name": NAME}, "spec": {"ports": [{"name": "p", "port": port}]}});
    let ports = |world: &World<Service>| -> Vec<Value> {
        let child = world.child();
        child["spec"]["ports"].as_array().into_iter().flatten().map(|it| it["port"].clone()).collect()
    };
    let clear = |child: &mut Value| child["metadata"]["managedFields"] = json!([{}]);
    for has_other_entry in [false, true] {
        let mut world = World::<Service>::new();
        world.run(&service(1)).await;
        world.stop().await;
        world.edit("kubectl-patch", clear).await;
        if has_other_entry {
            world.edit("kubectl", |child| child["metadata"]["managedFields"] = labelled_by("kubectl")).await;
        }
        world.run(&service(2)).await;
        assert_eq!(ports(&world), [2], "{has_other_entry}");
        assert!(writes(&world.run(&service(2)).await).is_empty());
    }
}

/// The runtime creates the entry again, then the apply fails. The next apply wants another port.
#[tokio::test(start_paused = true)]
async fn dropped_element_is_removed_after_a_failed_apply() {
    let service = |port: u16| json!({"metadata": {"name": NAME}, "spec": {"ports": [{"name": "p", "port": port}]}});
    let mut world = World::<Service>::new();
    world.run(&service(1)).await;
    world.stop().await;
    world.edit("kubectl-patch", |child| child["metadata"]["managedFields"] = json!([{}])).await;
    // The first patch is a dry run, the second creates the entry, the third is the apply.
    let planned = crate::kit::plan(&world.model, "before patch services.core #3..99 -> answer 500");
    world.run(&service(1)).await;
    assert!(planned.unused().is_empty());
    world.model.set_faults(model_apiserver::NoFaults);
    world.run(&service(2)).await;
    assert_eq!(world.child()["spec"]["ports"].as_array().map(Vec::len), Some(1), "{:#}", world.child()["spec"]);
}

/// Another client clears `managedFields` right before the API server handles one of the patches of a child. After that, all later
/// patches fail, or none. The next operator version drops a field.
#[tokio::test(start_paused = true)]
async fn dropped_field_goes_if_managed_fields_are_cleared_mid_write() {
    let fewer = without(&deployment(), "/spec/template/spec/tolerations");
    let mut more = deployment();
    more["spec"]["replicas"] = json!(3);
    let mut happened = 0;
    let ours_or_all = [labelled_by("kubectl"), json!([{}])];
    // `None`: revert another client's change, by a JSON patch. `more`: change a field. `fewer`: drop a field, by an apply.
    for (next, left) in
        [None, Some(&more), Some(&fewer)].into_iter().flat_map(|next| ours_or_all.iter().map(move |left| (next, left)))
    {
        for (nth, is_last) in (1..4).flat_map(|nth| [(nth, false), (nth, true)]) {
            let mut faults = format!("before patch deployments.apps as keeper #{nth} -> signal clear");
            if is_last {
                write!(faults, "; before patch deployments.apps as keeper #{}..99 -> answer 500", nth + 1)
                    .expect("a text");
            }
            let mut world = World::<Deployment>::new();
            world.run(&deployment()).await;
            let count = world.replace_managed_fields_at(&faults, left);
            match next {
                None => {
                    world.edit("kubectl", |child| child["spec"]["replicas"] = json!(7)).await;
                    world.quiet().await;
                }
                Some(desired) => drop(world.run(desired).await),
            }
            happened += count.load(Ordering::Relaxed);
            world.model.set_faults(model_apiserver::NoFaults);
            world.run(&fewer).await;
            let dropped = world.child().pointer("/spec/template/spec/tolerations").cloned();
            assert_eq!(dropped, None, "{next:?}, {left}, {faults}");
            assert!(writes(&world.run(&fewer).await).is_empty(), "{faults}");
        }
    }
    assert!(happened >= 24, "only {happened} of 36 cases cleared the fields");
}

/// When an object without `managedFields` is applied for the first time, the API server gives all its fields to
/// `before-first-apply`.
#[tokio::test(start_paused = true)]
async fn dropped_field_is_removed_after_another_client_applied() {
    let mut world = World::<Deployment>::new();
    world.run(&deployment()).await;
    world.stop().await;
    world.edit("kubectl", |child| child["metadata"]["managedFields"] = json!([{}])).await;
    let seized = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME}, "spec": {"minReadySeconds": 3},
    });
    let api: Api<DynamicObject> =
        Api::namespaced_with(world.model.client(), "default", &ApiResource::erase::<Deployment>(&()));
    let forced = PatchParams::apply("another-manager").force();
    api.patch(NAME, &forced, &Patch::Apply(seized)).await.expect("it is applied");
    assert!(world.child()["metadata"]["managedFields"].to_string().contains("before-first-apply"));

    world.run(&deployment()).await;
    world.run(&without(&deployment(), "/spec/template/spec/tolerations")).await;
    assert_eq!(world.child().pointer("/spec/template/spec/tolerations"), None);
    assert_eq!(world.child()["spec"]["minReadySeconds"], 3, "another manager owns it");
}

/// Entries of `managedFields` that own no field of ours.
fn labelled_by(manager: &str) -> Value {
    json!([{
        "manager": manager, "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:team": {}}}},
    }])
}
