//! Everything that a release consists of, on this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use chart::helm::Helm;
use chart::plain;
use images::image::MANIFEST;
use images::sbom::{self, Component};
use images::tools::Tool;
use images::{Digest, Platform, Store};
use serde_json::json;

use crate::oci::{self, Annotations, Attachment, CYCLONEDX, Document};
use crate::package::{self, Package};
use crate::plugin::{self, Plugin};
use crate::statement::{Statement, Subject};
use crate::{Plan, Ready};

/// The file with the checksums of all others, which `sha256sum --check` reads.
pub const CHECKSUMS: &str = "SHA256SUMS";

/// The image of one platform, in the store.
#[derive(Clone, Debug)]
pub struct Image {
    /// Where it runs.
    pub platform: Platform,
    /// The digest of its manifest.
    pub digest: Digest,
    /// The crates in its programs.
    pub components: Vec<Component>,
    /// The tools that made its programs.
    pub tools: Vec<Tool>,
}

/// What a release consists of.
#[derive(Clone, Debug)]
pub struct Artifacts {
    /// The images that the index names.
    pub images: Vec<Image>,
    /// The bill of materials of each image.
    pub bills: Vec<Attachment>,
    /// The index.
    pub index: Document,
    /// The chart.
    pub package: Package,
    /// The manifest of the chart.
    pub chart: Document,
    /// How the image, the chart and the files came to be.
    pub provenance: Statement,
    /// The files for download, by name.
    pub files: BTreeMap<String, Bytes>,
}

impl Artifacts {
    /// Puts the release together from images of the store and from the plugin for each platform, and writes its files.
    pub fn assemble(
        plan: &Plan,
        ready: &Ready,
        images: Vec<Image>,
        plugins: &[Plugin],
        store: &Store,
        helm: &Helm,
    ) -> Result<Self> {
        let manifest = |image: &Image| {
            let path = store.blob_path(&image.digest);
            let content = fs::read(&path).with_context(|| format!("could not read {}", path.display()))?;
            Ok((image.platform, Document { media_type: MANIFEST, content: content.into() }))
        };
        let manifests = images.iter().map(manifest).collect::<Result<Vec<_>>>()?;
        let version = plan.version.to_string();
        let annotated = |title: &str, description: &str| {
            let values =
                [("description", description), ("revision", &ready.commit), ("title", title), ("version", &version)];
            let named = |(name, value): (&str, &str)| (format!("org.opencontainers.image.{name}"), value.to_owned());
            Annotations::from(values.map(named))
        };
        let index = oci::index(&manifests, annotated("controller-manager", "The operators of this release."))?;
        let package = package::package(helm, plan, ready, &index.digest())?;
        let chart = oci::chart(&package.config, &package.content, annotated("operators", &package.description))?;
        let bill = |(image, (_, manifest)): (&Image, &(Platform, Document))| {
            let content = sbom::cyclonedx(&plan.image().to_string(), &image.digest.to_string(), &image.components)?;
            Attachment::new(manifest, CYCLONEDX, content.into(), Annotations::new())
        };
        let bills = images.iter().zip(&manifests).map(bill).collect::<Result<Vec<_>>>()?;
        let mut files = files(plan, ready, helm, &package)?;
        files.extend(plugin::files(plan, ready, plugins)?);
        for (image, bill) in images.iter().zip(&bills) {
            let name = format!("controller-manager-linux-{}.cdx.json", image.platform.architecture());
            files.insert(name, bill.content.clone());
        }
        let published = [(plan.image(), index.digest()), (plan.chart(), chart.digest())];
        let mut subjects: Vec<_> =
            published.into_iter().map(|(name, digest)| Subject { name: name.to_string(), digest }).collect();
        subjects
            .extend(files.iter().map(|(name, content)| Subject { name: name.clone(), digest: Digest::of(content) }));
        let tools: BTreeSet<&Tool> = images.iter().flat_map(|image| &image.tools).collect(); // platforms share some
        let provenance = Statement::provenance(&subjects, plan, ready, &tools)?;
        files.insert("provenance.json".to_owned(), provenance.content.clone());
        files.insert(CHECKSUMS.to_owned(), checksums(&files).into());
        files.iter().try_for_each(|(name, content)| write(&plan.output.join(name), content))?;
        Ok(Self { images, bills, index, package, chart, provenance, files })
    }
}

/// The files with the chart, the manifests and the notes.
fn files(plan: &Plan, ready: &Ready, helm: &Helm, package: &Package) -> Result<BTreeMap<String, Bytes>> {
    let folder = &plan.output;
    fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
    let archive = format!("operators-{}.tgz", plan.version);
    write(&folder.join(&archive), &package.content)?;
    let rendered = helm.template_of(&folder.join(&archive), &json!({}), &["--skip-tests"])?;
    let mut files: BTreeMap<_, _> =
        plain::files(&rendered)?.into_iter().map(|(name, text)| (name, text.into())).collect();
    files.insert(archive, package.content.clone());
    files.insert("notes.md".to_owned(), ready.notes.clone().into());
    Ok(files)
}

fn checksums(files: &BTreeMap<String, Bytes>) -> String {
    let line = |(name, content): (&String, &Bytes)| [Digest::of(content).hex(), "  ", name, "\n"].concat();
    files.iter().map(line).collect()
}

pub(crate) fn write(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content).with_context(|| format!("could not write {}", path.display()))
}

/// A table of what was released, with digests and sizes.
#[derive(Debug)]
pub struct Summary<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What it became.
    pub artifacts: &'a Artifacts,
    /// The store of the images.
    pub store: &'a Store,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, artifacts, store } = self;
        let mut rows = Vec::new();
        let size = |digest: &Digest| store.size(digest).unwrap_or_default();
        let total = artifacts.images.iter().map(|image| size(&image.digest)).sum();
        rows.push((format!("{}:{}", plan.image(), plan.version), artifacts.index.digest(), total));
        for image in &artifacts.images {
            rows.push((format!("  {}", image.platform), image.digest.clone(), size(&image.digest)));
        }
        let chart = format!("oci://{}:{}", plan.chart(), plan.version);
        rows.push((chart, artifacts.chart.digest(), artifacts.package.content.len() as u64));
        for (name, content) in &artifacts.files {
            rows.push((plan.output.join(name).display().to_string(), Digest::of(content), content.len() as u64));
        }
        let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or_default();
        for (name, digest, size) in rows {
            writeln!(f, "{name:width$}  {digest}  {:>8} kB", size.div_ceil(1000))?;
        }
        Ok(())
    }
}
