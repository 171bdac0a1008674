//! `cargo xtask chart`: installs, packages and renders the Helm chart, with the version of Helm that `hack/tools` pins.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use chart::helm::{Helm, Version};
use chart::{NAMESPACE, RELEASE, folder, plain};
use images::Reference;
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
    /// Package the chart as a release
    Package {
        /// The version of the chart and of the image
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
        Task::Package { version, output, arguments } => {
            let output = workspace::root().join(output);
            let mut command = helm.command();
            command.arg("package").arg(folder()).args(["--version", &version, "--app-version", &version]);
            shown(command.arg("--destination").arg(output).args(arguments))
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

/// Runs the command; its output goes to the terminal.
fn shown(command: &mut Command) -> Result<()> {
    let status = command.status().context("could not run Helm")?;
    ensure!(status.success(), "Helm failed, see above");
    Ok(())
}
