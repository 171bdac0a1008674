//! Mistake: a controller owns a kind that does not implement `workloads::Child`.

mod greeting;

use greeting::Greeting;
use k8s_openapi::api::apps::v1::DaemonSet;
use manager::Controller;

fn main() {
    let _ = Controller::of::<Greeting>().owns::<DaemonSet>();
}
