//! A kind that `workloads` does not know as a child.

mod greeting;

use greeting::Greeting;
use k8s_openapi::api::apps::v1::DaemonSet;
use manager::Controller;

fn main() {
    let _ = Controller::of::<Greeting>().owns::<DaemonSet>();
}
