//! An image registry on loopback for tests: distribution, which most self-hosted registries run. `hack/tools` pins its version.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use cluster::{Tool, Tools, progress};
use images::Digest;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A registry with an empty store. Ends when dropped.
#[derive(Debug)]
pub struct Registry {
    process: Child,
    folder: TempDir,
    /// Where the registry listens.
    pub address: SocketAddr,
}

impl Registry {
    /// Starts a registry that wants no password.
    ///
    /// # Errors
    ///
    /// See [`Registry::with`].
    pub fn start() -> Result<Self> {
        Self::with(&json!({}), json!({}))
    }

    /// Starts a registry with these sections of its configuration: `auth`, which may be empty, and additions to `http`.
    ///
    /// # Errors
    ///
    /// If it cannot be built or does not start. Then the error has its log.
    pub fn with(auth: &Value, mut http: Value) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        http["addr"] = json!("127.0.0.1:0");
        let mut configuration = json!({
            "version": 0.1,
            "log": {"level": "info", "accesslog": {"disabled": true}},
            "storage": {"filesystem": {"rootdirectory": folder.path().join("store")}},
            "http": http,
        });
        if auth.as_object().is_some_and(|auth| !auth.is_empty()) {
            configuration["auth"] = auth.clone();
        }
        let file = folder.path().join("configuration.json"); // JSON is YAML too
        fs::write(&file, configuration.to_string())?;
        let tools = Tools::locate_or_build(&[Tool::Distribution], &progress::to_stderr)?;
        let mut registry = Command::new(tools.binary("registry")?);
        registry.arg("serve").arg(file).env("OTEL_TRACES_EXPORTER", "none");
        let mut process = registry.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let log = process.stderr.take().context("the registry has no log")?;
        let mut log = BufReader::new(log).lines().map_while(Result::ok);
        let mut before = Vec::new();
        let address = log.by_ref().find_map(|line| {
            let address = address_in(&line);
            before.push(line);
            address
        });
        let address = address.with_context(|| format!("the registry does not start:\n{}", before.join("\n")))?;
        std::thread::spawn(move || log.for_each(drop)); // a full pipe would stop it
        Ok(Self { process, folder, address })
    }

    /// The file in which the registry keeps a blob.
    pub fn file(&self, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        let start = hex.get(..2).unwrap_or_default();
        self.folder.path().join("store/docker/registry/v2/blobs/sha256").join(start).join(hex).join("data")
    }
}

/// The address in the line of the log that names it.
fn address_in(line: &str) -> Option<SocketAddr> {
    let after = line.split_once("listening on ")?.1;
    after.split(|c: char| c != '.' && c != ':' && !c.is_ascii_digit()).next()?.parse().ok()
}

impl Drop for Registry {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
