//! Checks objects against the published schemas of other minors of Kubernetes than the one that runs in the tests. The program
//! `kubernetes-validate` from `PyPI` contains these schemas.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::helm::succeeded;

/// The version of the program. Its first two numbers are the newest minor of Kubernetes that it knows.
const VERSION: &str = "1.37.0";

/// The installed program, ready to run.
#[derive(Debug)]
pub struct Schemas {
    program: PathBuf,
}

impl Schemas {
    /// Finds the program, or installs it once in a virtual environment of its own. Needs `python3` with `venv`.
    pub fn of_all_minors() -> Result<Self> {
        let cache = cluster::tools::cache();
        fs::create_dir_all(&cache)?;
        let folder = cache.join(format!("kubernetes-validate-{VERSION}"));
        let lock = File::create(cache.join("kubernetes-validate.lock")).context("could not create a lock")?;
        lock.lock().context("could not wait for another installation")?;
        let is_there = folder.join("installed");
        if !is_there.is_file() {
            install(&folder).context("could not install kubernetes-validate from PyPI")?;
            fs::write(&is_there, "")?;
        }
        Ok(Self { program: folder.join("bin/kubernetes-validate") })
    }

    /// Checks that this minor (such as `1.36`) knows these objects and each of their fields.
    ///
    /// The error names the objects and fields that the minor does not know.
    pub fn check<'a>(&self, minor: &str, objects: impl IntoIterator<Item = &'a Value>) -> Result<()> {
        let mut file = tempfile::Builder::new().prefix("objects-").suffix(".yaml").tempfile()?;
        for object in objects {
            writeln!(file, "---\n{object}")?;
        }
        let mut validate = Command::new(&self.program);
        validate.args(["--kubernetes-version", minor, "--strict", "--quiet"]).arg(file.path());
        let output = validate.output().context("could not run kubernetes-validate")?;
        let said = [output.stdout, output.stderr].concat(); // what does not fit, or why the program could not check
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&said).trim_end());
        Ok(())
    }
}

fn install(folder: &Path) -> Result<()> {
    eprintln!("installing kubernetes-validate {VERSION}, once");
    let mut environment = Command::new("python3");
    succeeded(environment.args(["-m", "venv", "--clear"]).arg(folder))
        .context("python3 cannot create a virtual environment: install the package python3-venv")?;
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]);
    succeeded(pip.arg(format!("kubernetes-validate=={VERSION}"))).map(drop)
}
