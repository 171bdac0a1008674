//! Memcacheds for tests: the samples that users get, and variations of the first.

use serde_json::{Value, json};

use crate::api::Memcached;

/// The sample of the README: a size and nothing else.
pub(crate) fn seed() -> Memcached {
    parse(include_str!("../samples/cache_v1_memcached.yaml"))
}

/// The sample with most of the settings.
pub(crate) fn tuned() -> Memcached {
    parse(include_str!("../samples/memcached-tuned.yaml"))
}

/// The sample with generated Secrets.
fn secured() -> Memcached {
    parse(include_str!("../samples/memcached-secured.yaml"))
}

/// The first sample with another spec.
pub(crate) fn with_spec(spec: &Value) -> Memcached {
    let mut memcached = seed();
    memcached.spec = serde_json::from_value(spec.clone()).expect("a valid spec");
    memcached
}

fn parse(yaml: &str) -> Memcached {
    serde_saphyr::from_str(yaml).expect("a valid Memcached")
}

#[test]
fn samples_get_neither_errors_nor_warnings() {
    for sample in [seed(), tuned(), secured()] {
        let found = crate::validation::review(None, &sample);
        assert_eq!((found.errors, found.warnings), (vec![], Vec::<String>::new()), "{:?}", sample.metadata.name);
    }
}

#[test]
fn first_sample_has_only_a_size() {
    let spec = serde_json::to_value(seed().spec).expect("JSON");
    assert_eq!(spec, json!({"size": 3}));
}
