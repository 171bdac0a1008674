//! The image of the product: one static program, a user without rights, no shell.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{Compression, Digest, ImageSpec, Layer, Reference, Store, closure};

/// The name that the image gets unless someone says otherwise. Nobody pulls from `localhost`.
pub const DEFAULT_TAG: &str = "localhost/operators/controller-manager:dev";

/// The crate and its program; the same name for both.
const PROGRAM: &str = "controller-manager";

/// The user `nonroot` of most small images.
const USER: &str = "65532:65532";

/// A stored operator image.
#[derive(Clone, Debug)]
pub struct Built {
    /// Its name.
    pub reference: Reference,
    /// The digest of its manifest.
    pub digest: Digest,
    /// Bytes to pull.
    pub size: u64,
}

/// Builds the program of the workspace in `workspace` for release and stores it as an image.
pub fn build(workspace: &Path, store: &Store, reference: &Reference) -> Result<Built> {
    let program = compile(workspace)?;
    pack(&program, store, reference)
}

/// Stores an image around a finished program. The same program always gives the same digest.
pub fn pack(program: &Path, store: &Store, reference: &Reference) -> Result<Built> {
    let mut files = Layer::new();
    files
        .copy(&format!("/{PROGRAM}"), program, 0o755)?
        .directory("/tmp", 0o1777)
        .file("/etc/passwd", "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532::/:/sbin/nologin\n", 0o644)
        .file("/etc/group", "root:x:0:\nnonroot:x:65532:\n", 0o644);
    // Adds nothing to a static program.
    closure::add(&mut files, program, &[])?;
    let label = |name: &str, value: &str| (format!("org.opencontainers.image.{name}"), value.to_owned());
    let image = ImageSpec {
        references: vec![reference.clone()],
        files,
        entrypoint: vec![format!("/{PROGRAM}")],
        user: USER.to_owned(),
        labels: [label("title", PROGRAM), label("licenses", "Apache-2.0")].into(),
        compression: Compression::Gzip,
        ..ImageSpec::default()
    }
    .build()?;
    store.put(&image)?;
    let digest = image.digest();
    Ok(Built { reference: reference.clone(), size: store.size(&digest)?, digest })
}

fn compile(workspace: &Path) -> Result<PathBuf> {
    let manifest = workspace.join("operators").join(PROGRAM).join("Cargo.toml");
    ensure!(
        manifest.exists(),
        "operators/{PROGRAM} does not exist in {}: the operator image holds the program of that crate",
        workspace.display()
    );
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // A folder of its own: other flags would throw away what the ordinary build has compiled.
    let folder = workspace.join("target/image");
    let status = crate::cargo()
        .args(["build", "--release", "--locked", "--package", PROGRAM, "--bin", PROGRAM, "--target", &target])
        .arg("--target-dir")
        .arg(&folder)
        .current_dir(workspace)
        // Static, with glibc: it brings name resolution and needs no loader. Naming the target keeps the flag away from
        // procedural macros, which cannot be static.
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .context("could not run cargo")?;
    if !status.success() {
        bail!("cargo could not build {PROGRAM}, see above");
    }
    Ok(folder.join(target).join("release").join(PROGRAM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_program_gives_the_same_digest() {
        let folder = tempfile::tempdir().unwrap();
        let program = Path::new("/bin/sh"); // any program will do; this one is everywhere and needs libraries
        let reference = Reference::parse(DEFAULT_TAG).unwrap();
        let build = |name| {
            let store = Store::open(folder.path().join(name)).unwrap();
            pack(program, &store, &reference).unwrap()
        };
        let (one, other) = (build("one"), build("other"));
        assert_eq!((one.digest, one.size), (other.digest, other.size));
        assert_eq!(reference.to_string(), DEFAULT_TAG);
    }

    #[test]
    fn a_missing_crate_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = compile(folder.path()).unwrap_err();
        assert!(error.to_string().starts_with("operators/controller-manager does not exist"), "{error}");
    }
}
