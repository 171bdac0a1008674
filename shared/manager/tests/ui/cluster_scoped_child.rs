//! Mistake: a namespaced kind owns a cluster-scoped one.

mod greeting;

use greeting::Greeting;
use k8s_openapi::api::core::v1::Namespace;
use manager::Controller;
use workloads::Whole;

fn main() {
    let _ = Controller::of::<Greeting>().owns::<Whole<Namespace>>();
}
