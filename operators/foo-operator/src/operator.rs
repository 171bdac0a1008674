//! Registers the operator with the runtime.

use k8s_openapi::{
    api::apps::v1::Deployment, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::CustomResourceExt;
use manager::{Controller, Manager, Operator};

use crate::{Foo, controller, desired};

/// The operator of [`Foo`].
#[derive(Debug, Clone, Copy)]
pub struct FooOperator;

impl Operator for FooOperator {
    fn name(&self) -> &'static str {
        "foo"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![Foo::crd()]
    }

    fn sample(&self) -> &'static str {
        include_str!("../samples/example-foo.yaml")
    }

    fn is_example(&self) -> bool {
        true
    }

    fn images(&self) -> &'static [&'static str] {
        &[desired::IMAGE]
    }

    fn setup(&self, manager: &mut Manager) {
        let image = desired::image(manager.settings().image_registry.as_deref());
        // As upstream: a Deployment that this Foo does not own is a conflict, even if an earlier Foo of the same name left it.
        manager.add(
            Controller::of::<Foo>()
                .config(image)
                .owns::<Deployment>()
                .never_adopts()
                .observes(controller::observe)
                .reconcile(controller::reconcile),
        );
    }
}
