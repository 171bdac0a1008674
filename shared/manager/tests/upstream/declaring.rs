//! Mistakes in declarations that the runtime finds before it starts anything.

use k8s_openapi::{
    api::core::v1::ConfigMap, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use manager::{Action, Controller, Manager, Operation, Operator, Review, ValidationResult, Webhook, permissions};
use workloads::Whole;

use crate::kit::{Toy, Toys};

struct Twice;

impl Operator for Twice {
    fn name(&self) -> &'static str {
        "twice"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        Vec::new()
    }

    fn sample(&self) -> &'static str {
        "{}"
    }

    fn webhooks(&self) -> Vec<Webhook> {
        vec![
            Webhook::validating::<Toy>(|_, _| ValidationResult::none()),
            Webhook::defaulting::<Toy>(|_| ()), // another path
            Webhook::warning::<Toy>(|_, _| ValidationResult::none()),
        ]
    }

    fn setup(&self, _: &mut Manager) {}
}

#[test]
#[should_panic(expected = "two webhooks are registered at one path")]
fn duplicate_webhook_path_panics() {
    permissions(&[&Twice]);
}

#[test]
#[should_panic(expected = "there already is a controller named \"toy\"")]
fn duplicate_controller_name_panics() {
    let setup = |manager: &mut Manager| {
        for _ in 0..2 {
            manager.add(Controller::of::<Toy>().reconcile(async |_, _| Ok(Action::Done)));
        }
    };
    permissions(&[&Toys(setup)]);
}

#[test]
#[should_panic(expected = "Toy's controller declares .watches::<ConfigMap>() twice")]
fn kind_that_is_watched_twice_panics() {
    let setup = |manager: &mut Manager| {
        let once = Controller::of::<Toy>().watches::<Whole<ConfigMap>>(|_| Vec::new());
        let twice = once.config("").watches::<Whole<ConfigMap>>(|_| Vec::new());
        manager.add(twice.reconcile(async |_, _| Ok(Action::Done)));
    };
    permissions(&[&Toys(setup)]);
}

#[test]
#[should_panic(expected = "Toy's controller declares .workers(0): it needs at least one")]
fn controller_without_workers_panics() {
    drop(Controller::of::<Toy>().workers(0));
}

#[test]
#[should_panic(expected = "Toy's controller declares .index(\"size\", …) twice")]
fn index_that_is_declared_twice_panics() {
    let once = Controller::of::<Toy>().index("size", |toy| vec![toy.spec.size.to_string()]);
    drop(once.config("").index("size", |_| Vec::new()));
}

#[test]
#[should_panic(expected = "a webhook of Toy declares .on(&[]): name an operation")]
fn webhook_without_an_operation_panics() {
    drop(Webhook::reviewing(|_: &Review<Toy>| ValidationResult::none()).on(&[]));
}

#[test]
#[should_panic(expected = "a webhook of Toy declares .on(…) with Delete, but gets only objects that will be stored")]
fn validation_of_deletions_panics() {
    drop(Webhook::validating::<Toy>(|_, _| ValidationResult::none()).on(&[Operation::Update, Operation::Delete]));
}

#[test]
#[should_panic(expected = "the conversion of Toy declares .on(…)")]
fn conversion_with_operations_panics() {
    drop(Webhook::converting::<Toy>(&["v1"], |object, _| Ok(object)).on(&[Operation::Create]));
}

#[test]
#[should_panic(expected = "the conversion of Toy declares .only_if(…)")]
fn conversion_with_a_condition_panics() {
    drop(Webhook::converting::<Toy>(&["v1"], |object, _| Ok(object)).only_if("never", "false"));
}
