//! Verifies a release with the commands that the chart's README gives to users. They are taken out of the document, so what it says is
//! what the tests run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use chart::helm::succeeded;
use cluster::{Tool, Tools, progress};
use images::reference::Repository;

use crate::Plan;

/// The section with the commands.
const HEADING: &str = "## Verifying a release";
/// The registry and the version of the examples.
const REGISTRY: &str = "ghcr.io/team";
const VERSION: &str = "1.2.3";
/// The digest that the user takes from the output of the command before.
const DIGEST: &str = "DIGEST";
/// The platform of the examples.
const PLATFORM: &str = "linux/amd64";
/// The file that the README names for the bill of materials.
const BILL: &str = "bom.json";

/// The commands of the section, each as its words, for this release instead of that of the examples.
///
/// # Errors
///
/// Also if there are none.
pub fn commands(readme: &str, plan: &Plan) -> Result<Vec<Vec<String>>> {
    let section = readme.split_once(&format!("\n{HEADING}\n")).with_context(|| format!("no section {HEADING:?}"))?.1;
    let section = section.split("\n## ").next().unwrap_or_default();
    let (registry, version) = (plan.registry.to_string(), plan.version.to_string());
    let platform = plan.platforms.first().map_or_else(|| PLATFORM.to_owned(), ToString::to_string);
    let words = |command: &str| {
        let command = command.replace(REGISTRY, &registry).replace(VERSION, &version).replace(PLATFORM, &platform);
        shlex::split(&command).with_context(|| format!("a quotation mark is missing: {command}"))
    };
    let commands: Vec<_> =
        section.lines().filter_map(|line| line.strip_prefix("$ ")).map(words).collect::<Result<_>>()?;
    ensure!(!commands.is_empty(), "{HEADING:?} has no commands");
    Ok(commands)
}

/// A user who follows the README.
#[derive(Debug)]
pub struct Reader {
    folder: PathBuf,
    tools: Tools,
    readme: String,
}

impl Reader {
    /// A user with this folder, which has the public key `cosign.pub`. Builds the programs of the commands once, which takes minutes.
    pub fn new(folder: &Path) -> Result<Self> {
        let tools = Tools::locate_or_build(&[Tool::Cosign, Tool::Oras], &progress::to_stderr)?;
        let readme = chart::folder().join("README.md");
        let readme = fs::read_to_string(&readme).with_context(|| format!("could not read {}", readme.display()))?;
        Ok(Self { folder: folder.to_owned(), tools, readme })
    }

    /// Runs the commands about the signature and the provenance of this repository. Returns what the last one says.
    pub fn verify(&self, plan: &Plan, of: &Repository) -> Result<String> {
        let subject = format!("{of}:{}", plan.version);
        let mut commands = self.commands_of("cosign", plan)?;
        commands.retain(|command| command.last() == Some(&subject));
        ensure!(commands.len() == 2, "the README verifies the signature and the provenance of {of}: {commands:?}");
        let mut said = commands.iter().map(|command| self.run(command)).collect::<Result<Vec<_>>>()?;
        Ok(said.pop().unwrap_or_default())
    }

    /// Runs the commands that find and download the bill of materials of an image. Returns it.
    pub fn bill_of_materials(&self, plan: &Plan) -> Result<Bytes> {
        let commands = self.commands_of("oras", plan)?;
        let [discover, pull] = commands.as_slice() else {
            bail!("the README has one command to find the bill, and one to download it: {commands:?}")
        };
        let said = self.run(discover)?;
        ensure!(said.contains("cyclonedx"), "no bill of materials is attached: {said}");
        let digest = said.rsplit("sha256:").next().and_then(|rest| rest.split_whitespace().next());
        let digest = digest.context("oras prints no digest")?;
        self.run(&pull.iter().map(|word| word.replace(DIGEST, digest)).collect::<Vec<_>>())?;
        Ok(fs::read(self.folder.join(BILL)).context("oras wrote no bill of materials")?.into())
    }

    fn commands_of(&self, program: &str, plan: &Plan) -> Result<Vec<Vec<String>>> {
        let mut commands = commands(&self.readme, plan)?;
        commands.retain(|command| command.first().is_some_and(|first| first == program));
        Ok(commands)
    }

    fn run(&self, command: &[String]) -> Result<String> {
        let (program, arguments) = command.split_first().context("an empty command")?;
        let mut run = Command::new(self.tools.binary(program)?);
        run.args(arguments).current_dir(&self.folder);
        // In another home: the programs would keep roots of trust and a configuration of docker there.
        run.env("HOME", &self.folder).env_remove("DOCKER_CONFIG");
        if program == "oras" {
            run.arg("--plain-http"); // without a word from the user, it speaks TLS to 127.0.0.1
        }
        succeeded(&mut run)
    }
}
