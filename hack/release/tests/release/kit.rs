//! A client of a registry, and a checkout that is ready for a release.

use std::path::PathBuf;

use bytes::Bytes;
use chart::helm::{Helm, Version};
use images::sbom::Component;
use images::tools::Tool;
use images::{ImageSpec, Layer, Platform, Reference, Store};
use registry::Registry;
use registry_client::{Client, Credentials, Options};
use release::{Artifacts, Image, Plan, Plugin, check, checkout};

pub(crate) const VERSION: &str = "1.2.3";

/// A client of this registry, without a password.
pub(crate) fn client(registry: &Registry) -> Client {
    let options = Options { credentials: Credentials::Anonymous, ..Options::default() };
    Client::new(&registry.address.to_string(), options).unwrap()
}

/// A repository whose commit is ready for the release of [`VERSION`], and a store of images beside it. Each step works, or the test
/// fails.
pub(crate) struct Checkout(checkout::Checkout);

impl Checkout {
    pub(crate) fn new() -> Self {
        Self(checkout::Checkout::new(VERSION).unwrap())
    }

    /// A folder beside the repository.
    pub(crate) fn output(&self) -> PathBuf {
        self.0.output()
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(self.output().with_file_name("store")).unwrap()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        self.0.write(name, text).unwrap();
    }

    pub(crate) fn commit(&self) {
        self.0.commit().unwrap();
    }

    pub(crate) fn tag(&self, name: &str) {
        self.0.tag(name).unwrap();
    }

    pub(crate) fn configure(&self, name: &str, value: &str) {
        self.0.configure(name, value).unwrap();
    }

    pub(crate) fn plan(&self, registry: &Registry) -> Plan {
        self.plan_for(&format!("{}/team", registry.address))
    }

    pub(crate) fn plan_for(&self, registry: &str) -> Plan {
        self.0.plan(registry, &[Platform::Amd64]).unwrap()
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
