//! The checkout: its root, its text files, and commands that run in it.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// The folder with the workspace's `Cargo.toml`.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."))
}

/// A text file of the checkout.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// The path relative to [`root`], with `/` as separator.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    /// The name without its folder.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The folder, without a `/` at its end; empty for the root.
    pub(crate) fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// Whether the file has this extension, such as "rs".
    pub(crate) fn is(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|it| it == extension)
    }
}

/// Every text file of the checkout that is not ignored, sorted by path.
pub(crate) fn files() -> Result<Vec<File>> {
    files_in(root())
}

/// The same for a copy of the checkout.
pub(crate) fn files_in(checkout: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    collect(checkout, "", &mut files)?;
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<File>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("could not read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if is_ignored(&path) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{path}/"), files)?;
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            files.push(File { path, text }); // binary files are skipped
        }
    }
    Ok(())
}

/// Whether `.gitignore` excludes the path.
fn is_ignored(path: &str) -> bool {
    matches!(path, ".git" | "dist" | "target") || path.ends_with(".snap.new")
}

/// A command that runs `cargo` in the root of the checkout.
pub(crate) fn cargo() -> Command {
    let mut cargo = images::cargo();
    cargo.current_dir(root()).stdin(Stdio::null());
    cargo
}

/// A command that runs another program in the root of the checkout.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    images::hide_the_caller(&mut command);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs the command.
///
/// # Errors
///
/// If the command fails, the error is `advice`.
pub(crate) fn run(command: &mut Command, advice: &str) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("could not run {program}"))?;
    if !status.success() {
        bail!("{advice}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The crates that cargo compiles for these packages, each with its features.
    fn crates_of(selection: &[&str]) -> BTreeSet<String> {
        let mut tree = cargo();
        tree.args(["tree", "--locked", "--offline", "--prefix", "none", "--format", "{p}, features {f}"])
            .args(selection);
        let output = tree.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap();
        lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    }

    /// Cargo compiles a crate once for each set of features, and with it each crate that uses it.
    #[test]
    fn xtask_shares_its_dependencies_with_the_tests() {
        let tests = crates_of(&["--workspace", "--edges", "normal,build,dev"]);
        let xtask = crates_of(&["--package", "xtask", "--edges", "normal,build"]);
        let different: Vec<_> = xtask.difference(&tests).collect();
        let advice = "the tests turn on more features of these crates; turn them on in hack/xtask/Cargo.toml, too";
        assert!(different.is_empty(), "{advice}: {different:#?}");
    }

    /// The same for a new project, which turns on fewer features. It compiles part of its dependencies again, but not the largest
    /// one, the API of Kubernetes, and what this is made of.
    #[test]
    fn new_project_shares_the_api_of_kubernetes_with_the_tests() {
        let name = |line: &str| line.split(", features").next().unwrap_or_default().to_owned();
        let api = crates_of(&["--package", "k8s-openapi", "--edges", "normal,build"]);
        let api: BTreeSet<_> = api.iter().map(|line| name(line)).collect();
        let tests = crates_of(&["--workspace", "--edges", "normal,build,dev"]);
        let project = crates_of(&["--package", "gadget-operator", "--edges", "normal,build,dev"]);
        assert!(project.iter().any(|line| line.starts_with("k8s-openapi ")));
        let different: Vec<_> = project.difference(&tests).filter(|line| api.contains(&name(line))).collect();
        let advice = "the workspace turns on more features of these crates than a new project does";
        assert!(different.is_empty(), "{advice}: {different:#?}");
    }

    #[test]
    fn programs_that_may_run_cargo_do_not_see_the_package_of_xtask() {
        for command in [cargo(), command("make")] {
            let hidden: Vec<_> =
                command.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
            assert!(hidden.contains(&OsStr::new("CARGO_MANIFEST_DIR")), "{hidden:?}"); // nextest sets it, as cargo does
        }
    }

    #[test]
    fn root_manifest_defines_workspace() {
        let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn path_gives_name_folder_and_extension() {
        let file = |path: &str| File { path: path.to_owned(), text: String::new() };
        assert_eq!((file("a/b.rs").name(), file("a/b.rs").folder()), ("b.rs", "a"));
        assert_eq!((file("Makefile").name(), file("Makefile").folder()), ("Makefile", ""));
        assert!(file("a/b.rs").is("rs") && !file("a/rs").is("rs"));
    }

    #[test]
    fn failed_command_returns_advice() {
        assert_eq!(run(&mut command("false"), "do this").unwrap_err().to_string(), "do this");
        assert!(run(&mut command("true"), "do this").is_ok());
    }
}
