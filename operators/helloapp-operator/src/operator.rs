//! Registers the operator with the runtime: CRD, webhook, watches and metrics.

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Pod, core::v1::Service, policy::v1::PodDisruptionBudget},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::CustomResourceExt;
use manager::{Controller, FleetMetrics, Manager, Operator, Pods, Webhook};

use crate::{HelloApp, controller, validation};

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

    fn setup(&self, manager: &mut Manager) {
        let security = manager.settings().security_policy();
        manager.serve(Webhook::warning(move |old, new| validation::review(old, new, security)));
        let metrics = FleetMetrics::new::<HelloApp>(manager.metrics(), "helloapp_operator", "replicas");
        manager.add(
            Controller::of::<HelloApp>()
                .config(security)
                .owns::<Deployment>()
                .owns::<Service>()
                .owns::<PodDisruptionBudget>()
                .watches_labelled::<Pod>()
                .observes(controller::observe)
                .on_scrape(move |objects, _| metrics.show(objects, pods))
                .reconcile(controller::reconcile),
        );
    }
}

fn pods(object: &HelloApp) -> Pods {
    let (ready, updated) = object.status.as_ref().map_or((0, 0), |it| (it.ready_replicas, it.updated_replicas));
    Pods { desired: object.spec.size, ready, updated }
}
