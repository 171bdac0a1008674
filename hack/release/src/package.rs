//! The package of the chart. It names the image by the digest of its index, so an installation runs exactly what was released.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Read as _};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use chart::CHART;
use chart::helm::{Helm, succeeded};
use flate2::read::GzDecoder;
use images::reference::Repository;
use images::{Digest, Layer, image};
use semver::Version;
use serde_json::Value;

use crate::{Plan, Ready, git, hub};

/// A packaged chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// `Chart.yaml` as JSON, which registries show.
    pub config: Bytes,
    /// The archive, as `helm package` makes it, but the same bytes each time.
    pub content: Bytes,
    /// `description` of `Chart.yaml`.
    pub description: String,
}

/// Packages the chart of this commit.
pub fn package(helm: &Helm, plan: &Plan, ready: &Ready, index: &Digest) -> Result<Package> {
    let folder = tempfile::tempdir()?;
    // From the commit, because the folder may have files that git ignores. With these settings, because a user's git may write other
    // ends of lines.
    let same_lines = ["-c", "core.autocrlf=false", "-c", "core.eol=lf"];
    let archive: [&str; 4] = ["archive", "--format=tar", &ready.commit, CHART];
    let committed = git::git(&plan.checkout, &[&same_lines[..], &archive[..]].concat())?;
    tar::Archive::new(committed.as_slice()).unpack(folder.path()).context("could not unpack the chart")?;
    let source = folder.path().join(CHART);
    name_image(&source, &plan.image(), &Selector::Digest(index))?;
    link_runbooks(&source, env!("CARGO_PKG_REPOSITORY"), &plan.version)?;
    let description = source.join("Chart.yaml");
    let chart = fs::read_to_string(&description).context("the chart has no Chart.yaml")?;
    fs::write(&description, hub::annotated(&chart, plan, &ready.notes, index)?)?;
    let version = plan.version.to_string();
    let mut command = helm.command();
    command.arg("package").arg(&source).args(["--version", &version, "--app-version", &version]);
    succeeded(command.arg("--destination").arg(folder.path())).context("helm package")?;
    let file = folder.path().join(format!("operators-{version}.tgz"));
    normalized(&fs::read(&file).with_context(|| format!("could not read {}", file.display()))?)
}

/// What selects the image in its repository.
#[derive(Clone, Copy, Debug)]
pub enum Selector<'a> {
    /// A tag, which can move to another image.
    Tag(&'a str),
    /// The digest of the image or of its index.
    Digest(&'a Digest),
}

impl Selector<'_> {
    /// The value of the chart, and what it gets.
    fn value(&self) -> (&'static str, String) {
        match self {
            Self::Tag(tag) => ("tag", (*tag).to_owned()),
            Self::Digest(digest) => ("digest", digest.to_string()),
        }
    }
}

/// Writes the image into the defaults of the chart in this folder, and everywhere where the package repeats them.
pub fn name_image(chart: &Path, image: &Repository, selector: &Selector<'_>) -> Result<()> {
    let read = |name: &str| fs::read_to_string(chart.join(name)).with_context(|| format!("the chart has no {name}"));
    let values = read("values.yaml")?;
    let parsed: Value = serde_saphyr::from_str(&values).context("values.yaml")?;
    let old = parsed["image"]["repository"].as_str().context("values.yaml has no image.repository")?;
    let (new, (key, selected)) = (image.to_string(), selector.value());
    let values = with_value(&values.replace(old, &new), key, &selected);
    let parsed: Value = serde_saphyr::from_str(&values).context("values.yaml")?;
    ensure!(
        parsed["image"]["repository"] == new && parsed["image"][key] == selected,
        "values.yaml has another form than expected: it cannot name {new} with the {key} {selected}"
    );
    fs::write(chart.join("values.yaml"), values)?;
    // By this file, the templates tell the default from a user's repository.
    fs::write(chart.join("files/images.yaml"), read("files/images.yaml")?.replace(old, &new))?;
    // By this one, they restore what a user's null has removed.
    let mut defaults: Value = serde_saphyr::from_str(&read("files/defaults.yaml")?).context("files/defaults.yaml")?;
    let default = defaults.pointer_mut(&format!("/values/image/{key}"));
    *default.with_context(|| format!("files/defaults.yaml has no image.{key}"))? = selected.clone().into();
    fs::write(chart.join("files/defaults.yaml"), serde_json::to_string_pretty(&defaults)?)?; // JSON is YAML
    let row = |value: &str| format!("| `image.{key}` | `\"{value}\"` |");
    let readme = read("README.md")?.replace(old, &new).replace(&row(""), &row(&selected));
    fs::write(chart.join("README.md"), readme)?;
    Ok(())
}

/// Makes the alerts of the chart in this folder link to the runbooks of this version at the public address of the project. Without
/// such an address, alerts keep their runbooks as text. [`name_image`] comes first: it makes JSON of the defaults.
fn link_runbooks(chart: &Path, address: &str, version: &Version) -> Result<()> {
    if address.is_empty() {
        return Ok(());
    }
    let address_of_runbooks = format!("{}/blob/v{version}/docs/runbooks.md#", address.trim_end_matches('/'));
    let row = |link: &str| format!("| `prometheusRule.runbookUrl` | `\"{link}\"` |");
    let line = |link: &str| format!("\n  runbookUrl: \"{link}\"\n");
    let entry = |link: &str| format!("\"runbookUrl\": \"{link}\"");
    for (name, old, new) in [
        ("README.md", row(""), row(&address_of_runbooks)),
        ("values.yaml", line(""), line(&address_of_runbooks)),
        ("files/defaults.yaml", entry(""), entry(&address_of_runbooks)),
    ] {
        let text = fs::read_to_string(chart.join(name)).with_context(|| format!("the chart has no {name}"))?;
        ensure!(
            text.matches(&old).count() == 1,
            "{name} has another form than expected: it cannot name {address_of_runbooks}"
        );
        fs::write(chart.join(name), text.replace(&old, &new))?;
    }
    Ok(())
}

/// The values with this tag or digest of the image. Other images have tags and digests too.
fn with_value(values: &str, key: &str, value: &str) -> String {
    let (mut of_image, empty) = (false, format!("  {key}: \"\""));
    let mut text = String::with_capacity(values.len() + value.len());
    for line in values.lines() {
        if !line.starts_with([' ', '#']) {
            of_image = line == "image:";
        }
        if of_image && line == empty {
            text.extend(["  ", key, ": \"", value, "\"\n"]);
        } else {
            text.extend([line, "\n"]);
        }
    }
    text
}

/// The same package without times, in the order of paths.
fn normalized(archive: &[u8]) -> Result<Package> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(GzDecoder::new(Cursor::new(archive))).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_str().context("a path in the chart is not UTF-8")?.to_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        files.insert(path, content);
    }
    let description = files.get("operators/Chart.yaml").context("the package has no Chart.yaml")?;
    let described: BTreeMap<String, Value> =
        serde_saphyr::from_str(&String::from_utf8_lossy(description)).context("Chart.yaml")?;
    let mut layer = Layer::new();
    for (path, content) in files {
        layer.file(&path, content, 0o644);
    }
    Ok(Package {
        config: serde_json::to_vec(&described)?.into(),
        content: image::gzip(&layer.tar()?)?.into(),
        description: described.get("description").and_then(Value::as_str).unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [&str; 4] = ["README.md", "values.yaml", "files/defaults.yaml", "files/images.yaml"];

    /// The files of the chart with an image, and with the runbooks at this address.
    fn linked(address: &str) -> [String; 4] {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("files")).unwrap();
        for name in FILES {
            fs::copy(chart::folder().join(name), folder.path().join(name)).unwrap();
        }
        let image = crate::plan::registry("ghcr.io/team/controller-manager").unwrap();
        name_image(folder.path(), &image, &Selector::Tag("1.2.3")).unwrap();
        link_runbooks(folder.path(), address, &Version::new(1, 2, 3)).unwrap();
        FILES.map(|name| fs::read_to_string(folder.path().join(name)).unwrap())
    }

    #[test]
    fn alerts_link_to_the_runbooks_of_the_release_if_the_project_has_an_address() {
        let link = "https://example.com/operators/blob/v1.2.3/docs/runbooks.md#";
        for (address, expected) in [("", ""), ("https://example.com/operators", link)] {
            let [readme, values, defaults, _] = linked(address);
            let parsed = |text: &str| serde_saphyr::from_str::<Value>(text).unwrap();
            assert_eq!(parsed(&values)["prometheusRule"]["runbookUrl"], expected);
            assert_eq!(parsed(&defaults)["values"]["prometheusRule"]["runbookUrl"], expected);
            assert!(readme.contains(&format!("| `prometheusRule.runbookUrl` | `\"{expected}\"` |")), "{readme}");
        }
    }

    #[test]
    fn only_the_digest_or_the_tag_of_the_image_is_set() {
        let values = |digest: &str, tag: &str| {
            let of_image = format!("image:\n  # Digest.\n  digest: \"{digest}\"\n  tag: \"{tag}\"\n");
            format!("a:\n  digest: \"\"\n  tag: \"\"\n\n{of_image}\nb:\n  image:\n    digest: \"\"\n    tag: \"\"\n")
        };
        assert_eq!(with_value(&values("", ""), "digest", "sha256:0"), values("sha256:0", ""));
        assert_eq!(with_value(&values("", ""), "tag", "1.2.3"), values("", "1.2.3"));
    }
}
