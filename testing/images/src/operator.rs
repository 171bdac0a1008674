//! Builds the image of the product: a few programs, an unprivileged user, no shell.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::cargo::rustc;
use crate::folders::Folders;
use crate::tools::{self, Tool};
use crate::{Compression, Digest, ImageSpec, Layer, Platform, Reference, Store, closure, elf, sbom, settings};

/// The default name of the image. The registry `localhost` ensures that no node pulls the image from the internet.
pub const DEFAULT_TAG: &str = "localhost/operators/controller-manager:dev";

/// The name of the image that the demo and the end-to-end tests run, see [`build_trial`].
pub const TRIAL_TAG: &str = "localhost/operators/controller-manager:trial";

/// The programs in the image, at `/<name>`; the image starts the first one. They are separate programs, because in a single one,
/// code that the manager never runs would count as its memory.
pub const PROGRAMS: &[&str] = &["controller-manager", "metrics-proxy", "booking-server"];
/// The packages of these programs, in the same order.
const PACKAGES: &[&str] = &["controller-manager", "operators-metrics-proxy", "booking-server"];
/// The plugin of kubectl: its package and its program. It is no part of the image, because users run it on their own machines.
const PLUGIN: &str = "kubectl-operators";
/// The version of the Kubernetes API for which the programs are built. The library of `metrics-proxy` leaves it to its users.
const KUBERNETES: &str = "1.36";

/// The environment of the image, for glibc. With only one heap, it keeps 3 MiB less after hours of outages, and it costs no time. With
/// a fixed threshold, a block of more than 128 KiB goes back to the system when it is freed. By default, glibc raises the threshold
/// with each such block, and keeps blocks of many sizes in a heap with gaps: in a flood of reviews, 106 MiB instead of 61.
pub const ENVIRONMENT: &[(&str, &str)] = &[("MALLOC_ARENA_MAX", "1"), ("MALLOC_MMAP_THRESHOLD_", "131072")];

/// The version of this workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

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
    /// The profile of cargo: `release`, or another one to try the build out.
    pub profile: &'a str,
    /// The version that the image names. The programs name that of their workspace.
    pub version: &'a str,
    /// The commit that the programs and the image name.
    pub commit: Option<&'a str>,
}

/// Builds the programs of the workspace in `workspace` for release and stores them as an image.
///
/// The programs and the image name `commit`, if there is one. Name none in a build for this machine: a commit that changes no code
/// would build everything again.
pub fn build(workspace: &Path, store: &Store, reference: &Reference, commit: Option<&str>) -> Result<Built> {
    let variant = Variant { platform: Platform::here()?, profile: "release", version: VERSION, commit };
    build_variant(variant, workspace, store, reference)
}

/// Builds an image of the same programs without optimisation, for the demo and for tests, and stores it as [`TRIAL_TAG`].
///
/// The programs are those of an ordinary `cargo build` of the workspace. They share what the tests and `cargo xtask` compile, so
/// they cost a newcomer little time. They need the libraries of this machine, which the image gets too.
pub fn build_trial(workspace: &Path, store: &Store) -> Result<Built> {
    pack_trial(&compile_trial(workspace)?, workspace, store)
}

/// The second part of [`build_trial`]: packs the files that [`compile_trial`] has returned. It prints nothing.
pub fn pack_trial(programs: &[PathBuf], workspace: &Path, store: &Store) -> Result<Built> {
    let root = folder(workspace);
    fs::create_dir_all(&root).with_context(|| format!("could not create {}", root.display()))?;
    let folder = tempfile::tempdir_in(&root).context("could not make a folder")?; // of this call alone: tests call at the same time
    let strip = |(name, program): (&&str, &PathBuf)| {
        let stripped = folder.path().join(name);
        // It comes with the linker.
        let status = Command::new("strip").arg(program).arg("-o").arg(&stripped).status();
        let status = status.context("could not run strip, which is in the package binutils")?;
        ensure!(status.success(), "strip failed, see above ({status})");
        Ok(stripped)
    };
    let programs = PROGRAMS.iter().zip(programs).map(strip).collect::<Result<Vec<_>>>()?;
    pack(&programs, Platform::here()?, store, &TRIAL_TAG.parse()?, labels(VERSION, None))
}

/// The first part of [`build_trial`]: builds the programs as an ordinary `cargo build` does. Returns their files.
pub fn compile_trial(workspace: &Path) -> Result<Vec<PathBuf>> {
    let mut cargo = crate::cargo();
    cargo.args(["build", "--workspace", "--locked", "--message-format", "json-render-diagnostics"]);
    cargo.args(PROGRAMS.iter().flat_map(|program| ["--bin", program])).env_remove("OPERATORS_COMMIT");
    let output = cargo.current_dir(workspace).stderr(Stdio::inherit()).output().context("could not run cargo")?;
    ensure!(output.status.success(), "cargo could not build {}, see above", PROGRAMS.join(", "));
    let messages = String::from_utf8(output.stdout).context("cargo printed other text than JSON")?;
    let files: Vec<PathBuf> = messages.lines().filter_map(executable).collect();
    let file = |name: &&str| files.iter().find(|file| file.file_name().is_some_and(|it| it == *name)).cloned();
    PROGRAMS.iter().map(|name| file(name).with_context(|| format!("cargo printed no path of {name}"))).collect()
}

/// The file in a message of cargo about a program.
fn executable(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    message["executable"].as_str().map(PathBuf::from)
}

/// The same as [`build`] for another platform, or with another profile.
pub fn build_variant(variant: Variant<'_>, workspace: &Path, store: &Store, reference: &Reference) -> Result<Built> {
    let every: Vec<_> = PACKAGES.iter().copied().zip(PROGRAMS.iter().copied()).collect();
    // For a release in separate builds, so that features that one program needs of a library do not make the others larger. That
    // compiles many libraries three times.
    let at_once = if variant.profile == "release" { 1 } else { every.len() };
    for programs in every.chunks(at_once) {
        compile(workspace, programs, variant)?;
    }
    let labels = labels(variant.version, variant.commit);
    pack(&programs(workspace, variant)?, variant.platform, store, reference, labels)
}

/// The files of the programs that [`build_variant`] has compiled.
pub fn programs(workspace: &Path, variant: Variant<'_>) -> Result<Vec<PathBuf>> {
    PROGRAMS.iter().map(|program| compiled(workspace, program, variant)).collect()
}

/// Builds the plugin of kubectl, a static program. Returns its file.
pub fn build_plugin(variant: Variant<'_>, workspace: &Path) -> Result<PathBuf> {
    compile(workspace, &[(PLUGIN, PLUGIN)], variant)?;
    compiled(workspace, PLUGIN, variant)
}

/// What this machine lacks to build for the platform; `None` if it has everything.
pub fn lacks(platform: Platform, workspace: &Path) -> Result<Option<String>> {
    if Platform::here()? == platform {
        return Ok(None);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = |program: &str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    lacks_to_cross(platform, has, || standard_library(platform, workspace))
}

/// The same for another platform than that of this machine, which has these programs, and this folder for the standard library of
/// the platform.
fn lacks_to_cross(
    platform: Platform,
    has: impl FnOnce(&str) -> bool,
    library: impl FnOnce() -> Result<PathBuf>,
) -> Result<Option<String>> {
    let (compiler, packages) = platform.cross_compiler();
    if !has(compiler) {
        return Ok(Some(format!("{compiler} is missing, which links for {platform}: install {packages}")));
    }
    let target = platform.target();
    let advice = || format!("the standard library for {platform} is missing: `rustup target add {target}`");
    Ok((!library()?.is_dir()).then(advice))
}

/// The folder of the standard library for the platform. It does not exist if the library is not installed.
fn standard_library(platform: Platform, workspace: &Path) -> Result<PathBuf> {
    let folder = rustc(workspace, &["--print", "target-libdir", "--target", platform.target()])?;
    Ok(PathBuf::from(folder.trim_end()))
}

/// What is linked into the programs, for [`sbom`]: crates, and after them the libraries that the compilers add.
pub fn components(workspace: &Path, platform: Platform) -> Result<Vec<sbom::Component>> {
    let mut components = sbom::components(workspace, PACKAGES, platform.target())?;
    components.extend(sbom::libraries(workspace, linker(platform)?)?);
    Ok(components)
}

/// The tools that made the programs for the platform out of these components.
pub fn tools(components: &[sbom::Component], platform: Platform) -> Result<Vec<Tool>> {
    Ok(tools::of(components, linker(platform)?))
}

/// The C compiler that links for the platform, as rustc takes it.
fn linker(platform: Platform) -> Result<&'static str> {
    Ok(if Platform::here()? == platform { "cc" } else { platform.cross_compiler().0 })
}

/// Builds an image from compiled programs and stores it. The same programs always give the same digest.
fn pack(
    programs: &[PathBuf],
    platform: Platform,
    store: &Store,
    reference: &Reference,
    labels: BTreeMap<String, String>,
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
        env: ENVIRONMENT.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        user: USER.to_owned(),
        labels,
        platform: Some(platform),
        compression: Compression::Gzip,
        ..ImageSpec::default()
    }
    .build()?;
    store.put(&image)?;
    let digest = image.digest();
    Ok(Built { reference: reference.clone(), size: store.size(&digest)?, digest })
}

fn labels(version: &str, commit: Option<&str>) -> BTreeMap<String, String> {
    let labels = [
        ("title", Some(PROGRAMS[0])),
        ("licenses", Some(env!("CARGO_PKG_LICENSE"))),
        ("version", Some(version)),
        ("revision", commit),
        ("source", Some(env!("CARGO_PKG_REPOSITORY")).filter(|address| !address.is_empty())),
    ];
    let label =
        |(name, value): (&str, Option<&str>)| Some((format!("org.opencontainers.image.{name}"), value?.to_owned()));
    labels.into_iter().filter_map(label).collect()
}

/// The folder of these builds. It is a separate one, because the different flags would invalidate the ordinary build.
pub fn folder(workspace: &Path) -> PathBuf {
    workspace.join("target/image")
}

/// The compiled program, which names no folder of this machine and needs none of its libraries.
fn compiled(workspace: &Path, program: &str, variant: Variant<'_>) -> Result<PathBuf> {
    let subfolder = if variant.profile == "dev" { "debug" } else { variant.profile };
    let program = folder(workspace).join(variant.platform.target()).join(subfolder).join(program);
    Folders::of(workspace)?.check(&program)?;
    let content = fs::read(&program).with_context(|| format!("could not read {}", program.display()))?;
    let is_static = elf::is_static(&content).with_context(|| format!("could not check {}", program.display()))?;
    ensure!(is_static, "{} needs libraries of this machine, so it does not run on others", program.display());
    Ok(program)
}

/// Compiles these programs, each with the name of its package before it.
fn compile(workspace: &Path, programs: &[(&str, &str)], variant: Variant<'_>) -> Result<()> {
    let Variant { platform, profile, version: _, commit } = variant;
    ensure!(workspace.join("Cargo.toml").exists(), "{} is no workspace: it has no Cargo.toml", workspace.display());
    let target = platform.target();
    let folders = Folders::of(workspace)?;
    // Static, with glibc: it has name resolution and needs no loader. Because the command names the target, cargo does not use
    // the flag for procedural macros, which cannot be static.
    let flags: Vec<_> = ["-Ctarget-feature=+crt-static".to_owned()].into_iter().chain(folders.rustc()).collect();
    let mut cargo = crate::cargo();
    settings::hide(&mut cargo);
    if Platform::here()? != platform {
        cross(&mut cargo, platform, workspace)?;
    }
    match commit {
        Some(commit) => cargo.env("OPERATORS_COMMIT", commit),
        None => cargo.env_remove("OPERATORS_COMMIT"),
    };
    let status = cargo
        .args(["build", "--profile", profile, "--locked", "--target", target])
        .args(programs.iter().flat_map(|(package, program)| ["--package", package, "--bin", program]))
        .arg("--target-dir")
        .arg(folder(workspace))
        .current_dir(workspace)
        .env("K8S_OPENAPI_ENABLED_VERSION", KUBERNETES)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")) // in this form, folders may have spaces
        .env(format!("CFLAGS_{}", target.replace('-', "_")), folders.gcc()?)
        .env("CC_SHELL_ESCAPED_FLAGS", "1")
        .env("CARGO_INCREMENTAL", "0") // an incremental build divides crates in other ways
        .env("CARGO_PROFILE_DEV_STRIP", "symbols") // as in the profile `release`
        .status()
        .context("could not run cargo")?;
    if !status.success() {
        let names: Vec<_> = programs.iter().map(|(_, program)| *program).collect();
        bail!("cargo could not build {}, see above", names.join(", "));
    }
    Ok(())
}

/// Makes `cargo` link with the compiler for a platform that this machine does not have. The crate `cc`, which compiles the C
/// sources of some libraries, finds the same compiler by itself.
fn cross(cargo: &mut Command, platform: Platform, workspace: &Path) -> Result<()> {
    if let Some(lacking) = lacks(platform, workspace)? {
        bail!("{lacking}");
    }
    let variable = format!("CARGO_TARGET_{}_LINKER", platform.target().to_uppercase().replace('-', "_"));
    cargo.env(variable, platform.cross_compiler().0);
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
            pack(&programs, Platform::Amd64, &store, &reference, BTreeMap::new()).unwrap()
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
                "include!(concat!(env!(\"OUT_DIR\"), \"/code.rs\"));\nfn main() {\n    \
                 println!(\"{} {}\", name(), env!(\"OPERATORS_COMMIT\"));\n}\n",
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
        let platform = Platform::here().unwrap();
        let variant = Variant { platform, profile: "dev", version: VERSION, commit: Some("abc") };
        let build = |name: &str| {
            let root = folder.path().join(name);
            workspace(&root);
            compile(&root, &[(PACKAGES[0], PROGRAMS[0])], variant).unwrap();
            compiled(&root, PROGRAMS[0], variant).unwrap()
        };
        let (one, other) = (build("one"), build("another folder/below"));
        assert!(std::fs::read(&one).unwrap() == std::fs::read(other).unwrap(), "the programs differ");
        let said = Command::new(&one).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert!(said.starts_with("/workspace/target/image/") && said.ends_with("/code.rs abc\n"), "{said}");

        std::fs::copy("/bin/sh", one).unwrap(); // it needs libraries
        let error = compiled(&folder.path().join("one"), PROGRAMS[0], variant).unwrap_err();
        assert!(
            error.to_string().ends_with("needs libraries of this machine, so it does not run on others"),
            "{error}"
        );
    }

    #[test]
    fn machine_lacks_nothing_for_its_own_platform() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(lacks(Platform::here().unwrap(), folder.path()).unwrap(), None);
    }

    #[test]
    fn another_platform_needs_its_compiler_and_its_standard_library() {
        let folder = tempfile::tempdir().unwrap();
        let lacks = |compiler: &str, library: PathBuf| {
            lacks_to_cross(Platform::Arm64, |program| program == compiler, || Ok(library)).unwrap()
        };
        let (there, absent) = (folder.path().to_owned(), folder.path().join("absent"));
        assert_eq!(lacks("aarch64-linux-gnu-gcc", there), None);
        let compiler = lacks("x86_64-linux-gnu-gcc", absent.clone()).unwrap();
        assert!(compiler.starts_with("aarch64-linux-gnu-gcc is missing, "), "{compiler}");
        assert!(compiler.ends_with("install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"), "{compiler}");
        let library = lacks("aarch64-linux-gnu-gcc", absent).unwrap();
        assert!(library.ends_with("`rustup target add aarch64-unknown-linux-gnu`"), "{library}");
        let failed = lacks_to_cross(Platform::Arm64, |_| true, || bail!("rustc: no such target"));
        assert_eq!(failed.unwrap_err().to_string(), "rustc: no such target", "a failure is nothing to install");
    }

    #[test]
    fn standard_library_of_the_own_platform_is_found() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(standard_library(Platform::here().unwrap(), workspace).unwrap().is_dir());
    }

    #[test]
    fn image_names_version_and_commit() {
        let label = |commit, name: &str| labels("1.2.3", commit).remove(&format!("org.opencontainers.image.{name}"));
        assert_eq!(label(Some("abc"), "revision").as_deref(), Some("abc"));
        assert_eq!(label(None, "revision"), None);
        assert_eq!(label(None, "version").as_deref(), Some("1.2.3"));
        assert_ne!(label(None, "source").as_deref(), Some(""), "an empty address is no link");
    }

    #[test]
    fn folder_without_a_workspace_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let variant = Variant { platform: Platform::Amd64, profile: "release", version: VERSION, commit: None };
        let error = compile(folder.path(), &[(PACKAGES[0], PROGRAMS[0])], variant).unwrap_err();
        assert!(error.to_string().ends_with("is no workspace: it has no Cargo.toml"), "{error}");
    }
}
