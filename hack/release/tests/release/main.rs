//! Releases into a real registry: distribution, which most self-hosted registries run. The images are tiny; the chart is the real
//! one.
#![expect(clippy::unwrap_used, reason = "clippy knows tests by their attribute, and these have helpers")]

mod kit;
mod layout;
mod plugin;
mod provenance;
mod schemas;
mod signing;

use std::fs;

use chart::helm::{Helm, Version, succeeded};
use images::reference::Repository;
use images::{Digest, Platform};
use registry::Registry;
use registry_client::Name;
use release::documented::{self, Reader};
use release::{Plan, check, plan};
use serde_json::{Value, json};

use crate::kit::{Checkout, VERSION};

#[tokio::test]
async fn released_chart_names_the_digest_of_the_released_index() {
    let (registry, checkout) = (Registry::start().unwrap(), Checkout::new());
    let (plan, store) = (checkout.plan(&registry), checkout.store());
    let commit = check(&plan).unwrap().commit;
    let images = [Platform::Amd64, Platform::Arm64].map(|platform| kit::image(&store, platform, "one"));
    let artifacts = kit::assemble(&plan, &store, &images);
    let client = kit::client(&registry);
    assert!(release::publish(&client, &store, &plan, &artifacts, None).await.unwrap() > 0);

    // The index under the tag leads to the image of each platform.
    let tag = Name::Tag(VERSION.to_owned());
    let index = client.manifest(&plan.image(), &tag).await.unwrap().expect("the tag exists");
    assert_eq!(index.digest, artifacts.index.digest());
    let listed: Value = serde_json::from_slice(&index.content).unwrap();
    for (image, architecture) in images.iter().zip(["amd64", "arm64"]) {
        let entry = listed["manifests"].as_array().unwrap().iter().find(|it| it["digest"] == image.digest.to_string());
        assert_eq!(entry.expect("the index lists it")["platform"]["architecture"], architecture);
        let manifest = client.manifest(&plan.image(), &Name::Digest(image.digest.clone())).await.unwrap();
        let manifest: Value = serde_json::from_slice(&manifest.expect("it is there").content).unwrap();
        let config = Digest::parse(manifest["config"]["digest"].as_str().unwrap()).unwrap();
        let size = manifest["config"]["size"].as_u64().unwrap();
        let config: Value = serde_json::from_slice(&client.blob(&plan.image(), &config, size).await.unwrap()).unwrap();
        assert_eq!(config["architecture"], architecture);
    }

    // A registry shows what both are, and of which commit.
    let annotations = |title: &str, description: &str| {
        let named = [("description", description), ("revision", &commit), ("title", title), ("version", VERSION)];
        let named = named.map(|(name, value)| (format!("org.opencontainers.image.{name}"), json!(value)));
        Value::Object(named.into_iter().collect())
    };
    assert_eq!(listed["annotations"], annotations("controller-manager", "The operators of this release."));
    let manifest = client.manifest(&plan.chart(), &tag).await.unwrap().expect("the tag exists");
    let of_chart: Value = serde_json::from_slice(&manifest.content).unwrap();

    // Both majors of Helm pull the chart, and it installs this index.
    let chart = format!("oci://{}", plan.chart());
    for version in Version::ALL {
        let (helm, folder) = (Helm::of(version).unwrap(), tempfile::tempdir().unwrap());
        let mut pull = helm.command();
        pull.args(["pull", &chart, "--version", VERSION, "--plain-http", "--destination"]).arg(folder.path());
        succeeded(&mut pull).unwrap();
        let package = folder.path().join(format!("operators-{VERSION}.tgz"));
        assert_eq!(fs::read(&package).unwrap(), artifacts.package.content);
        let values = succeeded(helm.command().args(["show", "values"]).arg(&package)).unwrap();
        let values: Value = serde_saphyr::from_str(&values).unwrap();
        assert_eq!(values["image"]["repository"], plan.image().to_string());
        assert_eq!(values["image"]["digest"], index.digest.to_string());
        let shown = succeeded(helm.command().args(["show", "chart"]).arg(&package)).unwrap();
        let shown: Value = serde_saphyr::from_str(&shown).unwrap();
        assert_eq!((&shown["version"], &shown["appVersion"]), (&VERSION.into(), &VERSION.into()));
        assert_eq!(of_chart["annotations"], annotations("operators", shown["description"].as_str().unwrap()));
        let annotation = |name: &str| -> Value {
            let text = shown["annotations"][format!("artifacthub.io/{name}")].as_str().unwrap();
            serde_saphyr::from_str(text).unwrap()
        };
        let image = format!("{}:{VERSION}@{}", plan.image(), index.digest);
        let images = annotation("images");
        assert_eq!(images[0]["image"], image);
        assert!(images[1]["image"].is_string(), "the images of the operators' pods stay: {images}");
        assert_eq!(annotation("changes"), json!([{"kind": "added", "description": "The first release."}]));
        assert_eq!(annotation("license"), "Apache-2.0", "the annotations of the chart itself stay");
    }
    // The plain manifests too, and nothing still names the image of a build on this machine.
    let manifests = fs::read_to_string(plan.output.join("install.yaml")).unwrap();
    assert!(manifests.contains(&format!("{}@{}", plan.image(), index.digest)), "{manifests}");
    assert!(!manifests.contains("localhost/"), "{manifests}");
}

#[tokio::test]
async fn repeated_release_has_the_same_digests_and_sends_nothing() {
    let (registry, checkout) = (Registry::start().unwrap(), Checkout::new());
    let (plan, client) = (checkout.plan(&registry), kit::client(&registry));
    // Each in a store and a folder of its own, as on another machine.
    let release = |name: &str| {
        let store = images::Store::open(checkout.output().join(name).join("store")).unwrap();
        let plan = release::Plan { output: checkout.output().join(name).join("files"), ..plan.clone() };
        let image = kit::image(&store, Platform::Amd64, "one");
        (kit::assemble(&plan, &store, &[image]), store, plan)
    };
    let (first, store, plan_of_first) = release("first");
    assert!(release::publish(&client, &store, &plan_of_first, &first, None).await.unwrap() > 0);
    let (second, store, plan_of_second) = release("second");
    assert_eq!(second.files, first.files);
    assert_eq!((second.index.digest(), second.chart.digest()), (first.index.digest(), first.chart.digest()));
    assert_eq!(release::publish(&client, &store, &plan_of_second, &second, None).await.unwrap(), 0);
}

/// A user's git may write the ends of lines of another system.
#[test]
fn chart_does_not_depend_on_the_configuration_of_git() {
    let checkout = Checkout::new();
    let (plan, store) = (checkout.plan_for("ghcr.io/team"), checkout.store());
    let image = [kit::image(&store, Platform::Amd64, "one")];
    let before = kit::assemble(&plan, &store, &image);
    checkout.configure("core.autocrlf", "true");
    let after = kit::assemble(&plan, &store, &image);
    assert!(after.package == before.package, "git has changed the chart on the way into the package");
}

#[tokio::test]
async fn bill_of_materials_is_found_by_the_image_that_it_describes() {
    let (registry, checkout) = (Registry::start().unwrap(), Checkout::new());
    let (plan, store, client) = (checkout.plan(&registry), checkout.store(), kit::client(&registry));
    let images = [Platform::Amd64, Platform::Arm64].map(|platform| kit::image(&store, platform, "one"));
    let artifacts = kit::assemble(&plan, &store, &images);
    // Twice: the second time finds it in the list already.
    for _ in 0..2 {
        release::publish(&client, &store, &plan, &artifacts, None).await.unwrap();
    }
    let repository = plan.image();
    for image in &images {
        let referrers = client.referrers(&repository, &image.digest).await.unwrap();
        assert_eq!(referrers.len(), 1, "{referrers:?}");
        let manifest = client.manifest(&repository, &Name::Digest(referrers[0].clone())).await.unwrap();
        let manifest: Value = serde_json::from_slice(&manifest.expect("it is there").content).unwrap();
        assert_eq!(manifest["subject"]["digest"], image.digest.to_string());
        assert_eq!(manifest["artifactType"], "application/vnd.cyclonedx+json");
        let layer = &manifest["layers"][0];
        let digest = Digest::parse(layer["digest"].as_str().unwrap()).unwrap();
        let bill = client.blob(&repository, &digest, layer["size"].as_u64().unwrap()).await.unwrap();
        let bill: Value = serde_json::from_slice(&bill).unwrap();
        assert_eq!(bill["metadata"]["component"]["version"], image.digest.to_string());
        assert_eq!(bill["components"][0]["name"], "part");
    }
}

/// With the commands of the chart's README.
#[tokio::test]
async fn oras_finds_and_downloads_the_bill_of_materials() {
    let (registry, checkout) = (Registry::start().unwrap(), Checkout::new());
    let (plan, store, client) = (checkout.plan(&registry), checkout.store(), kit::client(&registry));
    let images = [Platform::Amd64, Platform::Arm64].map(|platform| kit::image(&store, platform, "one"));
    let artifacts = kit::assemble(&plan, &store, &images);
    release::publish(&client, &store, &plan, &artifacts, None).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bill = Reader::new(folder.path()).unwrap().bill_of_materials(&plan).unwrap();
    let bill: Value = serde_json::from_slice(&bill).unwrap();
    assert_eq!(bill["metadata"]["component"]["version"], images[0].digest.to_string());
}

/// Otherwise a command that the README gains would be run by no test.
#[test]
fn each_documented_command_is_one_that_the_tests_run() {
    let plan = Checkout::new().plan_for("127.0.0.1:1/team");
    let readme = fs::read_to_string(chart::folder().join("README.md")).unwrap();
    let commands = documented::commands(&readme, &plan).unwrap();
    let cosign: Vec<_> = commands.iter().filter(|command| command[0] == "cosign").collect();
    let (verbs, subjects): (Vec<_>, Vec<_>) =
        cosign.iter().map(|command| (command[1].as_str(), command.last().unwrap().as_str())).unzip();
    assert_eq!(verbs, ["verify", "verify-attestation", "verify", "verify-attestation"]);
    let [image, chart] = ["controller-manager", "charts/operators"].map(|it| format!("127.0.0.1:1/team/{it}:1.2.3"));
    assert_eq!(subjects, [&image, &image, &chart, &chart]);
    let others: Vec<_> = commands.iter().filter(|command| command[0] != "cosign").map(|it| it[..2].join(" ")).collect();
    assert_eq!(others, ["oras discover", "oras pull"]);
    // The examples are those of no release.
    let next = Plan { version: plan::version("4.5.6").unwrap(), ..plan };
    let commands = documented::commands(&readme, &next).unwrap().concat().join(" ");
    assert!(commands.contains("/controller-manager:4.5.6") && !commands.contains("1.2.3"), "{commands}");
    assert!(documented::commands("# Chart\n\n$ oras pull\n", &next).is_err(), "it has no section with commands");
}

#[tokio::test]
async fn released_version_never_changes() {
    let (registry, checkout) = (Registry::start().unwrap(), Checkout::new());
    let (plan, store, client) = (checkout.plan(&registry), checkout.store(), kit::client(&registry));
    let first = kit::assemble(&plan, &store, &[kit::image(&store, Platform::Amd64, "one")]);
    release::publish(&client, &store, &plan, &first, None).await.unwrap();
    let other = kit::assemble(&plan, &store, &[kit::image(&store, Platform::Amd64, "other")]);
    let error = release::publish(&client, &store, &plan, &other, None).await.unwrap_err().to_string();
    assert!(error.contains(&format!("controller-manager:{VERSION} was released before")), "{error}");
    let tag = Name::Tag(VERSION.to_owned());
    assert_eq!(client.digest(&plan.image(), &tag).await.unwrap(), Some(first.index.digest()));
    let other = Name::Digest(other.images[0].digest.clone());
    assert_eq!(client.digest(&plan.image(), &other).await.unwrap(), None, "it pushed before it looked");
}

#[tokio::test]
async fn checksums_cover_all_other_files() {
    let (registry, checkout) = (Registry::start().unwrap(), Checkout::new());
    let (plan, store) = (checkout.plan(&registry), checkout.store());
    let artifacts = kit::assemble(&plan, &store, &[kit::image(&store, Platform::Amd64, "one")]);
    let mut sha256sum = std::process::Command::new("sha256sum");
    let said = succeeded(sha256sum.args(["--check", "--strict", "SHA256SUMS"]).current_dir(&plan.output)).unwrap();
    let in_folder = fs::read_dir(&plan.output).unwrap().count();
    assert_eq!((said.lines().count(), artifacts.files.len()), (in_folder - 1, in_folder), "{said}");
    assert!(said.contains(&format!("operators-{VERSION}.tgz: OK")) && said.contains("install.yaml: OK"), "{said}");
    assert_eq!(fs::read_to_string(plan.output.join("notes.md")).unwrap(), "### Added\n\n- The first release.\n");
}

#[test]
fn checkout_that_is_not_ready_names_every_problem() {
    let checkout = Checkout::new();
    let plan = checkout.plan_for("127.0.0.1:1/team");
    let ready = check(&plan).unwrap();
    assert_eq!((ready.commit.len(), ready.notes.as_str()), (40, "### Added\n\n- The first release.\n"));

    checkout.write("Cargo.toml", "[workspace.package]\nversion = \"1.2.2\"\n");
    checkout.write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n- one\n");
    checkout.write("new.txt", "");
    let error = check(&plan).unwrap_err().to_string();
    for part in [
        "CHANGELOG.md, Cargo.toml, new.txt",
        "commit or stash",
        "the workspace has the version 1.2.2: set `version = \"1.2.3\"`",
        "CHANGELOG.md has no entry for 1.2.3",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    checkout.commit();
    let error = check(&plan).unwrap_err().to_string();
    assert!(!error.contains("commit or stash") && error.contains("no entry for 1.2.3"), "{error}");
}

#[test]
fn checkout_that_changes_during_the_builds_is_not_released() {
    let checkout = Checkout::new();
    let plan = checkout.plan_for("127.0.0.1:1/team");
    let ready = check(&plan).unwrap();
    assert_eq!(release::unchanged_during(&plan, &ready, || Ok(1)).unwrap(), 1);
    let edit = || {
        checkout.write("new.txt", "");
        Ok(())
    };
    let error = format!("{:#}", release::unchanged_during(&plan, &ready, edit).unwrap_err());
    assert!(error.contains("during the builds") && error.contains("commit or stash new.txt"), "{error}");
    let commit = || {
        checkout.commit();
        Ok(())
    };
    let error = format!("{:#}", release::unchanged_during(&plan, &ready, commit).unwrap_err());
    let after = check(&plan).unwrap().commit;
    assert!(error.contains(&ready.commit) && error.contains(&after) && error.contains("during the builds"), "{error}");
    let failed = release::unchanged_during(&plan, &ready, || -> anyhow::Result<()> { anyhow::bail!("no compiler") });
    assert_eq!(failed.unwrap_err().to_string(), "no compiler");
}

#[tokio::test]
async fn registry_says_before_the_builds_what_it_has_of_the_version() {
    let (registry, checkout) = (Registry::start().unwrap(), Checkout::new());
    let (plan, store, client) = (checkout.plan(&registry), checkout.store(), kit::client(&registry));
    assert_eq!(release::preflight(&client, &plan).await.unwrap(), Vec::<String>::new());
    let artifacts = kit::assemble(&plan, &store, &[kit::image(&store, Platform::Amd64, "one")]);
    release::publish(&client, &store, &plan, &artifacts, None).await.unwrap();
    let released = release::preflight(&client, &plan).await.unwrap();
    let line =
        |repository: Repository, digest: Digest| format!("{repository}:{VERSION} exists with the digest {digest}");
    assert_eq!(released, [line(plan.image(), artifacts.index.digest()), line(plan.chart(), artifacts.chart.digest())]);
}

#[tokio::test]
async fn registry_that_refuses_the_user_is_found_before_the_builds() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("htpasswd");
    // The password "secret" of `user`, as `htpasswd -B` writes it.
    fs::write(&users, "user:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n").unwrap();
    let registry = Registry::with(&json!({"htpasswd": {"realm": "test", "path": users}}), json!({})).unwrap();
    let checkout = Checkout::new();
    let plan = checkout.plan(&registry);
    let error = format!("{:#}", release::preflight(&kit::client(&registry), &plan).await.unwrap_err());
    assert!(error.contains(&format!("could not begin an upload to {}", plan.image())), "{error}");
    assert!(error.contains(&format!("docker login {}", registry.address)), "{error}");
}
