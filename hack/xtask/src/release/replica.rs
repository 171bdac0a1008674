//! A copy of the checkout as a repository of its own, whose commit is ready for a release. So a release can be tried from sources that
//! are not committed, or under a version that does not exist.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use chart::helm::succeeded;
use images::Platform;
use release::statement::Builder;
use release::{Plan, plan};
use semver::Version;

use crate::workspace;

/// The version of the checkout.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The time of each commit, so that the same files always give the same commit.
const MOMENT: &str = "2026-01-01T00:00:00Z";

/// A copy of all text files in a repository of its own.
#[derive(Debug)]
pub(super) struct Replica {
    folder: PathBuf,
}

impl Replica {
    /// An empty repository in this folder, which must not exist.
    pub(super) fn new(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
        let replica = Self { folder };
        replica.git(&["init", "--quiet"])?;
        Ok(replica)
    }

    /// Makes a commit with the files of the checkout, under this version.
    pub(super) fn commit(&self, version: &Version) -> Result<()> {
        for file in workspace::files()? {
            let path = self.folder.join(&file.path);
            let text = prepared(&file.path, file.text, version);
            // Cargo compiles a file again whenever it is written.
            if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                fs::create_dir_all(path.parent().unwrap_or(&path))?;
                fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))?;
            }
        }
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--message", &format!("release {version}")])
    }

    /// A release of this repository to a registry.
    pub(super) fn plan(&self, version: Version, registry: &str, platforms: &[Platform], profile: &str) -> Result<Plan> {
        Ok(Plan {
            output: self.folder.join("dist").join(version.to_string()),
            version,
            registry: plan::registry(registry)?,
            platforms: platforms.to_vec(),
            profile: profile.to_owned(),
            builder: Builder::from_environment(|name| std::env::var(name).ok()),
            checkout: self.folder.clone(),
        })
    }

    fn git(&self, arguments: &[&str]) -> Result<()> {
        let mut git = workspace::command("git");
        git.args(["-c", "user.name=rehearsal", "-c", "user.email=rehearsal@example.com"]).args(arguments);
        // In a hook of git, these variables name the repository of the hook.
        for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
            git.env_remove(variable);
        }
        git.env("GIT_AUTHOR_DATE", MOMENT).env("GIT_COMMITTER_DATE", MOMENT);
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1"); // the user's may sign commits
        succeeded(git.current_dir(&self.folder)).map(drop).with_context(|| format!("git {}", arguments.join(" ")))
    }
}

/// Removes what an earlier run has left in this folder.
pub(super) fn clear(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("could not remove {}", folder.display()))?;
    }
    Ok(())
}

/// The text of a file in the commit of this version, as the guide of releases in CONTRIBUTING.md changes it.
fn prepared(path: &str, text: String, version: &Version) -> String {
    match path {
        "Cargo.toml" => with_version_of_packages(&text, version),
        "Cargo.lock" => with_locked_version(&text, version),
        "CHANGELOG.md" => with_entry(&text, version),
        "charts/operators/Chart.yaml" => {
            text.replace(&format!("\nversion: {VERSION}\n"), &format!("\nversion: {version}\n"))
        }
        _ => text,
    }
}

/// The manifest of the workspace with this version of its packages, and of the dependencies among them.
fn with_version_of_packages(manifest: &str, version: &Version) -> String {
    let (old, new) = (format!("version = \"{VERSION}\""), format!("version = \"{version}\""));
    let change = |line: &str| {
        let is_ours = line.starts_with(&old) || line.contains("path = \"");
        if is_ours { line.replace(&old, &new) } else { line.to_owned() }
    };
    manifest.lines().map(|line| change(line) + "\n").collect()
}

/// The lock file with this version of all packages without a source, which are those of the workspace.
fn with_locked_version(lock: &str, version: &Version) -> String {
    let (old, new) = (format!("\nversion = \"{VERSION}\"\n"), format!("\nversion = \"{version}\"\n"));
    let change = |package: &str| {
        let is_ours = !package.contains("\nsource = ");
        if is_ours { package.replacen(&old, &new, 1) } else { package.to_owned() }
    };
    lock.split("\n[[package]]").map(change).collect::<Vec<_>>().join("\n[[package]]")
}

/// The changelog with an entry for this version, also if nothing is unreleased.
fn with_entry(changelog: &str, version: &Version) -> String {
    let entry = format!("\n## [Unreleased]\n\n## [{version}] - 2026-01-01\n\n### Changed\n\n- This is a rehearsal.\n");
    changelog.replacen("\n## [Unreleased]\n", &entry, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        fs::read_to_string(workspace::root().join(path)).unwrap()
    }

    fn of(path: &str) -> String {
        prepared(path, read(path), &Version::new(7, 8, 9))
    }

    #[test]
    fn all_packages_of_the_workspace_and_no_others_get_the_version() {
        let packages = |lock: &str| lock.split("\n[[package]]\n").skip(1).map(str::to_owned).collect::<Vec<_>>();
        let (before, after) = (packages(&read("Cargo.lock")), packages(&of("Cargo.lock")));
        assert_eq!(before.len(), after.len());
        let (theirs, ours): (Vec<_>, Vec<_>) =
            before.iter().zip(&after).partition(|(before, _)| before.contains("\nsource = "));
        for (before, after) in theirs {
            assert_eq!(before, after);
        }
        assert!(ours.len() > 20, "{} packages", ours.len());
        for (_, after) in ours {
            assert!(after.contains("\nversion = \"7.8.9\"\n"), "{after}");
        }
    }

    #[test]
    fn manifest_has_the_version_in_each_line_that_the_guide_names() {
        let after = of("Cargo.toml");
        let is_dependency = |line: &&str| line.contains("path = ") && line.contains("version = ");
        let dependencies: Vec<_> = after.lines().filter(is_dependency).collect();
        assert!(dependencies.iter().all(|line| line.contains("version = \"7.8.9\"")), "{dependencies:#?}");
        assert_eq!(after.matches("version = \"7.8.9\"").count(), dependencies.len() + 1, "the last is the workspace's");
        assert!(of("charts/operators/Chart.yaml").contains("\nversion: 7.8.9\n"));
    }

    #[test]
    fn changelog_has_an_entry_whatever_is_unreleased() {
        for unreleased in ["", "\n- something\n"] {
            let text = format!("# Changelog\n\n## [Unreleased]\n{unreleased}");
            let text = prepared("CHANGELOG.md", text, &Version::new(7, 8, 9));
            assert!(text.contains("\n## [7.8.9] - 2026-01-01\n\n### Changed\n\n- This is a rehearsal.\n"), "{text}");
        }
    }

    #[test]
    fn the_same_files_give_the_same_commit_in_each_folder() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "another/below"].map(|name| {
            let replica = Replica::new(folder.path().join(name)).unwrap();
            replica.commit(&Version::new(7, 8, 9)).unwrap();
            let plan = replica.plan(Version::new(7, 8, 9), "ghcr.io/team", &Platform::ALL, "dev").unwrap();
            release::check(&plan).unwrap().commit
        });
        assert_eq!(one, other);
    }
}
