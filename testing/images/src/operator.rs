//! Builds the image of the product: a few static programs, an unprivileged user, no shell.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::folders::Folders;
use crate::{Compression, Digest, ImageSpec, Layer, Platform, Reference, Store, closure, sbom};

/// The default name of the image. The registry `localhost` ensures that no node pulls the image from the internet.
pub const DEFAULT_TAG: &str = "localhost/operators/controller-manager:dev";

/// The programs in the image, at `/<name>`; the image starts the first one. They are separate programs, because in a single one,
/// code that the manager never runs would count as its memory.
const PROGRAMS: &[&str] = &["controller-manager", "metrics-proxy", "booking-server"];
/// The packages of these programs, in the same order.
const PACKAGES: &[&str] = &["controller-manager", "operators-metrics-proxy", "booking-server"];
/// The version of the Kubernetes API for which the programs are built. The library of `metrics-proxy` leaves it to its users.
const KUBERNETES: &str = "1.36";

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

/// What differs between builds of the same sources.
#[derive(Clone, Copy, Debug)]
pub struct Variant<'a> {
    /// The platform of the programs. Another one than this machine's needs [`Platform::cross_compiler`].
    pub platform: Platform,
    /// The profile of cargo: `release`, or `dev` for an image that is made to try something out.
    pub profile: &'a str,
    /// The commit that the programs and the image name.
    pub commit: Option<&'a str>,
}

/// Builds the programs of the workspace in `workspace` for release and stores them as an image.
///
/// The programs and the image name `commit`, if there is one. Name none in a build for this machine: a commit that changes no code
/// would build everything again.
pub fn build(workspace: &Path, store: &Store, reference: &Reference, commit: Option<&str>) -> Result<Built> {
    build_variant(Variant { platform: Platform::here()?, profile: "release", commit }, workspace, store, reference)
}

/// The same for another platform, or with another profile.
pub fn build_variant(variant: Variant<'_>, workspace: &Path, store: &Store, reference: &Reference) -> Result<Built> {
    // In separate builds, so that features that one program needs of a library do not make the others larger.
    let compile = |(program, package): (&&str, &&str)| compile(workspace, package, program, variant);
    let programs = PROGRAMS.iter().zip(PACKAGES).map(compile).collect::<Result<Vec<_>>>()?;
    pack(&programs, variant.platform, store, reference, variant.commit)
}

/// The crates that are linked into the programs, for [`sbom`].
pub fn components(workspace: &Path, platform: Platform) -> Result<Vec<sbom::Component>> {
    sbom::components(workspace, PACKAGES, platform.target())
}

/// Builds an image from compiled programs and stores it. The same programs always give the same digest.
fn pack(
    programs: &[PathBuf],
    platform: Platform,
    store: &Store,
    reference: &Reference,
    commit: Option<&str>,
) -> Result<Built> {
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
    let main = PROGRAMS[0];
    let image = ImageSpec {
        references: vec![reference.clone()],
        files,
        entrypoint: vec![format!("/{main}")],
        // With only one heap, glibc keeps 3 MiB less after hours of outages. It costs no time.
        env: vec!["MALLOC_ARENA_MAX=1".to_owned()],
        user: USER.to_owned(),
        labels: labels(commit),
        platform: Some(platform),
        compression: Compression::Gzip,
        ..ImageSpec::default()
    }
    .build()?;
    store.put(&image)?;
    let digest = image.digest();
    Ok(Built { reference: reference.clone(), size: store.size(&digest)?, digest })
}

fn labels(commit: Option<&str>) -> BTreeMap<String, String> {
    let labels = [
        ("title", Some(PROGRAMS[0])),
        ("licenses", Some(env!("CARGO_PKG_LICENSE"))),
        ("version", Some(env!("CARGO_PKG_VERSION"))),
        ("revision", commit),
        ("source", Some(env!("CARGO_PKG_REPOSITORY")).filter(|address| !address.is_empty())),
    ];
    let label =
        |(name, value): (&str, Option<&str>)| Some((format!("org.opencontainers.image.{name}"), value?.to_owned()));
    labels.into_iter().filter_map(label).collect()
}

fn compile(workspace: &Path, package: &str, name: &str, variant: Variant<'_>) -> Result<PathBuf> {
    let Variant { platform, profile, commit } = variant;
    ensure!(workspace.join("Cargo.toml").exists(), "{} is no workspace: it has no Cargo.toml", workspace.display());
    let target = platform.target();
    // In a separate folder, because the different flags would invalidate the ordinary build.
    let folder = workspace.join("target/image");
    let folders = Folders::of(workspace)?;
    // Static, with glibc: it has name resolution and needs no loader. Because the command names the target, cargo does not use
    // the flag for procedural macros, which cannot be static.
    let flags: Vec<_> = ["-Ctarget-feature=+crt-static".to_owned()].into_iter().chain(folders.rustc()).collect();
    let mut cargo = crate::cargo();
    if Platform::here()? != platform {
        cross(&mut cargo, platform)?;
    }
    match commit {
        Some(commit) => cargo.env("OPERATORS_COMMIT", commit),
        None => cargo.env_remove("OPERATORS_COMMIT"),
    };
    let status = cargo
        .args(["build", "--profile", profile, "--locked", "--package", package, "--bin", name, "--target", target])
        .arg("--target-dir")
        .arg(&folder)
        .current_dir(workspace)
        .env("K8S_OPENAPI_ENABLED_VERSION", KUBERNETES)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")) // in this form, folders may have spaces
        .env(format!("CFLAGS_{}", target.replace('-', "_")), folders.gcc()?)
        .env("CC_SHELL_ESCAPED_FLAGS", "1")
        .status()
        .context("could not run cargo")?;
    if !status.success() {
        bail!("cargo could not build {name}, see above");
    }
    let subfolder = if profile == "dev" { "debug" } else { profile };
    let program = folder.join(target).join(subfolder).join(name);
    folders.check(&program)?;
    Ok(program)
}

/// Makes `cargo` link with the compiler for a platform that this machine does not have. The crate `cc`, which compiles the C
/// sources of some libraries, finds the same compiler by itself.
fn cross(cargo: &mut Command, platform: Platform) -> Result<()> {
    let (compiler, packages) = platform.cross_compiler();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(compiler).is_file());
    ensure!(is_there, "{compiler} is missing, which links for {platform}: install {packages}");
    let target = platform.target();
    cargo.env(format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_")), compiler);
    Ok(())
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
            pack(&programs, Platform::Amd64, &store, &reference, None).unwrap()
        };
        let (one, other) = (build("one"), build("other"));
        assert_eq!((one.digest, one.size), (other.digest, other.size));
        assert_eq!(reference.to_string(), DEFAULT_TAG);
    }

    /// A workspace that generates code in the folder of the build, as some crates do, with this name in it.
    fn workspace(root: &Path) {
        let files = [
            ("Cargo.toml", "[package]\nname = \"controller-manager\"\nversion = \"1.0.0\"\nedition = \"2024\"\n"),
            ("Cargo.lock", "version = 4\n\n[[package]]\nname = \"controller-manager\"\nversion = \"1.0.0\"\n"),
            (
                "build.rs",
                "fn main() {\n    let folder = std::env::var(\"OUT_DIR\").unwrap();\n    \
                 std::fs::write(folder + \"/code.rs\", \"fn name() -> &'static str { file!() }\").unwrap();\n}\n",
            ),
            (
                "src/main.rs",
                "include!(concat!(env!(\"OUT_DIR\"), \"/code.rs\"));\nfn main() {\n    println!(\"{}\", name());\n}\n",
            ),
        ];
        for (name, content) in files {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
    }

    #[test]
    fn the_same_sources_give_the_same_program_in_each_folder() {
        let folder = tempfile::tempdir().unwrap();
        let variant = Variant { platform: Platform::here().unwrap(), profile: "dev", commit: Some("abc") };
        let build = |name: &str| {
            let root = folder.path().join(name);
            workspace(&root);
            compile(&root, PACKAGES[0], PROGRAMS[0], variant).unwrap()
        };
        let (one, other) = (build("one"), build("another folder/below"));
        assert!(std::fs::read(&one).unwrap() == std::fs::read(other).unwrap(), "the programs differ");
        let said = Command::new(one).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert!(said.starts_with("/workspace/target/image/") && said.ends_with("/code.rs\n"), "{said}");
    }

    #[test]
    fn image_names_version_and_commit() {
        let label = |commit, name: &str| labels(commit).remove(&format!("org.opencontainers.image.{name}"));
        assert_eq!(label(Some("abc"), "revision").as_deref(), Some("abc"));
        assert_eq!(label(None, "revision"), None);
        assert_eq!(label(None, "version").as_deref(), Some(env!("CARGO_PKG_VERSION")));
        assert_ne!(label(None, "source").as_deref(), Some(""), "an empty address is no link");
    }

    #[test]
    fn folder_without_a_workspace_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let variant = Variant { platform: Platform::Amd64, profile: "release", commit: None };
        let error = compile(folder.path(), PACKAGES[0], PROGRAMS[0], variant).unwrap_err();
        assert!(error.to_string().ends_with("is no workspace: it has no Cargo.toml"), "{error}");
    }
}
