//! Tests of `Gadget` on a real node.

use gadget_operator::Gadget;
use k8s_openapi::api::core::v1::ConfigMap;

use crate::kit::world;

const SAMPLE: &str = include_str!("../../../operators/gadget-operator/samples/sample.yaml");
const NAME: &str = "gadget-sample";

#[tokio::test(flavor = "multi_thread")]
async fn sample_becomes_ready_and_its_config_map_goes_with_it() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    world.until_condition::<Gadget>(NAME, "Ready", "True", "Ready").await;
    let child: ConfigMap = world.get(NAME).await.expect("a ConfigMap");
    assert_eq!(child.data.expect("data")["text"], "Hello");

    world.delete::<Gadget>(NAME).await;
    world.until("the ConfigMap is gone", async || world.get::<ConfigMap>(NAME).await.is_none().then_some(())).await;
}
