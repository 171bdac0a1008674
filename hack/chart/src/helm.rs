//! Helm 3 and Helm 4, built from the Go modules under `hack/tools`.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, Result, ensure};
use cluster::{Cluster, Tool, Tools, progress};
use serde_json::Value;

use crate::{NAMESPACE, RELEASE, folder, rendered::Rendered};

/// A major version of Helm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Helm 3, the version that most users have.
    Three,
    /// Helm 4, which uses server-side apply.
    Four,
}

impl Version {
    /// Both majors, the older first.
    pub const ALL: [Self; 2] = [Self::Three, Self::Four];

    fn tool(self) -> (Tool, &'static str) {
        match self {
            Self::Three => (Tool::Helm3, "helm3"),
            Self::Four => (Tool::Helm, "helm"),
        }
    }
}

/// An installed Helm, ready to run.
#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
}

impl Helm {
    /// Finds the program, or builds it once, which takes a minute or two.
    pub fn of(version: Version) -> Result<Self> {
        let (tool, name) = version.tool();
        let tools = Tools::locate_or_build(&[tool], &progress::to_stderr)?;
        Ok(Self { program: tools.binary(name)?.to_owned() })
    }

    /// A Helm command that needs no cluster.
    pub fn command(&self) -> Command {
        with_homes(Command::new(&self.program))
    }

    /// A Helm command that runs in the network of `cluster`, as its administrator.
    pub fn on(&self, cluster: &Cluster) -> Command {
        with_homes(cluster.exec(&self.program))
    }

    /// Renders the chart with these values, which Helm reads from a values file in JSON.
    ///
    /// The error is Helm's own message.
    pub fn template(&self, values: &Value, arguments: &[&str]) -> Result<Rendered> {
        self.template_of(&folder(), values, arguments)
    }

    /// The same for another chart, a folder or a package.
    pub fn template_of(&self, chart: &Path, values: &Value, arguments: &[&str]) -> Result<Rendered> {
        let file = self.values_file(values)?;
        let mut command = self.command();
        command.args(["template", RELEASE]).arg(chart).args(["--namespace", NAMESPACE]).args(arguments);
        Rendered::parse(&succeeded(command.arg("--values").arg(file.path()))?)
    }

    /// The text that Helm shows after an install or an upgrade with these values. `helm template` prints none, and `helm upgrade`
    /// needs a cluster: so a copy of the chart renders it as an object.
    pub fn notes(&self, values: &Value, arguments: &[&str]) -> Result<String> {
        let temporary = tempfile::tempdir().context("could not make a folder for the chart")?;
        let copy = temporary.path().join("operators");
        succeeded(Command::new("cp").arg("--recursive").arg(folder()).arg(&copy))
            .context("could not copy the chart")?;
        std::fs::copy(copy.join("templates/NOTES.txt"), copy.join("notes.tpl"))?;
        let object = "kind: Notes\ntext: {{ tpl (.Files.Get \"notes.tpl\") . | quote }}\n";
        std::fs::write(copy.join("templates/notes.yaml"), object)?;
        let rendered = self.template_of(&copy, values, arguments)?;
        let notes = rendered.of("Notes").find_map(|notes| notes["text"].as_str());
        Ok(notes.context("the chart has no notes")?.to_owned())
    }

    /// Writes the values to a temporary file, which exists until the returned handle is dropped.
    pub fn values_file(&self, values: &Value) -> Result<tempfile::NamedTempFile> {
        let file = tempfile::Builder::new().prefix("values-").suffix(".json").tempfile()?;
        std::fs::write(file.path(), values.to_string())?;
        Ok(file)
    }
}

/// Gives Helm its own home folders, so that it reads and writes no configuration of the user.
fn with_homes(mut command: Command) -> Command {
    for name in ["CACHE", "CONFIG", "DATA"] {
        command.env(format!("HELM_{name}_HOME"), cluster::tools::cache().join("helm-home").join(name));
    }
    command
}

/// Runs the command and returns its standard output.
///
/// The error contains the command's standard error.
pub fn succeeded(command: &mut Command) -> Result<String> {
    let Output { status, stdout, stderr } = command.output().with_context(|| format!("could not run {command:?}"))?;
    ensure!(status.success(), "{}", String::from_utf8_lossy(&stderr).trim_end());
    String::from_utf8(stdout).context("the output is not UTF-8")
}
