//! What a release consists of, and where it goes.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use images::Platform;
use images::reference::Repository;
use semver::Version;

use crate::statement::Builder;

/// The name of the image, and of the repository below the release's registry.
const IMAGE: &str = "controller-manager";
/// The repository of the chart below the release's registry. Helm takes its last part for the name of the chart.
const CHART: &str = "charts/operators";
/// The same on Docker Hub, which allows only two parts in a path.
const CHART_ON_DOCKER_HUB: &str = "operators";

/// A release, before anything is built.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The version of the programs, the image and the chart.
    pub version: Version,
    /// The registry, with the path below which the repositories are.
    pub registry: Repository,
    /// The platforms of the image.
    pub platforms: Vec<Platform>,
    /// The profile of cargo for the programs.
    pub profile: String,
    /// Who builds.
    pub builder: Builder,
    /// The checkout of the repository.
    pub checkout: PathBuf,
    /// The folder for the files of the release.
    pub output: PathBuf,
}

impl Plan {
    /// The repository of the image.
    pub fn image(&self) -> Repository {
        self.below(IMAGE)
    }

    /// The repository of the chart.
    pub fn chart(&self) -> Repository {
        self.below(if self.registry.registry == "docker.io" { CHART_ON_DOCKER_HUB } else { CHART })
    }

    fn below(&self, path: &str) -> Repository {
        Repository { registry: self.registry.registry.clone(), path: format!("{}/{path}", self.registry.path) }
    }
}

/// Parses a version, which also becomes a tag.
pub fn version(text: &str) -> Result<Version> {
    let version =
        Version::parse(text).with_context(|| format!("{text:?} is not a version such as 1.2.3 or 1.2.3-rc.1"))?;
    ensure!(version.build.is_empty(), "{text:?} has build metadata (+…), which a tag cannot have");
    Ok(version)
}

/// Parses a registry with a path, such as `ghcr.io/team`.
pub fn registry(text: &str) -> Result<Repository> {
    let parsed = Repository::parse(text)?;
    // The parser completes short names to names on Docker Hub, which is hardly what a release means.
    ensure!(
        parsed.to_string() == text,
        "{text:?} is not a registry with a path, such as ghcr.io/team or docker.io/team"
    );
    Ok(parsed)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, platforms, output, .. } = self;
        let platforms: Vec<_> = platforms.iter().map(ToString::to_string).collect();
        writeln!(f, "release {version}")?;
        writeln!(f, "  image      {}:{version}, an index of {}", self.image(), platforms.join(" and "))?;
        writeln!(f, "  attached   to each image its bill of materials")?;
        writeln!(f, "  chart      oci://{}:{version}, which names the digest of this index", self.chart())?;
        write!(
            f,
            "  files      {}: the chart, plain manifests, the plugin of kubectl, bills of materials, release notes, SHA256SUMS",
            output.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_one_that_can_be_a_tag() {
        for good in ["1.2.3", "0.1.0", "1.2.3-rc.1"] {
            assert_eq!(version(good).unwrap().to_string(), good);
        }
        for bad in ["v1.2.3", "1.2", "", "1.2.3+build", "01.2.3"] {
            let error = version(bad).unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }

    #[test]
    fn registry_needs_host_and_path() {
        for good in ["ghcr.io/team", "127.0.0.1:5000/a/b", "localhost/a", "docker.io/team"] {
            assert_eq!(registry(good).unwrap().to_string(), good);
        }
        for bad in ["ghcr.io", "team", "team/app", "https://ghcr.io/team", "ghcr.io/Team", ""] {
            assert!(registry(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn docker_hub_gets_paths_of_two_parts() {
        for (registry, chart) in
            [("docker.io/team", "docker.io/team/operators"), ("ghcr.io/team", "ghcr.io/team/charts/operators")]
        {
            let plan = Plan {
                version: version("1.2.3").unwrap(),
                registry: self::registry(registry).unwrap(),
                platforms: Vec::new(),
                profile: String::new(),
                builder: Builder::from_environment(|_| None),
                checkout: PathBuf::new(),
                output: PathBuf::new(),
            };
            assert_eq!(plan.chart().to_string(), chart);
        }
    }
}
