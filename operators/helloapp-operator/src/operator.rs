//! The registration.

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Pod, core::v1::Service, policy::v1::PodDisruptionBudget},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::CustomResourceExt;
use manager::{Controller, Manager, Operator, Webhook};

use crate::{Config, HelloApp, controller, metrics, webhook};

/// The operator of [`HelloApp`].
#[derive(Debug, Clone, Copy)]
pub struct HelloAppOperator;

impl Operator for HelloAppOperator {
    fn name(&self) -> &'static str {
        "helloapp"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![HelloApp::crd()]
    }

    fn sample(&self) -> &'static str {
        include_str!("../samples/apps_v1_helloapp.yaml")
    }

    fn webhooks(&self) -> Vec<Webhook> {
        vec![Webhook::warning(webhook::review)]
    }

    fn setup(&self, manager: &mut Manager) {
        let security_profile = manager.settings().default_security_profile;
        manager.add(
            Controller::of::<HelloApp>()
                .config(Config { security_profile })
                .config(metrics::RolloutTimes::new(manager.metrics()))
                .owns::<Deployment>()
                .owns::<Service>()
                .owns::<PodDisruptionBudget>()
                .watches_labelled::<Pod>()
                .on_scrape(metrics::replicas(manager.metrics()))
                .reconcile(controller::reconcile),
        );
    }
}
