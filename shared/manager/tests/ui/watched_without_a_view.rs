//! Mistake: a controller watches a kind that does not implement `workloads::Viewed`.

mod greeting;

use greeting::Greeting;
use k8s_openapi::api::apps::v1::DaemonSet;
use manager::Controller;

fn main() {
    let _ = Controller::of::<Greeting>().watches_referenced::<DaemonSet>(|_| Vec::new());
}
