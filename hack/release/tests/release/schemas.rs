//! The kinds of a release beside those of the release before.

use release::{Plan, Ready, check, compatible, plan};
use serde_json::{Value, json};

use crate::kit::Checkout;

/// A version of a kind whose specification has these fields.
fn version(name: &str, fields: &[&str]) -> Value {
    let fields: serde_json::Map<_, _> =
        fields.iter().map(|field| ((*field).to_owned(), json!({"type": "string"}))).collect();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    json!({"name": name, "served": true, "schema": {"openAPIV3Schema": schema}})
}

/// Commits a definition with the version `v1`, whose specification has these fields.
fn define(checkout: &Checkout, fields: &[&str]) -> Ready {
    define_versions(checkout, &json!([version("v1", fields)]))
}

fn define_versions(checkout: &Checkout, versions: &Value) -> Ready {
    let definition = json!({"metadata": {"name": "gadgets.example.com"}, "spec": {"versions": versions}});
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
    for version in ["1.2.4", "1.3.0", "2.0.0"] {
        let error = said(version, &ready).unwrap_err();
        assert!(error.contains(&format!("{version} may not refuse what 1.2.3 accepts")), "{error}");
        assert!(error.ends_with("\n- gadgets.example.com v1.spec.size is gone"), "{error}");
    }
}

#[test]
fn deprecated_version_goes_with_a_major_version_or_a_minor_one_before_the_first() {
    let checkout = Checkout::new();
    let mut old = version("v1beta1", &["size"]);
    old["deprecated"] = json!(true);
    let present = version("v1", &["size"]);
    define_versions(&checkout, &json!([old, present]));
    checkout.tag("v0.1.0");
    checkout.tag("v1.2.3");
    let ready = define_versions(&checkout, &json!([present]));
    for (version, may) in [("0.1.1", false), ("0.2.0", true), ("1.2.4", false), ("1.3.0", false), ("2.0.0", true)] {
        let said = compatible(&of_version(&checkout, version), &ready);
        assert_eq!(said.is_ok(), may, "{version} {said:?}");
        let said = said.unwrap_or_else(|error| error.to_string());
        assert!(said.ends_with("\n- gadgets.example.com v1beta1 is not served"), "{version} {said}");
    }
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

/// A shallow clone may have the tag, but not the commits from it to the present one.
#[test]
fn clone_without_the_commits_since_the_last_release_is_no_first_release() {
    let checkout = Checkout::new();
    let ready = define(&checkout, &["size"]);
    define(&checkout, &["size", "colour"]);
    checkout.tag("v1.2.3");
    let error = compatible(&of_version(&checkout, "1.2.4"), &ready).unwrap_err().to_string();
    assert!(error.contains("--unshallow"), "{error}");
}
