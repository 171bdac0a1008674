//! The image of the product: a few static programs, a user without rights, no shell.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{Compression, Digest, ImageSpec, Layer, Reference, Store, closure, sbom};

/// The name that the image gets unless someone says otherwise. Nobody pulls from `localhost`.
pub const DEFAULT_TAG: &str = "localhost/operators/controller-manager:dev";

/// A program in the image: `/<name>`. Its crate is called like it.
struct Program {
    name: &'static str,
    /// The folder of its crate.
    folder: &'static str,
}

/// What is in the image; the first is what it starts. Programs of their own, not one that plays all parts: what the manager
/// never runs would count as its memory.
const PROGRAMS: &[Program] = &[
    Program { name: "controller-manager", folder: "operators" },
    Program { name: "metrics-proxy", folder: "shared" },
    Program { name: "booking-server", folder: "shared" },
];

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

/// Builds the programs of the workspace in `workspace` for release and stores them as an image.
pub fn build(workspace: &Path, store: &Store, reference: &Reference) -> Result<Built> {
    // One after the other: what one of them needs of a library must not make the others larger.
    let programs = PROGRAMS.iter().map(|program| compile(workspace, program)).collect::<Result<Vec<_>>>()?;
    pack(&programs, store, reference)
}

/// What each program is linked from, for [`sbom`].
pub fn components(workspace: &Path) -> Result<Vec<sbom::Component>> {
    let names: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
    sbom::components(workspace, &names, &target())
}

/// Stores an image around finished programs. The same programs always give the same digest.
fn pack(programs: &[PathBuf], store: &Store, reference: &Reference) -> Result<Built> {
    let mut files = Layer::new();
    files
        .directory("/tmp", 0o1777)
        .file("/etc/passwd", "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532::/:/sbin/nologin\n", 0o644)
        .file("/etc/group", "root:x:0:\nnonroot:x:65532:\n", 0o644);
    for (program, file) in PROGRAMS.iter().zip(programs) {
        files.copy(&format!("/{}", program.name), file, 0o755)?;
        // Adds nothing to a static program.
        closure::add(&mut files, file, &[])?;
    }
    let label = |name: &str, value: &str| (format!("org.opencontainers.image.{name}"), value.to_owned());
    let main = PROGRAMS[0].name;
    let image = ImageSpec {
        references: vec![reference.clone()],
        files,
        entrypoint: vec![format!("/{main}")],
        // After hours of outages, glibc's heaps hold 3 MiB less when there is only one; no time is lost by it.
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

/// What is compiled for.
fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn compile(workspace: &Path, Program { name, folder }: &Program) -> Result<PathBuf> {
    let manifest = workspace.join(folder).join(name).join("Cargo.toml");
    ensure!(
        manifest.exists(),
        "{folder}/{name} does not exist in {}: the operator image holds the program of that crate",
        workspace.display()
    );
    let target = target();
    // A folder of its own: other flags would throw away what the ordinary build has compiled.
    let folder = workspace.join("target/image");
    let status = crate::cargo()
        .args(["build", "--release", "--locked", "--package", name, "--bin", name, "--target", &target])
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
        let programs = vec![PathBuf::from("/bin/sh"); 3]; // any program will do; this one is everywhere and needs libraries
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
    fn a_missing_crate_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = compile(folder.path(), &PROGRAMS[0]).unwrap_err();
        assert!(error.to_string().starts_with("operators/controller-manager does not exist"), "{error}");
    }
}
