//! `cargo xtask release`: checks the checkout and the registry, builds the images, and publishes them with the chart and with
//! signatures, or writes all of it into a folder for another publisher.

pub(crate) mod rehearsal;
mod replica;
pub(crate) mod reproduce;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use chart::helm::{Helm, Version};
use images::operator::Variant;
use images::{Platform, Reference, Store, default_store, operator, settings};
use release::artifacts::Summary;
use release::cosign::{Identity, Signer};
use release::statement::Builder;
use release::{
    Artifacts, Image, Plan, Plugin, Ready, check, check_unused, compatible, export, plan, preflight, publish,
    unchanged_during,
};

use crate::image::megabytes;
use crate::{registry, workspace};

/// Release a version: images under one index, bills of materials, the chart that names the digest, manifests
///
/// Repeating it gives the same digests and sends only what the registry lacks. The credentials are those of `docker login`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The version of the programs, the image and the chart, which is also that of the workspace and of a changelog entry
    #[arg(long, value_parser = plan::version)]
    version: semver::Version,
    /// The registry and the path below which the image `controller-manager` and the chart `charts/operators` go
    #[arg(long, value_name = "HOST/PATH", value_parser = plan::registry)]
    registry: images::reference::Repository,
    /// The platforms of the image
    #[arg(long, value_name = "PLATFORM", value_delimiter = ',', default_value = "linux/amd64,linux/arm64")]
    platforms: Vec<Platform>,
    /// The profile of cargo for the programs; `dev` builds faster, to try the release itself
    #[arg(long, default_value = "release")]
    profile: String,
    /// The folder for the files of the release [default: `dist/VERSION`]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Check everything and print what would be released, but build and push nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    signing: Signing,
    #[command(flatten)]
    access: registry::Access,
}

/// Who signs and publishes. There is no default, so that no release lacks signatures by mistake.
#[derive(clap::Args)]
#[group(multiple = false)]
struct Signing {
    /// Sign with this private key, a file of `cosign generate-key-pair` whose password is in `COSIGN_PASSWORD`, or the address
    /// of a key in a key management service
    #[arg(long, value_name = "FILE")]
    key: Option<String>,
    /// Sign with a short-lived certificate for the workflow that runs this, and with an entry in the public transparency log
    #[arg(long)]
    keyless: bool,
    /// Sign nothing, to try a release
    #[arg(long)]
    unsigned: bool,
    /// Publish and sign nothing, but write the release into this new folder, for `hack/release/publish.sh`, which compiles
    /// nothing
    #[arg(long, value_name = "FOLDER")]
    layout: Option<PathBuf>,
}

/// Where a release goes.
enum Target {
    /// To the registry, signed by this identity; `None` to sign nothing.
    Registry(Option<Identity>),
    /// Into this folder.
    Layout(PathBuf),
}

impl Signing {
    fn target(self) -> Result<Target> {
        match self {
            Self { key: Some(key), .. } => Ok(Target::Registry(Some(Identity::Key(key)))),
            Self { keyless: true, .. } => Ok(Target::Registry(Some(Identity::Keyless))),
            Self { unsigned: true, .. } => Ok(Target::Registry(None)),
            Self { layout: Some(folder), .. } => Ok(Target::Layout(folder)),
            _ => bail!(
                "who signs the release? Pass --key FILE with a key of `cosign generate-key-pair`, --keyless in a workflow, \
                 --unsigned to try it, or --layout FOLDER to sign it elsewhere"
            ),
        }
    }
}

pub(crate) fn run(args: Args) -> Result<()> {
    let machine = |plan: &Plan| {
        let lacks = |platform| operator::lacks(platform, &plan.checkout);
        check_machine(&plan.platforms, lacks, settings::of_cargo(&plan.checkout)?)
    };
    release_from(workspace::root(), args, machine, &mut io::stdout())
}

/// The same from this checkout, on a machine that `machine` checks. What is known before the builds goes to `out`.
fn release_from(
    checkout: &Path,
    args: Args,
    machine: impl FnOnce(&Plan) -> Result<()>,
    out: &mut impl io::Write,
) -> Result<()> {
    let Args { version, registry, mut platforms, profile, output, dry_run, signing, access } = args;
    let target = signing.target()?;
    platforms.sort_unstable();
    platforms.dedup();
    let output = output.unwrap_or_else(|| checkout.join("dist").join(version.to_string()));
    let builder = Builder::from_environment(|name| std::env::var(name).ok());
    let plan = Plan { version, registry, platforms, profile, builder, checkout: checkout.to_owned(), output };
    writeln!(out, "{plan}")?;
    match &target {
        Target::Registry(Some(identity)) => {
            writeln!(out, "  signatures of the index and the chart, and of the provenance of both, {identity}")?;
        }
        Target::Registry(None) => writeln!(out, "  signatures none; the provenance of both is attached without one")?,
        Target::Layout(folder) => {
            check_unused(folder)?;
            writeln!(out, "  layout     {}, neither signed nor published", folder.display())?;
        }
    }
    let ready = check(&plan)?;
    writeln!(out, "  commit     {}", ready.commit)?;
    writeln!(out, "  kinds      {}", compatible(&plan, &ready)?)?;
    machine(&plan)?;
    if dry_run {
        writeln!(out, "this was a dry run: the checkout and this machine are ready, and nothing was built or pushed")?;
        return Ok(());
    }
    match target {
        Target::Registry(identity) => to_registry(&plan, &ready, identity, access),
        Target::Layout(folder) => {
            let store = Store::open(default_store()?)?;
            let artifacts = assemble(&plan, &ready, &store)?;
            export(&artifacts, &store, &folder)?;
            println!("\n{}", Summary { plan: &plan, artifacts: &artifacts, store: &store });
            Ok(())
        }
    }
}

/// Checks that this machine has what the builds for all platforms need, and no settings that would change the programs. The first
/// build takes long, so this comes before it. All problems are reported together.
fn check_machine(
    platforms: &[Platform],
    lacks: impl Fn(Platform) -> Result<Option<String>>,
    settings: Vec<String>,
) -> Result<()> {
    let lacking = platforms.iter().filter_map(|platform| lacks(*platform).transpose());
    let problems = lacking.chain(settings.into_iter().map(Ok)).collect::<Result<Vec<_>>>()?;
    ensure!(problems.is_empty(), "this machine is not ready for the release:\n- {}", problems.join("\n- "));
    Ok(())
}

fn to_registry(plan: &Plan, ready: &Ready, identity: Option<Identity>, access: registry::Access) -> Result<()> {
    // Before the builds, so that wrong credentials or a wrong password do not cost them.
    let client = access.client(&plan.registry.registry)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for released in runtime.block_on(preflight(&client, plan))? {
        println!("  released   {released}: the release goes on only if the builds give this digest again");
    }
    let signer = identity.map(|identity| Signer::new(identity, None)).transpose()?;
    let store = Store::open(default_store()?)?;
    let artifacts = assemble(plan, ready, &store)?;
    let sent = runtime.block_on(publish(&client, &store, plan, &artifacts, signer.as_ref()))?;
    println!("\n{}", Summary { plan, artifacts: &artifacts, store: &store });
    println!("sent {}", megabytes(sent));
    println!("helm install operators oci://{} --version {}", plan.chart(), plan.version);
    Ok(())
}

/// Builds everything. Needs no credentials.
fn assemble(plan: &Plan, ready: &Ready, store: &Store) -> Result<Artifacts> {
    let helm = Helm::of(Version::Four)?;
    let (images, plugins) = unchanged_during(plan, ready, || {
        let platforms = || plan.platforms.iter().copied();
        let images = platforms().map(|platform| build(platform, plan, ready, store)).collect::<Result<Vec<_>>>()?;
        let plugins = platforms().map(|platform| build_plugin(platform, plan, ready)).collect::<Result<Vec<_>>>()?;
        Ok((images, plugins))
    })?;
    Artifacts::assemble(plan, ready, images, &plugins, store, &helm)
}

/// `version` is that of the plan, as text.
fn variant<'a>(platform: Platform, plan: &'a Plan, ready: &'a Ready, version: &'a str) -> Variant<'a> {
    Variant { platform, profile: &plan.profile, version, commit: Some(&ready.commit) }
}

fn build(platform: Platform, plan: &Plan, ready: &Ready, store: &Store) -> Result<Image> {
    let version = plan.version.to_string();
    let name = Reference::parse(operator::DEFAULT_TAG)?.with_tag(&format!("{version}-{}", platform.architecture()));
    eprintln!("building the image of {platform}");
    let built = operator::build_variant(variant(platform, plan, ready, &version), &plan.checkout, store, &name)?;
    let components = operator::components(&plan.checkout, platform)?;
    let tools = operator::tools(&components, platform)?;
    Ok(Image { platform, digest: built.digest, components, tools })
}

fn build_plugin(platform: Platform, plan: &Plan, ready: &Ready) -> Result<Plugin> {
    eprintln!("building the plugin of kubectl for {platform}");
    let version = plan.version.to_string();
    let file = operator::build_plugin(variant(platform, plan, ready, &version), &plan.checkout)?;
    let program = fs::read(&file).with_context(|| format!("could not read {}", file.display()))?;
    Ok(Plugin { platform, program: program.into() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use chart::helm::succeeded;
    use clap::Parser as _;

    use super::replica::Replica;
    use super::*;
    use crate::{Task, Xtask};

    #[test]
    fn dry_run_prints_each_step_and_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (checkout, layout) = (folder.path().join("checkout"), folder.path().join("layout"));
        // Older than any release, so that the kinds are compared with none.
        Replica::new(checkout.clone()).unwrap().commit(&semver::Version::new(0, 0, 1)).unwrap();
        let entries = || -> BTreeSet<PathBuf> {
            let folders = [folder.path(), checkout.as_path()];
            folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path()).collect()
        };
        let before = entries();
        let dry_run = |target: &[&str]| -> String {
            // No registry listens at this address, so a request would fail.
            let words = ["xtask", "release", "--dry-run", "--version", "0.0.1", "--registry", "127.0.0.1:1/team"];
            let parsed = Xtask::try_parse_from(words.iter().chain(target).copied()).unwrap();
            let Task::Release(args) = parsed.task else { panic!("this is another task") };
            let mut printed = Vec::new();
            release_from(&checkout, args, |_| Ok(()), &mut printed).unwrap();
            String::from_utf8(printed).unwrap()
        };
        let printed = dry_run(&["--key", "cosign.key"]);
        for step in [
            "release 0.0.1\n",
            "  image      127.0.0.1:1/team/controller-manager:0.0.1, an index of linux/amd64 and linux/arm64\n",
            "  attached   to each image its bill of materials\n",
            "  chart      oci://127.0.0.1:1/team/charts/operators:0.0.1, which names the digest of this index\n",
            "/checkout/dist/0.0.1: the chart, plain manifests, the plugin of kubectl, ",
            "  signatures of the index and the chart, and of the provenance of both, with the key cosign.key\n",
            "  kinds      those of a first release\n",
            "  commit     ",
        ] {
            assert!(printed.contains(step), "{step}: {printed}");
        }
        assert!(printed.ends_with(", and nothing was built or pushed\n"), "{printed}");
        let printed = dry_run(&["--layout", layout.to_str().unwrap()]);
        assert!(printed.contains("/layout, neither signed nor published\n"), "{printed}");
        assert_eq!(entries(), before);
    }

    #[test]
    fn what_the_machine_lacks_for_any_platform_is_found_before_the_first_build() {
        let lacks =
            |platform: Platform| Ok((platform == Platform::Arm64).then(|| "its compiler is missing".to_owned()));
        check_machine(&[Platform::Amd64], lacks, Vec::new()).unwrap();
        let setting = "a file sets `profile`".to_owned();
        let error = check_machine(&Platform::ALL, lacks, vec![setting]).unwrap_err().to_string();
        assert!(error.ends_with(":\n- its compiler is missing\n- a file sets `profile`"), "{error}");
        let failed = check_machine(&Platform::ALL, |_| bail!("could not run rustc"), Vec::new());
        assert_eq!(failed.unwrap_err().to_string(), "could not run rustc");
    }

    #[test]
    fn make_names_what_a_release_lacks() {
        let make = |variables: &[&str]| {
            let mut make = workspace::command("make");
            // Those of a `make test`, which may have started this.
            for name in ["MAKEFLAGS", "MAKEOVERRIDES", "VERSION", "REGISTRY", "KEY"] {
                make.env_remove(name);
            }
            succeeded(make.args(["--dry-run", "release"]).args(variables))
        };
        let (version, registry, key) = ("VERSION=1.2.3", "REGISTRY=ghcr.io/team", "KEY=cosign.key");
        let printed = make(&[version, registry, key]).unwrap();
        assert!(printed.contains("--registry ghcr.io/team") && printed.contains("--key cosign.key"), "{printed}");
        for (given, lacks) in [([registry, key], "VERSION"), ([version, key], "REGISTRY"), ([version, registry], "KEY")]
        {
            let error = make(&given).unwrap_err().to_string();
            assert!(error.contains(&format!("{lacks} is missing: make release VERSION=")), "{error}");
        }
    }
}
