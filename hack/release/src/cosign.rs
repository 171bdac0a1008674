//! Signatures in the form of sigstore, which cosign, Kyverno and the policy controller verify. The program cosign itself makes them,
//! so everything that it accepts as a key is a key here.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use cluster::{Tool, Tools, progress};
use serde_json::Value;

use crate::statement::Statement;

/// The media type of a signature together with everything that its verification needs.
pub const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// A signing configuration without services: no transparency log, no authority for time stamps.
pub const NO_SERVICES: &str = r#"{"mediaType":"application/vnd.dev.sigstore.signingconfig.v0.2+json"}"#;
/// The roots of trust for these services. cosign would otherwise download those of the public services.
pub const NO_ROOTS: &str = r#"{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}"#;

/// Who signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Who has this private key: a file of `cosign generate-key-pair`, or the address of a key in a key management service. No
    /// transparency log learns of the signatures.
    Key(String),
    /// The workflow or the user, by a short-lived certificate. The public transparency log has an entry for each signature.
    Keyless,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "with the key {key}"),
            Self::Keyless => write!(f, "keyless, with an entry in the public transparency log"),
        }
    }
}

/// The program with an identity.
#[derive(Clone, Debug)]
pub struct Signer {
    program: PathBuf,
    identity: Identity,
    password: Option<String>,
    public_key: Option<String>,
}

impl Signer {
    /// Finds the program, or builds it once, which takes some minutes. It decrypts a key with this password; without one, cosign
    /// takes the one in `COSIGN_PASSWORD`, or asks for it.
    ///
    /// # Errors
    ///
    /// Also if there is no such key, or the password is wrong.
    pub fn new(identity: Identity, password: Option<String>) -> Result<Self> {
        let tools = Tools::locate_or_build(&[Tool::Cosign], &progress::to_stderr)?;
        let mut signer = Self { program: tools.binary("cosign")?.to_owned(), identity, password, public_key: None };
        if let Identity::Key(key) = &signer.identity {
            let said = run(signer.command().args(["public-key", "--key", key])).with_context(|| {
                format!(
                    "cannot sign with the key {key}: `cosign generate-key-pair` makes a pair, and COSIGN_PASSWORD has the \
                     password of its file"
                )
            })?;
            signer.public_key = Some(said);
        }
        Ok(signer)
    }

    /// The public key in PEM format, with which others verify. A keyless signature needs none.
    pub fn public_key(&self) -> Option<&str> {
        self.public_key.as_deref()
    }

    /// Signs a statement. Returns the bundle with it and the signature. Each call returns another one.
    pub fn sign(&self, statement: &Statement) -> Result<Bytes> {
        let folder = tempfile::tempdir()?;
        let (unsigned, bundle) = (folder.path().join("statement.json"), folder.path().join("bundle.json"));
        fs::write(&unsigned, &statement.content)?;
        let mut command = self.command();
        command.args(["attest-blob", "--yes", "--statement"]).arg(&unsigned).arg("--bundle").arg(&bundle);
        if let Identity::Key(key) = &self.identity {
            let (services, roots) = (folder.path().join("services.json"), folder.path().join("roots.json"));
            fs::write(&services, NO_SERVICES)?;
            fs::write(&roots, NO_ROOTS)?;
            command.args(["--key", key, "--signing-config"]).arg(services).arg("--trusted-root").arg(roots);
        }
        run(&mut command).context("could not sign")?;
        Ok(fs::read(bundle).context("cosign wrote no bundle")?.into())
    }

    /// Whether the bundle has a signature of this key for this statement. Never for a keyless signature: it is made again.
    pub fn has_signed(&self, statement: &Statement, bundle: &[u8]) -> Result<bool> {
        if signed_content(bundle).as_deref() != Some(&*statement.content) {
            return Ok(false);
        }
        let Some(key) = self.public_key() else { return Ok(false) };
        let folder = tempfile::tempdir()?;
        let (public, signed) = (folder.path().join("cosign.pub"), folder.path().join("bundle.json"));
        fs::write(&public, key)?;
        fs::write(&signed, bundle)?;
        let mut command = self.command();
        command.args(["verify-blob-attestation", "--insecure-ignore-tlog", "--key"]).arg(public);
        command.args(["--type", statement.predicate_type, "--digestAlg", "sha256", "--digest"]);
        command.arg(statement.subject().hex()).arg("--bundle").arg(signed);
        Ok(command.output().context("could not run cosign")?.status.success())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.stdin(Stdio::inherit()); // it may ask for the password
        if let Some(password) = &self.password {
            command.env("COSIGN_PASSWORD", password);
        }
        command
    }
}

/// The statement in a bundle.
fn signed_content(bundle: &[u8]) -> Option<Vec<u8>> {
    let bundle: Value = serde_json::from_slice(bundle).ok()?;
    BASE64_STANDARD.decode(bundle["dsseEnvelope"]["payload"].as_str()?).ok()
}

/// Makes a pair of keys in this folder, `cosign.pub` and, with this password, `cosign.key`. Finds the program, or builds it once.
pub fn generate_key_pair(folder: &Path, password: &str) -> Result<()> {
    let tools = Tools::locate_or_build(&[Tool::Cosign], &progress::to_stderr)?;
    let mut command = Command::new(tools.binary("cosign")?);
    // In another home: cosign would keep roots of trust and a configuration of docker there.
    command.arg("generate-key-pair").current_dir(folder).env("HOME", folder).env_remove("DOCKER_CONFIG");
    run(command.env("COSIGN_PASSWORD", password)).map(drop).context("cosign made no keys")
}

/// Runs the command and returns its standard output. The error has the last line that it wrote.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().context("could not run cosign")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cosign: {}", said.trim_end().lines().last().unwrap_or_default());
    String::from_utf8(output.stdout).context("cosign did not write text")
}
