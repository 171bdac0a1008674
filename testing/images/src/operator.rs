//! Builds the image of the product: a few static programs, an unprivileged user, no shell.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{Compression, Digest, ImageSpec, Layer, Reference, Store, closure, sbom};

/// The default name of the image. The registry `localhost` ensures that no node pulls the image from the internet.
pub const DEFAULT_TAG: &str = "localhost/operators/controller-manager:dev";

/// The programs in the image, at `/<name>`; the image starts the first one. The crate of each has the same name. They are separate
/// programs, because in a single one, code that the manager never runs would count as its memory.
const PROGRAMS: &[&str] = &["controller-manager", "metrics-proxy", "booking-server"];

/// The user `nonroot` of most small images.
const USER: &str = "65532:65532";

/// A stored operator image.
#[derive(Clone, Debug)]
pub struct Built {
    /// The name of the image.
    pub reference: Reference,
    /// The digest of its manifest.
    pub digest: Digest,
    /// The download size in bytes.
    pub size: u64,
}

/// Builds the programs of the workspace in `workspace` for release and stores them as an image.
pub fn build(workspace: &Path, store: &Store, reference: &Reference) -> Result<Built> {
    // In separate builds, so that features that one program needs of a library do not make the others larger.
    let programs = PROGRAMS.iter().map(|program| compile(workspace, program)).collect::<Result<Vec<_>>>()?;
    pack(&programs, store, reference)
}

/// The crates that are linked into the programs, for [`sbom`].
pub fn components(workspace: &Path) -> Result<Vec<sbom::Component>> {
    sbom::components(workspace, PROGRAMS, &target())
}

/// Builds an image from compiled programs and stores it. The same programs always give the same digest.
fn pack(programs: &[PathBuf], store: &Store, reference: &Reference) -> Result<Built> {
    let mut files = Layer::new();
    files
        .directory("/tmp", 0o1777)
        .file("/etc/passwd", "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532::/:/sbin/nologin\n", 0o644)
        .file("/etc/group", "root:x:0:\nnonroot:x:65532:\n", 0o644);
    for (program, file) in PROGRAMS.iter().zip(programs) {
        files.copy(&format!("/{program}"), file, 0o755)?;
        // Adds nothing to a static program.
        closure::add(&mut files, file, &[])?;
    }
    let label = |name: &str, value: &str| (format!("org.opencontainers.image.{name}"), value.to_owned());
    let main = PROGRAMS[0];
    let image = ImageSpec {
        references: vec![reference.clone()],
        files,
        entrypoint: vec![format!("/{main}")],
        // With only one heap, glibc keeps 3 MiB less after hours of outages. It costs no time.
        env: vec!["MALLOC_ARENA_MAX=1".to_owned()],
        user: USER.to_owned(),
        labels: [label("title", main), label("licenses", "Apache-2.0")].into(),
        compression: Compression::Gzip,
        ..ImageSpec::default()
    }
    .build()?;
    store.put(&image)?;
    let digest = image.digest();
    Ok(Built { reference: reference.clone(), size: store.size(&digest)?, digest })
}

/// The target triple of the build.
fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn compile(workspace: &Path, name: &str) -> Result<PathBuf> {
    ensure!(workspace.join("Cargo.toml").exists(), "{} is no workspace: it has no Cargo.toml", workspace.display());
    let target = target();
    // In a separate folder, because the different flags would invalidate the ordinary build.
    let folder = workspace.join("target/image");
    let status = crate::cargo()
        .args(["build", "--release", "--locked", "--package", name, "--bin", name, "--target", &target])
        .arg("--target-dir")
        .arg(&folder)
        .current_dir(workspace)
        // Static, with glibc: it has name resolution and needs no loader. Because the command names the target, cargo does not
        // use the flag for procedural macros, which cannot be static.
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .context("could not run cargo")?;
    if !status.success() {
        bail!("cargo could not build {name}, see above");
    }
    Ok(folder.join(target).join("release").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_program_gives_the_same_digest() {
        let folder = tempfile::tempdir().unwrap();
        let programs = vec![PathBuf::from("/bin/sh"); 3]; // any program works; this one is on every machine and needs libraries
        let reference = Reference::parse(DEFAULT_TAG).unwrap();
        let build = |name| {
            let store = Store::open(folder.path().join(name)).unwrap();
            pack(&programs, &store, &reference).unwrap()
        };
        let (one, other) = (build("one"), build("other"));
        assert_eq!((one.digest, one.size), (other.digest, other.size));
        assert_eq!(reference.to_string(), DEFAULT_TAG);
    }

    #[test]
    fn folder_without_a_workspace_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = compile(folder.path(), PROGRAMS[0]).unwrap_err();
        assert!(error.to_string().ends_with("is no workspace: it has no Cargo.toml"), "{error}");
    }
}
