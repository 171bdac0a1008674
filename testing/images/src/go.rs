//! The static Go programs of this repository, for images with only one file.
//!
//! Their sources are compiled into this crate, so that a built `xtask` can build them without a checkout.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// A program with its sources.
pub(crate) struct GoProgram {
    pub(crate) name: &'static str,
    pub(crate) sources: &'static [(&'static str, &'static str)],
}

/// Holds a pod's namespaces.
pub(crate) const PAUSE: GoProgram = GoProgram {
    name: "pause",
    sources: &[
        ("go.mod", include_str!("../programs/pause/go.mod")),
        ("main.go", include_str!("../programs/pause/main.go")),
    ],
};

/// A small web server, and the clients that tests run inside a pod.
pub(crate) const TESTBOX: GoProgram = GoProgram {
    name: "testbox",
    sources: &[
        ("go.mod", include_str!("../programs/testbox/go.mod")),
        ("main.go", include_str!("../programs/testbox/main.go")),
        ("client.go", include_str!("../programs/testbox/client.go")),
        ("exporter.go", include_str!("../programs/testbox/exporter.go")),
    ],
};

impl GoProgram {
    /// Compiles the program and returns its bytes.
    pub(crate) fn build(&self) -> Result<Vec<u8>> {
        let folder = tempfile::tempdir()?;
        for (name, content) in self.sources {
            std::fs::write(folder.path().join(name), content)?;
        }
        let program = folder.path().join(self.name);
        compile(folder.path(), &program).with_context(|| format!("could not build {}", self.name))?;
        Ok(std::fs::read(program)?)
    }
}

fn compile(folder: &Path, program: &Path) -> Result<()> {
    let output = Command::new("go")
        // With -trimpath and an empty build id, the bytes do not depend on the folder.
        .args(["build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o"])
        .arg(program)
        .arg(".")
        .current_dir(folder)
        .env("CGO_ENABLED", "0")
        .env("GOOS", "linux")
        .env("GOWORK", "off")
        .output()
        .context("could not run go: install Go to build the fixture images")?;
    if !output.status.success() {
        bail!("go build failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
