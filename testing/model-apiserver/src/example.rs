//! Runs the example of the README.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::{Model, Planned};

#[tokio::test(start_paused = true)]
async fn create_with_a_lost_answer_is_detected_on_retry() {
    let map = |name: &str| -> ConfigMap { serde_json::from_value(json!({"metadata": {"name": name}})).expect("a map") };
    let model = Model::new();
    let faults = Arc::new(Planned::new(&"after create configmaps.core */a #1 -> drop".parse().expect("a plan")));
    model.set_shared_faults(faults.clone());
    let api: Api<ConfigMap> = Api::namespaced(model.client_named("replica-0"), "default");

    api.create(&PostParams::default(), &map("a")).await.expect_err("the connection breaks");
    let again = api.create(&PostParams::default(), &map("a")).await.expect_err("the object exists");
    assert!(matches!(again, kube::Error::Api(status) if status.is_already_exists()));

    assert_eq!(model.objects("configmaps").len(), 1);
    let log: Vec<_> =
        model.requests().into_iter().map(|it| (it.client, it.verb.as_str(), it.code, it.delivered)).collect();
    assert_eq!(log[0], ("replica-0".to_owned(), "create", Some(201), false));
    assert!(faults.unused().is_empty());
}
