//! Mistake: a view does not say of which kind it is.

mod greeting;

use greeting::Greeting;
use k8s_openapi::api::apps::v1::DaemonSet;
use manager::Controller;
use serde::Deserialize;
use workloads::As;

#[derive(Debug, PartialEq, Deserialize)]
struct Readiness {}

fn main() {
    let _ = Controller::of::<Greeting>().owns::<As<DaemonSet, Readiness>>();
}
