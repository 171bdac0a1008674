//! Compares the public API of the crates that others can depend on with that of the last release.

use std::fs;

use anyhow::{Result, bail, ensure};

use super::{KUBERNETES, published, selected};
use crate::cargo_tools::{self, SEMVER};
use crate::report::Outcome;
use crate::workspace;

/// Checks that no public API has changed more than the version of its crate. Skipped until there is a release.
pub(crate) fn check() -> Result<Outcome> {
    let mut tags = workspace::command("git");
    let output = tags.args(["tag", "--list", "v[0-9]*", "--sort=-version:refname", "--merged"]).output()?;
    ensure!(output.status.success(), "git tag: {}", String::from_utf8_lossy(&output.stderr).trim());
    let tags = String::from_utf8(output.stdout)?;
    let changelog = fs::read_to_string(workspace::root().join("CHANGELOG.md"))?;
    let Some(last) = baseline(&tags, &changelog)? else {
        let why = "there is no release yet that an API could differ from: from its tag on, cargo-semver-checks compares with it";
        return Ok(Outcome::Skipped(why.to_owned()));
    };
    eprintln!("comparing with {last}");
    cargo_tools::ensure(&[SEMVER])?;
    let packages = published()?;
    let mut semver = SEMVER.command()?;
    semver.args(["semver-checks", "--baseline-rev", last]).args(selected(&packages)).env(KUBERNETES.0, KUBERNETES.1);
    workspace::run(&mut semver, "the public API has changed more than the version, see above: raise the version")?;
    Ok(Outcome::Passed)
}

/// The tag of the last release.
///
/// # Errors
///
/// If the changelog has a release but there is no tag: a clone without tags must not pass as a project without releases.
fn baseline<'a>(tags: &'a str, changelog: &str) -> Result<Option<&'a str>> {
    // A pre-release promises nothing.
    let tag = tags.lines().map(str::trim).find(|tag| !tag.is_empty() && !tag.contains('-'));
    let released = changelog.lines().find(|line| line.starts_with("## [") && !line.starts_with("## [Unreleased]"));
    match (tag, released) {
        (None, Some(heading)) => {
            bail!("the changelog has {heading:?}, but this clone has no tag of a release: git fetch --tags --unshallow")
        }
        (tag, _) => Ok(tag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_release_is_the_baseline() {
        let released = "## [Unreleased]\n\n## [0.2.0] - 2027-01-01\n";
        assert_eq!(baseline("v0.3.0-rc.1\nv0.2.0\nv0.1.0\n", released).expect("a tag"), Some("v0.2.0"));
        assert_eq!(baseline("", "## [Unreleased]\n").expect("no release"), None);
    }

    #[test]
    fn clone_without_tags_is_no_project_without_releases() {
        let refused = baseline("\n", "## [Unreleased]\n## [0.1.0] - 2027-01-01\n").expect_err("the tag is missing");
        assert!(refused.to_string().contains("git fetch --tags"), "{refused}");
    }
}
