//! The plugin of kubectl in a release.

use std::collections::BTreeMap;
use std::io::Read as _;

use flate2::read::GzDecoder;
use images::{Digest, Platform};
use release::plugin::{KREW, PROGRAM};
use release::statement::Builder;
use release::{Artifacts, Plan};
use serde_json::Value;

use crate::kit::{self, Checkout, VERSION};

fn assemble(builder: Builder) -> Artifacts {
    let checkout = Checkout::new();
    let plan = Plan { builder, platforms: Platform::ALL.to_vec(), ..checkout.plan_for("ghcr.io/team") };
    let store = checkout.store();
    let images = Platform::ALL.map(|platform| kit::image(&store, platform, "one"));
    kit::assemble(&plan, &store, &images)
}

fn of_workflow() -> Builder {
    Builder::from_environment(|name| {
        let value = match name {
            "GITHUB_SERVER_URL" => "https://github.com",
            "GITHUB_REPOSITORY" => "team/operators",
            "GITHUB_RUN_ID" => "7",
            "GITHUB_RUN_ATTEMPT" => "1",
            _ => return None,
        };
        Some(value.to_owned())
    })
}

#[test]
fn archive_of_each_platform_has_its_program_the_completion_and_the_licence() {
    let artifacts = assemble(of_workflow());
    for platform in Platform::ALL {
        let name = format!("kubectl-operators-linux-{}.tar.gz", platform.architecture());
        let mut archive = tar::Archive::new(GzDecoder::new(&*artifacts.files[&name]));
        let mut files = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let (path, mode) = (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap());
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            files.insert(path, (mode, content));
        }
        let expected = [
            (PROGRAM, 0o755, format!("a program for {platform}")),
            ("kubectl_complete-operators", 0o755, "#!/bin/sh\n".to_owned()),
            ("LICENSE", 0o644, "a licence\n".to_owned()),
        ];
        let expected = expected.map(|(path, mode, content)| (path.to_owned(), (mode, content)));
        assert_eq!(files, BTreeMap::from(expected));
        let sums = String::from_utf8(artifacts.files["SHA256SUMS"].to_vec()).unwrap();
        let sum = Digest::of(&artifacts.files[&name]).hex().to_owned();
        assert!(sums.contains(&format!("{sum}  {name}\n")), "{sums}");
    }
}

#[test]
fn krew_finds_each_archive_on_the_page_of_the_release_and_knows_its_checksum() {
    let artifacts = assemble(of_workflow());
    let manifest = String::from_utf8(artifacts.files[KREW].to_vec()).unwrap();
    let manifest: Value = serde_saphyr::from_str(&manifest).unwrap();
    assert_eq!((&manifest["kind"], &manifest["metadata"]["name"]), (&"Plugin".into(), &"operators".into()));
    let spec = &manifest["spec"];
    assert_eq!(spec["version"], format!("v{VERSION}"));
    let platforms = spec["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), Platform::ALL.len());
    for (platform, architecture) in platforms.iter().zip(["amd64", "arm64"]) {
        assert_eq!(platform["selector"]["matchLabels"]["arch"], architecture);
        assert_eq!(platform["bin"], PROGRAM);
        let name = format!("kubectl-operators-linux-{architecture}.tar.gz");
        let address = format!("https://github.com/team/operators/releases/download/v{VERSION}/{name}");
        assert_eq!(platform["uri"], address);
        assert_eq!(platform["sha256"], Digest::of(&artifacts.files[&name]).hex());
    }
}

#[test]
fn release_without_a_public_address_has_archives_but_no_manifest_for_krew() {
    // Outside of a workflow, the address is that in Cargo.toml.
    for (address, has_manifest) in [("", false), ("https://git.example.com/team/operators", true)] {
        let artifacts = assemble(Builder::of_repository(address, |_| None));
        assert!(artifacts.files.contains_key("kubectl-operators-linux-arm64.tar.gz"));
        assert_eq!(artifacts.files.contains_key(KREW), has_manifest, "{address:?}");
    }
}
