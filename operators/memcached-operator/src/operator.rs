//! The registration.

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
use manager::{Controller, Manager, Operator, Webhook};

use crate::{Config, Memcached, api, controller, metrics, validation};

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

    fn webhooks(&self) -> Vec<Webhook> {
        // The API server gives validation an object of either version as v1.
        vec![Webhook::validating(validation::review), Webhook::converting::<Memcached>(api::convert::convert)]
    }

    fn sample(&self) -> &'static str {
        include_str!("../samples/cache_v1_memcached.yaml")
    }

    fn setup(&self, manager: &mut Manager) {
        let image_registry = manager.settings().image_registry.clone();
        manager.add(
            Controller::of::<Memcached>()
                .config(Config { image_registry, ..manager.args() })
                .config(metrics::RolloutTimes::new(manager.metrics()))
                .owns::<Deployment>()
                .owns::<Service>()
                .owns::<PodDisruptionBudget>()
                .owns::<NetworkPolicy>()
                .watches_labelled::<Pod>()
                .reads::<Secret>()
                .annotates()
                .on_scrape(metrics::nodes(manager.metrics()))
                .reconcile(controller::reconcile),
        );
    }
}
