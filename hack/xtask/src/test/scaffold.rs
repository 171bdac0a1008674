//! A new project outside of this workspace: `cargo xtask new-project` writes it, the first change of the tutorial is made, and the
//! project passes its own checks, with a real API server.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use cluster::{Tools, progress};

use crate::new_project::{self, Source};
use crate::report::Outcome;
use crate::scaffold::{Api, Names};
use crate::{tidy, workspace};

/// The change that the tutorial makes to a new operator, with the names of the template.
const CHANGE: &str = include_str!("../../../scaffold/first-change.patch");

/// Writes, changes and checks a project.
pub(super) fn check() -> Result<Outcome> {
    let folder = workspace::root().join("target/scaffold/project");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("could not remove {}", folder.display()))?;
    }
    // The name of an operator need not be that of its kind.
    let names = Names::new(Some("parts"), &Api::new("BicycleBell", "shop.example.org"))?;
    new_project::write(&folder, &names, &Source::Checkout)?;
    let broken = tidy::broken_links(&workspace::files_in(&folder)?);
    ensure!(broken.is_empty(), "links of the new project lead nowhere:\n{}", broken.join("\n"));
    let run = |what: &str, command: &mut Command| {
        eprintln!("{what}");
        command.current_dir(&folder).env("CI", "true"); // a test that cannot run here fails
        command.env("CARGO_TARGET_DIR", workspace::root().join("target")); // shares what it builds alike
        workspace::run(command, &format!("{what} failed in {}, see above", folder.display()))
    };
    let make = |target: &str| {
        let mut make = workspace::command("make");
        make.arg(target);
        make
    };
    run("generated files of the new project", &mut make("check-generated"))?;
    let patch = folder.with_file_name("first-change.patch");
    fs::write(&patch, names.applied_to(CHANGE))?;
    let mut apply = workspace::command("git");
    apply.arg("apply").arg(&patch).env("GIT_CEILING_DIRECTORIES", folder.with_file_name("")); // not in this repository
    run("the first change of the tutorial", &mut apply)?;
    run("make generate", &mut make("generate"))?;
    run("make test", &mut make("test"))?;
    let tools = Tools::locate_or_build(&cluster::tools::TOOLS, &progress::to_stderr)?;
    let mut lint = workspace::command(tools.binary("helm")?);
    lint.args(["lint", "--strict"]).arg(format!("charts/{}-operator", names.name));
    run("helm lint", &mut lint)?;
    Ok(Outcome::Passed)
}
