//! What the provenance says about where a release comes from.

use images::Platform;
use release::statement::Builder;
use release::{Artifacts, Plan, check};
use serde_json::{Value, json};

use crate::kit::{self, Checkout, VERSION};

fn assemble(checkout: &Checkout, builder: Builder) -> (Plan, Artifacts) {
    let plan = Plan { builder, ..checkout.plan_for("ghcr.io/team") };
    let store = checkout.store();
    let artifacts = kit::assemble(&plan, &store, &[kit::image(&store, Platform::Amd64, "one")]);
    (plan, artifacts)
}

#[test]
fn provenance_names_the_sources_and_all_that_was_made_of_them() {
    let checkout = Checkout::new();
    let (plan, artifacts) = assemble(&checkout, Builder::from_environment(|_| None));
    let ready = check(&plan).unwrap();
    let statement: Value = serde_json::from_slice(&artifacts.provenance.content).unwrap();
    assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
    assert_eq!(statement["predicateType"], "https://slsa.dev/provenance/v1");

    let definition = &statement["predicate"]["buildDefinition"];
    let parameters =
        json!({"version": VERSION, "registry": "ghcr.io/team", "platforms": ["linux/amd64"], "profile": "release"});
    assert_eq!(definition["externalParameters"], parameters);
    let sources = definition["resolvedDependencies"].as_array().unwrap();
    assert_eq!(sources[0]["digest"]["gitCommit"], ready.commit);
    assert_eq!(sources[1], json!({"name": "Cargo.lock", "digest": {"sha256": ready.lock.hex()}}));
    let tool = |name: &str| json!({"name": name, "uri": format!("pkg:generic/{name}@1")});
    assert_eq!(sources[2..], [tool("compiler-for-amd64"), tool("rust")]);
    assert_eq!(statement["predicate"]["runDetails"], json!({"builder": {"id": "urn:operators:maintainer"}}));

    let subjects = statement["subject"].as_array().unwrap();
    let names: Vec<_> = subjects.iter().map(|subject| subject["name"].as_str().unwrap()).collect();
    assert_eq!(names[..2], ["ghcr.io/team/controller-manager", "ghcr.io/team/charts/operators"]);
    // These two contain the statement, so it cannot contain their digests.
    let files =
        artifacts.files.keys().map(String::as_str).filter(|name| !["provenance.json", "SHA256SUMS"].contains(name));
    assert_eq!(names[2..], files.collect::<Vec<_>>());
}

#[test]
fn tool_that_platforms_share_has_one_place_in_the_provenance() {
    let checkout = Checkout::new();
    let (plan, store) = (checkout.plan_for("ghcr.io/team"), checkout.store());
    let images = Platform::ALL.map(|platform| kit::image(&store, platform, "one"));
    let artifacts = kit::assemble(&plan, &store, &images);
    let statement: Value = serde_json::from_slice(&artifacts.provenance.content).unwrap();
    let sources = &statement["predicate"]["buildDefinition"]["resolvedDependencies"];
    let names: Vec<_> = sources.as_array().unwrap().iter().map(|source| source["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["source", "Cargo.lock", "compiler-for-amd64", "compiler-for-arm64", "rust"]);
}

#[test]
fn provenance_of_a_workflow_names_its_run() {
    let variable = |name: &str| {
        let value = match name {
            "GITHUB_SERVER_URL" => "https://github.com",
            "GITHUB_REPOSITORY" => "team/operators",
            "GITHUB_RUN_ID" => "7",
            "GITHUB_RUN_ATTEMPT" => "2",
            "RUNNER_ENVIRONMENT" => "github-hosted",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let checkout = Checkout::new();
    let (plan, artifacts) = assemble(&checkout, Builder::from_environment(variable));
    let commit = check(&plan).unwrap().commit;
    let statement: Value = serde_json::from_slice(&artifacts.provenance.content).unwrap();
    let run = "https://github.com/team/operators/actions/runs/7/attempts/2";
    let details = json!({
        "builder": {"id": "https://github.com/actions/runner/github-hosted"},
        "metadata": {"invocationId": run},
    });
    assert_eq!(statement["predicate"]["runDetails"], details);
    let source = &statement["predicate"]["buildDefinition"]["resolvedDependencies"][0];
    assert_eq!(source["uri"], format!("git+https://github.com/team/operators@{commit}"));
}
