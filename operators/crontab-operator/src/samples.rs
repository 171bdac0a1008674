//! Objects for tests: the samples for users, and variations of the first.

use serde_json::{Value, json};

use crate::CronTab;

/// Returns the sample of the README.
pub(crate) fn seed() -> CronTab {
    created(parse(include_str!("../samples/stable_v1_crontab.yaml")))
}

/// Returns the sample that uses most of the fields.
pub(crate) fn report() -> CronTab {
    created(parse(include_str!("../samples/crontab-report.yaml")))
}

/// Returns the first sample with another spec.
pub(crate) fn with_spec(spec: &Value) -> CronTab {
    CronTab { spec: serde_json::from_value(spec.clone()).expect("a valid spec"), ..seed() }
}

/// Sets the metadata that the API server sets.
fn created(crontab: CronTab) -> CronTab {
    let mut object = serde_json::to_value(crontab).expect("JSON");
    let metadata = json!({
        "name": object["metadata"]["name"], "namespace": "default", "uid": "c0ffee00-0000-4000-8000-000000000001",
        "generation": 1, "resourceVersion": "1", "creationTimestamp": "2026-11-19T12:00:00Z",
    });
    object["metadata"] = metadata;
    serde_json::from_value(object).expect("a CronTab")
}

fn parse(yaml: &str) -> CronTab {
    serde_saphyr::from_str(yaml).expect("a valid CronTab")
}

#[test]
fn first_sample_matches_the_documentation() {
    let spec = serde_json::to_value(seed().spec).expect("JSON");
    let defaults = json!({
        "cronSpec": "* * * * */5", "image": "my-awesome-cron-image", "replicas": 1, "suspend": false,
        "concurrencyPolicy": "Forbid",
    });
    assert_eq!(spec, defaults);
}
