//! Checks the workflows of the public CI, which run on no machine but GitHub's: by actionlint, and their commands by the parsers of
//! the programs that they call. Those of the template of new projects are checked by actionlint alone: their commands are those of
//! the project, whose Makefile another check runs.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use cluster::{Tool, Tools, progress};
use serde_json::Value;

use crate::book::commands;
use crate::workspace::{self, File};

/// The folder of the workflows, relative to the root of the checkout.
const FOLDER: &str = ".github/workflows/";
/// The same folder in the template of new projects.
const OF_NEW_PROJECTS: &str = "hack/scaffold/project/.github/workflows/";
/// Keeps the PATH of the user for what `sudo` runs. The sudoers of Debian and Ubuntu set `secure_path`, which replaces the PATH
/// whatever `--preserve-env` says, and the folder of cargo is not in it.
const KEEPS_PATH: &str = "env \"PATH=$PATH\" ";
/// The commands that need the programs of the PATH, such as cargo and Go.
const BUILDS: &[&str] = &["make", "cargo", ".ci/run"];

/// Checks all workflows of the checkout.
pub(crate) fn run() -> Result<ExitCode> {
    let files = workspace::files()?;
    let workflows: Vec<&File> = files.iter().filter(|file| file.path.starts_with(FOLDER)).collect();
    let mut findings = lint(&paths(&files))?;
    let mut count = 0;
    for workflow in &workflows {
        let steps = steps(workflow)?;
        count += steps.len();
        findings.extend(check(workflow, &steps, &files)?);
    }
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        println!("\n{} findings in {FOLDER} and {OF_NEW_PROJECTS}", findings.len());
        return Ok(ExitCode::FAILURE);
    }
    println!("{} workflows, {count} commands", workflows.len());
    Ok(ExitCode::SUCCESS)
}

/// The workflows that actionlint checks.
fn paths(files: &[File]) -> Vec<PathBuf> {
    let is_workflow = |file: &&File| file.path.starts_with(FOLDER) || file.path.starts_with(OF_NEW_PROJECTS);
    files.iter().filter(is_workflow).map(|file| workspace::root().join(&file.path)).collect()
}

/// What actionlint finds in these files, one line each. It calls no other linter, so the machine's programs change nothing.
fn lint(files: &[PathBuf]) -> Result<Vec<String>> {
    let tools = Tools::locate_or_build(&[Tool::Actionlint], &progress::to_stderr)?;
    let mut actionlint = workspace::command(tools.binary("actionlint")?);
    let output = actionlint.args(["-oneline", "-no-color", "-shellcheck=", "-pyflakes="]).args(files).output()?;
    // It ends with 1 if it has found something, and with more if it could not do its work.
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!("actionlint failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// What is wrong with the commands of these steps, one line each. `files` is the whole checkout.
fn check(workflow: &File, steps: &[String], files: &[File]) -> Result<Vec<String>> {
    let path = workflow.path.as_str();
    let lost = steps.iter().filter(|step| loses_path(step));
    let mut findings: Vec<_> =
        lost.map(|step| format!("{path}: `{step}`: write `{}` after sudo", KEEPS_PATH.trim_end())).collect();
    findings.extend(commands::unknown(files, steps.iter().map(|step| (path, without_sudo(step))))?);
    Ok(findings)
}

/// The commands of all steps.
fn steps(workflow: &File) -> Result<Vec<String>> {
    let parsed: Value =
        serde_saphyr::from_str(&workflow.text).with_context(|| format!("could not read {}", workflow.path))?;
    let jobs = parsed["jobs"].as_object().into_iter().flatten();
    let steps = jobs.flat_map(|(_, job)| job["steps"].as_array().into_iter().flatten());
    let scripts = steps.filter_map(|step| step["run"].as_str());
    Ok(scripts.flat_map(commands::of_script).map(|(_, command)| command).collect())
}

/// What `sudo` runs; `None` if it is another command.
fn of_sudo(command: &str) -> Option<String> {
    let rest = command.strip_prefix("sudo ")?;
    Some(rest.split(' ').skip_while(|word| word.starts_with("--")).collect::<Vec<_>>().join(" "))
}

/// Whether `sudo` takes the PATH away from a command that needs it.
fn loses_path(command: &str) -> bool {
    of_sudo(command).is_some_and(|command| command.split(' ').next().is_some_and(|first| BUILDS.contains(&first)))
}

/// The command that `sudo` runs, or the command itself.
fn without_sudo(command: &str) -> String {
    match of_sudo(command) {
        Some(command) => command.strip_prefix(KEEPS_PATH).unwrap_or(&command).to_owned(),
        None => command.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKFLOW: &str = "on: push\njobs:\n  a:\n    runs-on: ubuntu-24.04\n    steps:\n      - run: sudo --preserve-env=A,B env \"PATH=$PATH\" make demo\n";

    fn linted(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("workflow.yaml");
        std::fs::write(&file, text).unwrap();
        lint(&[file]).unwrap()
    }

    #[test]
    fn workflow_that_github_would_refuse_is_found() {
        assert_eq!(linted(WORKFLOW), Vec::<String>::new());
        for (wrong, says) in [
            (WORKFLOW.replace("runs-on: ", "run-on: "), "run-on"),
            (WORKFLOW.replace("make demo", "make ${{ matrx.demo }}"), "matrx"),
            (WORKFLOW.replace("run: sudo", "run:\n          - sudo"), "expected scalar"),
        ] {
            let found = linted(&wrong);
            assert!(found.iter().any(|line| line.contains(says)), "{says}: {found:?}");
        }
    }

    #[test]
    fn workflow_of_new_projects_is_linted() {
        let paths = paths(&workspace::files().unwrap());
        for name in [format!("{FOLDER}ci.yaml"), format!("{OF_NEW_PROJECTS}ci.yaml")] {
            assert!(paths.contains(&workspace::root().join(&name)), "{name}: {paths:?}");
        }
        assert_eq!(lint(&paths).unwrap(), Vec::<String>::new());
    }

    /// One of the workflows of the checkout.
    fn workflow(name: &str) -> File {
        let path = format!("{FOLDER}{name}");
        File { text: std::fs::read_to_string(workspace::root().join(&path)).unwrap(), path }
    }

    fn jobs(workflow: &File) -> serde_json::Map<String, Value> {
        let parsed: Value = serde_saphyr::from_str(&workflow.text).unwrap();
        parsed["jobs"].as_object().unwrap().clone()
    }

    /// The jobs that this job waits for.
    fn needs(job: &Value) -> Vec<String> {
        match &job["needs"] {
            Value::String(one) => vec![one.clone()],
            all => all.as_array().into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect(),
        }
    }

    /// Otherwise only a release would show that a change does not compile for the other platform.
    #[test]
    fn ci_builds_the_image_of_the_other_platform() {
        let steps = steps(&workflow("ci.yaml")).unwrap();
        let builds = |step: &String| step.starts_with("cargo xtask image build --platform linux/arm64 --profile dev ");
        assert!(steps.iter().any(builds), "{steps:?}");
    }

    /// Branch protection asks for the result of this job alone.
    #[test]
    fn last_job_of_ci_waits_for_all_others() {
        let jobs = jobs(&workflow("ci.yaml"));
        let mut others: Vec<_> = jobs.keys().filter(|name| *name != "done").cloned().collect();
        let mut waits_for = needs(&jobs["done"]);
        others.sort();
        waits_for.sort();
        assert_eq!(waits_for, others);
    }

    /// A tag can name any commit.
    #[test]
    fn nothing_is_pushed_before_ci_has_passed() {
        let jobs = jobs(&workflow("release.yaml"));
        let waits =
            |job: &Value| needs(job).iter().any(|it| it == "passed" || needs(&jobs[it]).contains(&"passed".to_owned()));
        let writes = |job: &Value| {
            let rights = job["permissions"].as_object();
            rights.is_some_and(|rights| rights.values().any(|right| right == "write"))
        };
        let writing: Vec<_> = jobs.iter().filter(|(_, job)| writes(job)).collect();
        assert!(writing.len() >= 2, "{writing:?}");
        for (name, job) in writing {
            assert!(waits(job), "{name} does not wait for CI");
        }
        let steps = jobs["passed"]["steps"].to_string();
        for word in ["--workflow ci.yaml", "--branch main", "--event push", "$GITHUB_SHA", "exit 1"] {
            assert!(steps.contains(word), "{word}: {steps}");
        }
    }

    #[test]
    fn commands_of_steps_exist() {
        let makefile = File { path: "Makefile".to_owned(), text: ".PHONY: demo\ndemo: ## Try\n\ttrue\n".to_owned() };
        let unknown = |text: &str| {
            let workflow = File { path: format!("{FOLDER}a.yaml"), text: text.to_owned() };
            let steps = steps(&workflow).unwrap();
            assert_eq!(steps.len(), 1);
            check(&workflow, &steps, std::slice::from_ref(&makefile)).unwrap()
        };
        assert_eq!(unknown(WORKFLOW), Vec::<String>::new());
        for wrong in ["make dmo", "cargo xtask test --onyl tidy"] {
            let found = unknown(&WORKFLOW.replace("make demo", wrong));
            assert_eq!(found.len(), 1, "{wrong}: {found:?}");
        }
        let found = unknown(&WORKFLOW.replace(KEEPS_PATH, ""));
        assert!(
            found.len() == 1 && found[0].ends_with("make demo`: write `env \"PATH=$PATH\"` after sudo"),
            "{found:?}"
        );
        assert_eq!(
            unknown(&WORKFLOW.replace(KEEPS_PATH, "").replace("make demo", "chown root a")),
            Vec::<String>::new()
        );
    }
}
