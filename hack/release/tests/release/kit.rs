//! A client of a registry, and a checkout that is ready for a release.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use bytes::Bytes;
use chart::helm::{Helm, Version, succeeded};
use images::sbom::Component;
use images::tools::Tool;
use images::{ImageSpec, Layer, Platform, Reference, Store};
use registry::Registry;
use registry_client::{Client, Credentials, Options};
use release::statement::Builder;
use release::{Artifacts, Image, Plan, Plugin, check, plan};
use tempfile::TempDir;

pub(crate) const VERSION: &str = "1.2.3";

/// A client of this registry, without a password.
pub(crate) fn client(registry: &Registry) -> Client {
    let options = Options { credentials: Credentials::Anonymous, ..Options::default() };
    Client::new(&registry.address.to_string(), options).unwrap()
}

/// A repository with the chart of this one, whose commit is ready for the release.
pub(crate) struct Checkout {
    folder: TempDir,
}

impl Checkout {
    pub(crate) fn new() -> Self {
        let checkout = Self { folder: tempfile::tempdir().unwrap() };
        checkout.write("Cargo.toml", &format!("[workspace.package]\nversion = \"{VERSION}\"\n"));
        checkout.write("Cargo.lock", "version = 4\n");
        let changelog = format!(
            "# Changelog\n\n## [Unreleased]\n\n## [{VERSION}] - 2026-01-01\n\n### Added\n\n- The first release.\n"
        );
        checkout.write("CHANGELOG.md", &changelog);
        checkout.write("LICENSE", "a licence\n");
        checkout.write("shared/kubectl-operators/kubectl_complete-operators", "#!/bin/sh\n");
        let chart = checkout.root().join("charts");
        fs::create_dir_all(&chart).unwrap();
        succeeded(Command::new("cp").arg("-r").arg(chart::folder()).arg(chart)).unwrap();
        checkout.git(&["init", "--quiet"]);
        checkout.commit();
        checkout
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("checkout")
    }

    /// A folder beside the repository.
    pub(crate) fn output(&self) -> PathBuf {
        self.folder.path().join("output")
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(self.folder.path().join("store")).unwrap()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message=change"]);
    }

    /// Gives the last commit a tag.
    pub(crate) fn tag(&self, name: &str) {
        self.git(&["tag", name]);
    }

    /// Sets a value of git's configuration in this repository, in place of the user's.
    pub(crate) fn configure(&self, name: &str, value: &str) {
        self.git(&["config", name, value]);
    }

    fn git(&self, arguments: &[&str]) {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=test", "-c", "user.email=test@example.com"]).args(arguments);
        succeeded(git.current_dir(self.root()).env_remove("GIT_DIR").env_remove("GIT_INDEX_FILE")).unwrap();
    }

    pub(crate) fn plan(&self, registry: &Registry) -> Plan {
        self.plan_for(&format!("{}/team", registry.address))
    }

    pub(crate) fn plan_for(&self, registry: &str) -> Plan {
        Plan {
            version: plan::version(VERSION).unwrap(),
            registry: plan::registry(registry).unwrap(),
            platforms: vec![Platform::Amd64],
            profile: "release".to_owned(),
            builder: Builder::from_environment(|_| None),
            checkout: self.root(),
            output: self.output(),
        }
    }
}

/// Stores an image with this content.
pub(crate) fn image(store: &Store, platform: Platform, content: &str) -> Image {
    let mut files = Layer::new();
    files.file("/content", content, 0o644);
    let name = format!("localhost/app:{content}-{}", platform.architecture());
    let references = vec![Reference::parse(&name).unwrap()];
    let spec = ImageSpec { references, files, platform: Some(platform), ..ImageSpec::default() };
    let image = spec.build().unwrap();
    store.put(&image).unwrap();
    let license = "Apache-2.0".to_owned();
    let part = Component { name: "part".to_owned(), version: VERSION.to_owned(), license, sha256: None, vendor: None };
    let tool = |name: &str| Tool { name: name.to_owned(), uri: format!("pkg:generic/{name}@1") };
    let tools = vec![tool("rust"), tool(&format!("compiler-for-{}", platform.architecture()))];
    Image { platform, digest: image.digest(), components: vec![part], tools }
}

pub(crate) fn assemble(plan: &Plan, store: &Store, images: &[Image]) -> Artifacts {
    let helm = Helm::of(Version::Four).unwrap();
    let program = |platform: &Platform| Bytes::from(format!("a program for {platform}"));
    let plugins: Vec<_> =
        plan.platforms.iter().map(|platform| Plugin { platform: *platform, program: program(platform) }).collect();
    Artifacts::assemble(plan, &check(plan).unwrap(), images.to_vec(), &plugins, store, &helm).unwrap()
}
