//! Mistake: an object in a namespace refers to cluster-scoped objects.

mod greeting;

use greeting::Greeting;
use k8s_openapi::api::core::v1::Namespace;
use manager::Controller;
use workloads::Whole;

fn main() {
    let _ = Controller::of::<Greeting>().watches_referenced::<Whole<Namespace>>(|_| Vec::new());
}
