//! Whether a checkout is ready for a release. All problems are reported together.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use images::Digest;
use semver::Version;

use crate::{Plan, git};

/// What the checks have found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The commit that the release is made from.
    pub commit: String,
    /// The digest of `Cargo.lock`, which pins all crates.
    pub lock: Digest,
    /// The changelog's entry for the version, without its heading.
    pub notes: String,
}

/// Checks that the checkout has no changes beside its commit, the version of the plan, and a changelog entry for it.
///
/// # Errors
///
/// The error has a line for each problem, with its cure.
pub fn check(plan: &Plan) -> Result<Ready> {
    let Plan { version, checkout, .. } = plan;
    let read = |name: &str| {
        let path = checkout.join(name);
        fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))
    };
    let commit = git::text(checkout, &["rev-parse", "HEAD"])?;
    let mut problems = changes(checkout)?;
    let declared = declared_version(&read("Cargo.toml")?)?;
    if declared != version.to_string() {
        problems.push(format!(
            "the workspace has the version {declared}: set `version = \"{version}\"` in [workspace.package] of Cargo.toml, then \
             follow the section \"Releasing\" of CONTRIBUTING.md"
        ));
    }
    let notes = entry(&read("CHANGELOG.md")?, version);
    if notes.is_none() {
        problems.push(format!(
            "CHANGELOG.md has no entry for {version}: move what is under [Unreleased] below a heading `## [{version}] - <date>`"
        ));
    }
    match (problems.as_slice(), notes) {
        ([], Some(notes)) => Ok(Ready { commit, lock: Digest::of(read("Cargo.lock")?.as_bytes()), notes }),
        _ => bail!("this checkout is not ready for the release {version}:\n- {}", problems.join("\n- ")),
    }
}

/// Does this work, such as the builds, and checks that the checkout is afterwards what [`check`] has found. Otherwise the programs
/// would have other sources than the commit that they name.
///
/// # Errors
///
/// Also if the work fails.
pub fn unchanged_during<T>(plan: &Plan, ready: &Ready, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = work()?;
    let now = check(plan).context("the checkout changed during the builds: leave it alone, and release again")?;
    ensure!(
        now == *ready,
        "the checkout went from the commit {} to {} during the builds: leave it alone, and release again",
        ready.commit,
        now.commit
    );
    Ok(done)
}

/// The problem of a checkout with changes. They would be in the programs, but not in the commit that these name.
fn changes(checkout: &Path) -> Result<Vec<String>> {
    let status = git::text(checkout, &["status", "--porcelain", "--untracked-files=normal"])?; // whatever git's configuration says
    let files: Vec<_> = status.lines().map(|line| line.get(3..).unwrap_or(line)).collect();
    let shown = files.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    Ok(match files.len() {
        0 => Vec::new(),
        more if more > 5 => vec![format!("{more} files differ from the commit: commit or stash {shown}, …")],
        _ => vec![format!("files differ from the commit: commit or stash {shown}")],
    })
}

/// The version in `[workspace.package]`, in quotation marks on one line as this workspace writes it.
fn declared_version(manifest: &str) -> Result<String> {
    let section = manifest.split("[workspace.package]").nth(1).context("Cargo.toml has no [workspace.package]")?;
    let mut lines = section.lines().skip(1).take_while(|line| !line.starts_with('['));
    let value = lines.find_map(|line| line.strip_prefix("version = \"")?.split('"').next());
    Ok(value.context("[workspace.package] of Cargo.toml has no version")?.to_owned())
}

/// The text below the heading of the version, up to the next version; `None` without such a heading or without a text.
fn entry(changelog: &str, version: &Version) -> Option<String> {
    let is_heading = |line: &&str| line.starts_with("## ");
    let mut lines = changelog.lines().skip_while(|line| !line.starts_with(&format!("## [{version}]")));
    lines.next()?;
    let text = lines.take_while(|line| !is_heading(line)).collect::<Vec<_>>().join("\n");
    let text = text.trim();
    (!text.is_empty()).then(|| format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [1.2.3] - 2026-01-01\n\n### Added\n\n- one\n\n\
                             ## [1.2.2]\n\n## [1.2.1] - 2025-01-01\n\n- old\n";

    fn of(version: &str) -> Option<String> {
        entry(CHANGELOG, &Version::parse(version).unwrap())
    }

    #[test]
    fn changelog_entry_ends_at_the_next_version() {
        assert_eq!(of("1.2.3").as_deref(), Some("### Added\n\n- one\n"));
        assert_eq!(of("1.2.1").as_deref(), Some("- old\n"));
        assert_eq!(of("1.2.2"), None, "an entry without a text says nothing");
        assert_eq!(of("1.2.3-rc.1"), None);
        assert_eq!(of("1.2.30"), None);
    }

    #[test]
    fn version_is_that_of_the_workspace() {
        let manifest =
            "[package]\nversion = \"9.9.9\"\n[workspace.package]\nedition = \"2024\"\nversion = \"1.2.3\" # here\n";
        assert_eq!(declared_version(manifest).unwrap(), "1.2.3");
        assert!(declared_version("[workspace.package]\nedition = \"2024\"\n[x]\nversion = \"1.0.0\"\n").is_err());
    }

    #[test]
    fn version_of_this_workspace_is_found() {
        let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml")).unwrap();
        assert_eq!(declared_version(&manifest).unwrap(), env!("CARGO_PKG_VERSION"));
    }
}
