//! `cargo xtask new-project`: writes a repository of its own with one operator, which depends on the crates of this one.

#[cfg(test)]
mod dockerfile;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::scaffold::{self, Api, Names, TEMPLATE};
use crate::workspace::{self, File};

/// Write a repository with one operator, outside of this workspace: its crate with tests, chart, image, Makefile and CI
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder of the new repository. It must not exist, or be empty but for .git
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// The name of the operator: its crate and its chart are NAME-operator [default: the kind in lower case]
    #[arg(long, value_name = "NAME", value_parser = scaffold::word)]
    name: Option<String>,
    #[command(flatten)]
    api: Api,
    /// Take the crates of the runtime from this Git repository. Without it, they come from this checkout, so only this machine can
    /// build the project
    #[arg(long, value_name = "URL")]
    git: Option<String>,
    /// The commit of that repository [default: the newest]
    #[arg(long, value_name = "COMMIT", requires = "git")]
    rev: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let names = Names::new(args.name.as_deref(), &args.api)?;
    let source = match &args.git {
        Some(url) => Source::Git { url: url.clone(), commit: args.rev.clone() },
        None => Source::Checkout,
    };
    let folder = std::env::current_dir()?.join(&args.folder);
    let files = write(&folder, &names, &source)?;
    println!(
        "wrote {files} files to {folder}\n\nNext:\n  cd {folder}\n  make test    # every check; the tests start a real API server\n  \
         make         # lists what else there is",
        folder = args.folder.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Where the crates of the runtime come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// This checkout.
    Checkout,
    Git {
        url: String,
        commit: Option<String>,
    },
}

/// Writes the project. Returns the number of its files.
pub(crate) fn write(folder: &Path, names: &Names, source: &Source) -> Result<usize> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    if let Some(entry) = entries.map(|entry| entry.file_name()).find(|name| name != ".git") {
        bail!("{} contains {}: choose an empty folder", folder.display(), entry.display());
    }
    let files = files(names, source)?;
    scaffold::write(folder, &files)?;
    let cargo = |arguments: &[&str], advice: &str| {
        let mut cargo = workspace::cargo();
        workspace::run(cargo.current_dir(folder).args(arguments), advice)
    };
    cargo(&["fmt"], "rustfmt cannot format the new crate, see above")?;
    // Removes what the project does not need from the versions of this checkout.
    cargo(&["update", "--workspace", "--quiet"], "cargo cannot find the crates of the runtime, see above")?;
    let (path, lock) = (folder.join("Cargo.toml"), fs::read_to_string(folder.join("Cargo.lock"))?);
    fs::write(&path, settings_of(&fs::read_to_string(&path)?, |package| is_locked(&lock, package)))?;
    generate(folder)?;
    Ok(workspace::files_in(folder)?.len())
}

/// Writes the files that follow from the types of the new operator, as `make generate` in the project does. Builds in the target
/// folder of this checkout, which has most of the dependencies already.
fn generate(folder: &Path) -> Result<()> {
    eprintln!("compiling the new operator for `make generate`");
    let mut make = workspace::command("make");
    make.arg("generate").current_dir(folder).env("CARGO_TARGET_DIR", workspace::root().join("target"));
    workspace::run(&mut make, "the new operator does not compile, see above")
}

fn files(names: &Names, source: &Source) -> Result<Vec<File>> {
    let folder = format!("{}-operator", names.name);
    let mut files = names.project()?;
    files.extend(names.operator(&format!("{folder}/"))?);
    for file in &mut files {
        if file.path == format!("{folder}/README.md") {
            file.text = with_command(&file.text)?;
        }
    }
    for path in ["Cargo.lock", "rust-toolchain.toml", "rustfmt.toml"] {
        let text = fs::read_to_string(workspace::root().join(path)).with_context(|| format!("there is no {path}"))?;
        files.push(File { path: path.to_owned(), text });
    }
    files.push(File { path: "Cargo.toml".to_owned(), text: manifest(&folder, source)? });
    Ok(files)
}

/// Whether this `Cargo.lock` has the package.
fn is_locked(lock: &str, package: &str) -> bool {
    let name = format!("name = {package:?}");
    lock.lines().any(|line| line == name)
}

/// The manifest with the profiles of those packages alone that the project has: cargo warns of each other one. Comments go with all
/// lines below them.
fn settings_of(manifest: &str, is_there: impl Fn(&str) -> bool) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut comments: Vec<&str> = Vec::new(); // of lines that are not kept yet
    let mut follows_comment = false;
    for line in manifest.lines() {
        let is_comment = line.starts_with('#');
        let package = line.split_once(" = { opt-level = ").map(|(package, _)| package);
        if !follows_comment && (is_comment || package.is_none()) {
            comments.clear(); // no line below them is kept
        }
        follows_comment = is_comment;
        if is_comment {
            comments.push(line);
        } else if package.is_none_or(&is_there) {
            kept.append(&mut comments);
            kept.push(line);
        }
    }
    kept.join("\n") + "\n"
}

/// The README of the crate, with a command instead of the table of fields that this repository generates, and without the marks for
/// the checks of this repository.
fn with_command(readme: &str) -> Result<String> {
    let (text, rest) = readme.split_once("## Every field").context("the README has no section on fields")?;
    let kind = rest.split_once("fields of ").and_then(|(_, rest)| rest.split_once(" -->"));
    let kind = kind.context("the section on fields has no table")?.0.to_lowercase();
    let is_text = |line: &&str| !line.starts_with("<!-- untested: ");
    let text: String = text.split_inclusive('\n').filter(is_text).collect();
    Ok(format!("{text}`kubectl explain {kind}.spec` describes every field.\n"))
}

/// The root manifest: the dependencies of the operator's crate, with the versions, lints and profiles of this workspace.
fn manifest(member: &str, source: &Source) -> Result<String> {
    let root = workspace::root();
    let ours = fs::read_to_string(root.join("Cargo.toml"))?;
    let template = fs::read_to_string(root.join("hack/scaffold").join(TEMPLATE).join("Cargo.toml"))?;
    let (mut runtime, mut others) = (String::new(), String::new());
    for name in dependencies(&template) {
        let line = ours.lines().find(|line| line.starts_with(&format!("{name} = ")));
        let line = line.with_context(|| format!("Cargo.toml has no dependency {name}"))?;
        match line.split_once("{ path = \"") {
            Some((_, rest)) => runtime += &source.dependency(name, rest)?,
            None => others.extend([line, "\n"]),
        }
    }
    let package = section(&ours, "[workspace.package]", "\n\n")?.lines().filter(|line| !line.starts_with("repository"));
    let package = package.map(|line| line.split(" #").next().unwrap_or(line)).collect::<Vec<_>>().join("\n");
    let settings = section(&ours, "[workspace.lints.rust]", "[profile.dev]")?.trim_end();
    let dev = section(&ours, "[profile.dev]", "[profile.release]")?.trim_end();
    let dev = dev.lines().filter(|line| !line.starts_with("# `cargo xtask")).collect::<Vec<_>>().join("\n");
    let release = section(&ours, "[profile.release]", "\n\n")?.trim_end();
    Ok(format!(
        "[workspace]\nresolver = \"3\"\nmembers = [\"{member}\"]\n\n{package}\n\n[workspace.dependencies]\n# the runtime: all of these \
         from the same place\n{runtime}\n# versions that the runtime uses too\n{others}\n{settings}\n\n{dev}\n\n{release}\n"
    ))
}

impl Source {
    /// The line of a manifest for a crate of the runtime. `ours` is what follows `path = "` in its line of this workspace: the folder
    /// and the name of the package.
    fn dependency(&self, name: &str, ours: &str) -> Result<String> {
        let (path, rest) = ours.split_once('"').with_context(|| format!("the path of {name} has no end"))?;
        let package = rest.split_once("package = \"").and_then(|(_, rest)| rest.split('"').next());
        let place = match self {
            Self::Checkout => format!("path = \"{}\"", workspace::root().join(path).display()),
            Self::Git { url, commit: None } => format!("git = {url:?}"),
            Self::Git { url, commit: Some(commit) } => format!("git = {url:?}, rev = {commit:?}"),
        };
        let package = package.map(|package| format!(", package = {package:?}")).unwrap_or_default();
        Ok(format!("{name} = {{ {place}{package} }}\n"))
    }
}

/// The dependencies that a manifest takes from its workspace.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let tables = manifest
        .split("\n[")
        .filter(|table| table.starts_with("dependencies]") || table.starts_with("dev-dependencies]"));
    let lines = tables.flat_map(str::lines).filter(|line| line.contains("workspace = true"));
    lines.filter_map(|line| line.split(['.', ' ']).next())
}

/// The part of a text from `begin` to `end`.
fn section<'a>(text: &'a str, begin: &str, end: &str) -> Result<&'a str> {
    let from = text.find(begin).with_context(|| format!("Cargo.toml has no {begin}"))?;
    let rest = &text[from..];
    Ok(&rest[..rest.find(end).unwrap_or(rest.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_has_the_runtime_from_one_place() {
        let local = manifest("store-operator", &Source::Checkout).expect("a manifest");
        let path = format!(
            "manager = {{ path = \"{}/shared/manager\", package = \"operators-manager\" }}",
            workspace::root().display()
        );
        assert!(local.contains(&path), "{local}");
        assert!(local.contains("\nkube = { version = ") && local.contains("\ntokio = { version = "), "{local}");
        assert!(local.contains("\n[profile.dev]\n") && local.contains("\nmembers = [\"store-operator\"]\n"), "{local}");

        let url = "https://example.com/operators.git".to_owned();
        let commit = Some("0123abc".to_owned());
        let remote = manifest("store-operator", &Source::Git { url, commit }).expect("a manifest");
        let line = "manager = { git = \"https://example.com/operators.git\", rev = \"0123abc\", package = \"operators-manager\" }";
        assert!(remote.contains(line) && !remote.contains("path = "), "{remote}");
    }

    #[test]
    fn crates_of_the_tutorial_are_as_a_project_names_them() {
        let page = include_str!("../../../docs/book/src/second-part.md");
        let ours = fs::read_to_string(workspace::root().join("Cargo.toml")).expect("the manifest");
        for name in ["cluster", "fault-plan", "fault-proxy"] {
            let rest = ours.lines().find_map(|line| line.strip_prefix(&format!("{name} = {{ path = \"")));
            let line = Source::Checkout.dependency(name, rest.expect("a dependency")).expect("a line");
            let line = line.replace(&workspace::root().display().to_string(), "/src/operators");
            assert!(page.contains(&format!("\n{line}")), "{line}");
            assert!(page.contains(&format!("\n{name}.workspace = true\n")), "{name}");
        }
    }

    #[test]
    fn profiles_name_packages_of_the_project_alone() {
        let manifest = "[profile.dev.package]\n# both\na = { opt-level = 1 }\nb = { opt-level = 2 } # C\n# other\nx = { opt-level = 1 }\n\
                        y = { opt-level = 1 }\n# one\nx = { opt-level = 3 }\nb = { opt-level = 3 }\n# none\ny = { opt-level = 3 }\n\n\
                        # the end\n[profile.release]\nx = { opt-level = 3 }\nlto = \"fat\"\n";
        let expected = "[profile.dev.package]\n# both\na = { opt-level = 1 }\nb = { opt-level = 2 } # C\n# one\nb = { opt-level = 3 }\n\n\
                        # the end\n[profile.release]\nlto = \"fat\"\n";
        let lock = "[[package]]\nname = \"a\"\n\n[[package]]\nname = \"b\"\ndependencies = [\n \"x\",\n]\n";
        assert_eq!(settings_of(manifest, |package| is_locked(lock, package)), expected);
    }

    #[test]
    fn readme_of_the_crate_has_no_marks_and_says_how_to_read_the_fields() {
        let readme = "# a\n\n<!-- untested: needs a cluster -->\n```console\n$ b\n```\n\n## Every field\n\n<!-- generated: fields of Box -->\n";
        let expected = "# a\n\n```console\n$ b\n```\n\n`kubectl explain box.spec` describes every field.\n";
        assert_eq!(with_command(readme).expect("the section"), expected);
    }

    #[test]
    fn folder_with_files_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join(".git")).expect("a folder");
        fs::write(folder.path().join("notes"), "").expect("a file");
        let names = scaffold::tests::names("store", "Entry", "x.org").expect("names");
        let refused = write(folder.path(), &names, &Source::Checkout).expect_err("is refused").to_string();
        assert!(refused.ends_with("contains notes: choose an empty folder"), "{refused}");
    }
}
