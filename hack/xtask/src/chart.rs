//! `cargo xtask chart`: installs, packages and renders the Helm chart, with the version of Helm that `hack/tools` pins.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use chart::helm::{Helm, Version, succeeded};
use chart::{NAMESPACE, RELEASE, folder, plain};
use images::Reference;
use release::package::{Selector, name_image};
use serde_json::{Value, json};

use crate::workspace;

/// Install the Helm chart, package it, or write it as plain manifests
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Task,
}

#[derive(clap::Subcommand)]
enum Task {
    /// Install or upgrade the operators in the cluster of your kubeconfig, and wait until they are ready
    Install {
        #[command(flatten)]
        values: Values,
    },
    /// Uninstall the operators; the custom resource definitions and their objects stay
    Uninstall,
    /// Write plain manifests: install.yaml with all objects, and the same objects in six files
    Dist {
        #[command(flatten)]
        values: Values,
        /// The folder for the manifests
        #[arg(long, default_value = "dist", value_name = "FOLDER")]
        output: PathBuf,
    },
    /// Package the chart alone, for an image that is in a registry already
    Package {
        /// The operators' image, with its tag, which clusters can pull
        #[arg(long)]
        image: Reference,
        /// The version of the chart
        #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
        version: String,
        /// The folder for the package
        #[arg(long, default_value = "dist", value_name = "FOLDER")]
        output: PathBuf,
        /// Further arguments for `helm package`, such as `--sign --key NAME --keyring FILE`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

#[derive(clap::Args)]
struct Values {
    /// The operators' image, with its tag
    #[arg(long)]
    image: Option<Reference>,
    /// A value of the chart, such as `replicas=2`; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Values {
    fn image(&self) -> Value {
        let image =
            self.image.as_ref().map(|image| json!({"repository": image.repository.to_string(), "tag": image.tag}));
        image.map_or(json!({}), |image| json!({"image": image}))
    }

    fn sets(&self) -> Vec<&str> {
        self.set.iter().flat_map(|set| ["--set", set]).collect()
    }
}

pub(crate) fn run(args: Args) -> Result<()> {
    let helm = Helm::of(Version::Four)?;
    match args.command {
        Task::Install { values } => install(&helm, &values),
        Task::Uninstall => {
            shown(helm.command().args(["uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found", "--wait"]))
        }
        Task::Dist { values, output } => dist(&helm, &values, &workspace::root().join(output)),
        Task::Package { image, version, output, arguments } => {
            package(&helm, &image, &version, &workspace::root().join(output), &arguments)
        }
    }
}

fn install(helm: &Helm, values: &Values) -> Result<()> {
    let file = helm.values_file(&values.image())?;
    let mut command = helm.command();
    command.args(["upgrade", "--install", RELEASE]).arg(folder()).arg("--values").arg(file.path());
    command.args(["--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout=5m"]);
    shown(command.args(values.sets()))
}

fn dist(helm: &Helm, values: &Values, output: &PathBuf) -> Result<()> {
    let arguments = [&["--skip-tests"], values.sets().as_slice()].concat();
    let files = plain::files(&helm.template(&values.image(), &arguments)?)?;
    fs::create_dir_all(output).with_context(|| format!("could not create {}", output.display()))?;
    for (name, text) in files {
        let file = output.join(name);
        fs::write(&file, &text).with_context(|| format!("could not write {}", file.display()))?;
        println!("{} ({} objects)", file.display(), text.matches("---\n").count());
    }
    Ok(())
}

/// Packages a copy of the chart that names this image. The chart in the checkout names an image that only this machine has.
fn package(helm: &Helm, image: &Reference, version: &str, output: &Path, arguments: &[String]) -> Result<()> {
    ensure!(
        image.repository.registry != "localhost",
        "no cluster can pull {image}, which only this machine has: push an image to a registry, and name it with --image \
         (`make package VERSION=1.2.3 IMG=name:tag`)"
    );
    let copy = tempfile::tempdir().context("could not make a folder for the chart")?;
    let chart = copy.path().join("operators");
    let mut cp = workspace::command("cp");
    succeeded(cp.arg("--recursive").arg(folder()).arg(&chart)).context("could not copy the chart")?;
    name_image(&chart, &image.repository, &Selector::Tag(&image.tag))?;
    let mut command = helm.command();
    command.arg("package").arg(chart).args(["--version", version, "--app-version", version]);
    shown(command.arg("--destination").arg(output).args(arguments))
}

/// Runs the command; its output goes to the terminal.
fn shown(command: &mut Command) -> Result<()> {
    let status = command.status().context("could not run Helm")?;
    ensure!(status.success(), "Helm failed, see above");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packaged_chart_names_the_image_that_clusters_pull() {
        let (helm, folder) = (Helm::of(Version::Four).unwrap(), tempfile::tempdir().unwrap());
        let image = Reference::parse("registry.example.com:5000/team/app:v2").unwrap();
        package(&helm, &image, "1.2.3", folder.path(), &[]).unwrap();
        let rendered = helm.template_of(&folder.path().join("operators-1.2.3.tgz"), &json!({}), &[]).unwrap();
        assert!(rendered.text.contains("image: \"registry.example.com:5000/team/app:v2\"\n"), "{}", rendered.text);
        assert!(!rendered.text.contains("localhost/"), "{}", rendered.text);
    }

    #[test]
    fn image_that_only_this_machine_has_is_not_packaged() {
        let (helm, folder) = (Helm::of(Version::Four).unwrap(), tempfile::tempdir().unwrap());
        let image = Reference::parse(images::operator::DEFAULT_TAG).unwrap(); // that of a `make package` without IMG
        let error = package(&helm, &image, "1.2.3", folder.path(), &[]).unwrap_err().to_string();
        assert!(error.contains("no cluster can pull") && error.contains("--image"), "{error}");
    }
}
