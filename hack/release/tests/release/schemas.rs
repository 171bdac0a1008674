//! The kinds of a release beside those of the release before.

use release::{Plan, Ready, check, compatible, plan};
use serde_json::json;

use crate::kit::Checkout;

/// Commits a definition of a kind whose specification has these fields.
fn define(checkout: &Checkout, fields: &[&str]) -> Ready {
    let fields: serde_json::Map<_, _> =
        fields.iter().map(|field| ((*field).to_owned(), json!({"type": "string"}))).collect();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({"metadata": {"name": "gadgets.example.com"}, "spec": {"versions": [version]}});
    checkout.write("charts/operators/files/gadget/crd-gadgets.yaml", &definition.to_string());
    checkout.commit();
    check(&checkout.plan_for("127.0.0.1:1/team")).unwrap()
}

fn of_version(checkout: &Checkout, version: &str) -> Plan {
    Plan { version: plan::version(version).unwrap(), ..checkout.plan_for("127.0.0.1:1/team") }
}

#[test]
fn release_accepts_what_the_last_one_accepted() {
    let checkout = Checkout::new();
    let ready = define(&checkout, &["size"]);
    let said = |version: &str, ready: &Ready| {
        compatible(&of_version(&checkout, version), ready).map_err(|error| error.to_string())
    };
    assert_eq!(said("1.2.3", &ready).unwrap(), "those of a first release");
    checkout.tag("v1.2.3");
    checkout.tag("v1.2.4-rc.1");
    assert_eq!(said("1.2.3", &ready).unwrap(), "those of a first release", "the workflow runs at the tag itself");

    let ready = define(&checkout, &["size", "colour"]);
    assert_eq!(said("1.3.0", &ready).unwrap(), "accept what those of 1.2.3 accept");
    let ready = define(&checkout, &["colour"]);
    let error = said("1.3.0", &ready).unwrap_err();
    assert!(error.contains("1.3.0 may not refuse what 1.2.3 accepts"), "{error}");
    assert!(error.ends_with("\n- gadgets.example.com v1.spec.size is gone"), "{error}");
    let major = said("2.0.0", &ready).unwrap();
    assert!(major.starts_with("refuse what those of 1.2.3 accept") && major.contains(".size is gone"), "{major}");
}

#[test]
fn minor_version_before_the_first_major_one_may_refuse_more() {
    let checkout = Checkout::new();
    define(&checkout, &["size"]);
    checkout.tag("v0.1.0");
    let ready = define(&checkout, &[]);
    compatible(&of_version(&checkout, "0.1.1"), &ready).unwrap_err();
    compatible(&of_version(&checkout, "0.2.0"), &ready).unwrap();
}

#[test]
fn clone_without_the_tag_of_the_last_release_is_no_first_release() {
    let checkout = Checkout::new();
    let ready = define(&checkout, &["size"]);
    // The changelog of the checkout has 1.2.3.
    let error = || compatible(&of_version(&checkout, "1.2.4"), &ready).unwrap_err().to_string();
    assert!(error().contains("no tag v1.2.3") && error().contains("git fetch --tags"), "{}", error());
    checkout.tag("v1.2.2");
    assert!(error().contains("no tag v1.2.3"), "an older release is not the last one: {}", error());
}
