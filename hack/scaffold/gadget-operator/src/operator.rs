//! Registers the operator with the runtime.

use k8s_openapi::{
    api::core::v1::ConfigMap, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::CustomResourceExt;
use manager::{Controller, Manager, Operator};

use crate::{Gadget, controller};

/// The operator of [`Gadget`].
#[derive(Debug, Clone, Copy)]
pub struct GadgetOperator;

impl Operator for GadgetOperator {
    fn name(&self) -> &'static str {
        "gadget"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![Gadget::crd()]
    }

    fn sample(&self) -> &'static str {
        include_str!("../samples/sample.yaml")
    }

    fn setup(&self, manager: &mut Manager) {
        manager.add(Controller::of::<Gadget>().owns::<ConfigMap>().reconcile(controller::reconcile));
    }
}
