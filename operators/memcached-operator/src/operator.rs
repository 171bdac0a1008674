//! Registers the operator with the runtime: CRD, flags, webhooks, watches and metrics.

use clap::{Args, Command};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Pod, Secret, Service},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use manager::{Controller, FleetMetrics, Manager, Operator, Permission, Pods, Webhook};
use workloads::ServiceMonitor;

use crate::{Config, Memcached, api, controller, validation};

/// The operator of [`Memcached`].
#[derive(Debug, Clone, Copy)]
pub struct MemcachedOperator;

impl Operator for MemcachedOperator {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![api::definition()]
    }

    fn args(&self, command: Command) -> Command {
        Config::augment_args(command)
    }

    // ANCHOR: webhooks
    fn webhooks(&self) -> Vec<Webhook> {
        // The API server converts an object of either version to v1 before it calls the validating webhook.
        vec![
            Webhook::validating(validation::review),
            Webhook::converting::<Memcached>(&["v1", api::v1alpha1::VERSION], api::convert::convert),
        ]
    }
    // ANCHOR_END: webhooks

    fn sample(&self) -> &'static str {
        include_str!("../samples/cache_v1_memcached.yaml")
    }

    fn setup(&self, manager: &mut Manager) {
        let settings = manager.settings();
        let (image_registry, fixed_user_ids) = (settings.image_registry.clone(), settings.fixed_user_ids);
        let metrics = FleetMetrics::new::<Memcached>(manager.metrics(), "memcached_operator", "nodes");
        manager.add(
            Controller::of::<Memcached>()
                .config(Config { image_registry, fixed_user_ids, ..manager.args() })
                .owns::<Deployment>()
                .owns::<Service>()
                .owns::<PodDisruptionBudget>()
                .owns::<NetworkPolicy>()
                .owns_if_installed::<ServiceMonitor>()
                .watches_labelled::<Pod>()
                .reads::<Secret>()
                .permits(Permission::on::<Secret>(&["create", "patch"]))
                .annotates()
                .observes(controller::observe)
                .on_scrape(move |objects, _| metrics.show(objects, pods))
                .reconcile(controller::reconcile),
        );
    }
}

fn pods(object: &Memcached) -> Pods {
    let (ready, updated) = object.status.as_ref().map_or((0, 0), |it| (it.ready_replicas, it.updated_replicas));
    Pods { desired: object.spec.size, ready, updated }
}

#[cfg(test)]
mod tests {
    use manager::{normalize, printed};
    use serde_json::json;

    use crate::api::definition;

    #[test]
    fn v1alpha1_schema_differs_from_v1_only_in_size() {
        let definition = printed(&normalize(&definition()));
        let versions = definition["spec"]["versions"].as_array().expect("versions");
        let [v1, v1alpha1] = versions.as_slice() else { panic!("{versions:#?}") };
        let flags = |version: &serde_json::Value| ["name", "storage", "served"].map(|key| version[key].clone());
        assert_eq!(flags(v1), [json!("v1"), json!(true), json!(true)]);
        assert_eq!(flags(v1alpha1), [json!("v1alpha1"), json!(false), json!(false)]);
        assert_eq!(definition["spec"]["conversion"], json!(null));

        assert_eq!(v1alpha1["deprecated"], true);
        assert_eq!(
            v1alpha1["deprecationWarning"],
            "memcached.cache.example.com/v1alpha1 Memcached is deprecated; use v1, where spec.size is an integer"
        );
        assert_eq!(v1alpha1["subresources"], json!({"status": {}}));
        let column = |version: &serde_json::Value| version["additionalPrinterColumns"][0]["type"].clone();
        assert_eq!((column(v1), column(v1alpha1)), (json!("integer"), json!("string")));

        let size = "/schema/openAPIV3Schema/properties/spec/properties/size";
        let mut earlier = v1alpha1.clone();
        let field = earlier.pointer_mut(size).expect("a size");
        assert_eq!(
            (&field["type"], &field["default"], &field["pattern"]),
            (&json!("string"), &json!("1"), &json!("^(0|[1-9][0-9]?)$"))
        );
        assert_eq!(
            field["x-kubernetes-validations"],
            json!([{"rule": "int(self) <= 64", "message": "size must be from 0 to 64"}])
        );
        *field = v1.pointer(size).expect("a size").clone();
        assert_eq!(earlier["schema"], v1["schema"]);
    }
}
