//! Compares the public API of the crates that others can depend on with that of the last release.

use std::fs;

use anyhow::{Result, bail, ensure};
use semver::Version;

use super::{KUBERNETES, published, selected};
use crate::cargo_tools::{self, SEMVER};
use crate::report::Outcome;
use crate::workspace;

/// Checks that no public API has changed more than the version of its crate. Skipped until there is a release.
pub(crate) fn check() -> Result<Outcome> {
    let (tags, merged) = (tags(&[])?, tags(&["--merged"])?);
    let changelog = fs::read_to_string(workspace::root().join("CHANGELOG.md"))?;
    let Some(last) = baseline(&tags, &merged, &changelog, &Version::parse(env!("CARGO_PKG_VERSION"))?)? else {
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

/// The tags of versions, the highest first, one a line.
fn tags(flags: &[&str]) -> Result<String> {
    let mut git = workspace::command("git");
    let output = git.args(["tag", "--list", "v[0-9]*", "--sort=-version:refname"]).args(flags).output()?;
    ensure!(output.status.success(), "git tag: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// The tag of the last release, which is one of those that are `merged`. `tags` are all of the clone, and `version` is that of the
/// workspace: its release may be under way, and then has no tag yet.
///
/// # Errors
///
/// If the clone lacks the tag of the last release in the changelog, or the history that leads to it: a clone without tags must not
/// pass as a project without releases, nor be compared with an older release.
fn baseline<'a>(tags: &str, merged: &'a str, changelog: &str, version: &Version) -> Result<Option<&'a str>> {
    let headings = changelog.lines().filter_map(|line| line.strip_prefix("## [")?.split(']').next());
    // A pre-release promises nothing.
    let releases = headings.filter_map(|heading| Version::parse(heading).ok()).filter(|release| release.pre.is_empty());
    let mut releases: Vec<Version> = releases.collect();
    releases.sort_unstable();
    let last = match releases.as_slice() {
        [.., before, newest] if newest == version && !has_tag_of(newest, tags) => Some(before),
        [.., newest] => Some(newest),
        [] => None,
    };
    let tag = merged.lines().map(str::trim).find(|tag| !tag.is_empty() && !tag.contains('-'));
    if let Some(last) = last
        && (tag.is_none() || !has_tag_of(last, tags))
    {
        bail!(
            "CHANGELOG.md has the release {last}, but this clone has no tag v{last} to compare the API with, or not the \
             commits since: git fetch --tags, with --unshallow in a shallow clone"
        );
    }
    Ok(tag)
}

fn has_tag_of(release: &Version, tags: &str) -> bool {
    let tag = format!("v{release}");
    tags.lines().any(|line| line.trim() == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The changelog has these releases.
    fn baseline_of<'a>(tags: &str, merged: &'a str, releases: &[&str], version: &str) -> Result<Option<&'a str>> {
        let headings = releases.iter().map(|release| format!("## [{release}] - 2027-01-01"));
        let changelog: Vec<String> = ["## [Unreleased]".to_owned()].into_iter().chain(headings).collect();
        baseline(tags, merged, &changelog.join("\n"), &Version::parse(version).expect("a version"))
    }

    #[test]
    fn last_release_is_the_baseline() {
        let tags = "v0.3.0-rc.1\nv0.2.0\nv0.1.0\n";
        for version in ["0.2.0", "0.3.0"] {
            let last = baseline_of(tags, tags, &["0.2.0", "0.1.0"], version).expect("a tag");
            assert_eq!(last, Some("v0.2.0"), "{version}");
        }
        let under_way = baseline_of(tags, tags, &["0.3.0", "0.2.0", "0.1.0"], "0.3.0");
        assert_eq!(under_way.expect("the tag of its release comes later"), Some("v0.2.0"));
        assert_eq!(baseline_of("", "", &[], "0.1.0").expect("no release"), None);
    }

    #[test]
    fn clone_without_the_tag_of_the_last_release_is_not_compared() {
        let older = "v0.1.0\n";
        for (tags, merged, releases, version) in [
            ("\n", "\n", ["0.1.0"].as_slice(), "0.1.0"),
            (older, older, &["0.2.0", "0.1.0"], "0.3.0"),
            (older, older, &["0.3.0", "0.2.0", "0.1.0"], "0.3.0"),
            (older, "", &["0.1.0"], "0.1.0"),
        ] {
            let refused = baseline_of(tags, merged, releases, version).expect_err("a clone without it");
            assert!(refused.to_string().contains("git fetch --tags"), "{tags:?} {releases:?}: {refused}");
        }
    }
}
