//! `cargo xtask release`: checks the checkout, builds the images, and publishes them with the chart.

use std::path::PathBuf;

use anyhow::Result;
use chart::helm::{Helm, Version};
use images::operator::Variant;
use images::{Platform, Reference, Store, default_store, operator};
use release::artifacts::Summary;
use release::{Artifacts, Image, Plan, Ready, check, plan, publish};

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
    access: registry::Access,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let Args { version, registry, mut platforms, profile, output, dry_run, access } = args;
    platforms.sort_unstable();
    platforms.dedup();
    let output = output.unwrap_or_else(|| workspace::root().join("dist").join(version.to_string()));
    let plan = Plan { version, registry, platforms, checkout: workspace::root().to_owned(), output };
    println!("{plan}");
    let ready = check(&plan)?;
    println!("  commit     {}", ready.commit);
    if dry_run {
        println!("this was a dry run: the checkout is ready, and nothing was built or pushed");
        return Ok(());
    }
    // Before the builds, so that wrong credentials do not cost them.
    let client = access.client(&plan.registry.registry)?;
    let helm = Helm::of(Version::Four)?;
    let store = Store::open(default_store()?)?;
    let images = plan.platforms.iter().map(|platform| build(*platform, &profile, &plan, &ready, &store));
    let artifacts = Artifacts::assemble(&plan, &ready, images.collect::<Result<_>>()?, &store, &helm)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sent = runtime.block_on(publish(&client, &store, &plan, &artifacts))?;
    println!("\n{}", Summary { plan: &plan, artifacts: &artifacts, store: &store });
    println!("sent {}", megabytes(sent));
    println!("helm install operators oci://{} --version {}", plan.chart(), plan.version);
    Ok(())
}

fn build(platform: Platform, profile: &str, plan: &Plan, ready: &Ready, store: &Store) -> Result<Image> {
    let tag = format!("{}-{}", plan.version, platform.architecture());
    let name = Reference::parse(operator::DEFAULT_TAG)?.with_tag(&tag);
    eprintln!("building the image of {platform}");
    let variant = Variant { platform, profile, commit: Some(&ready.commit) };
    let built = operator::build_variant(variant, &plan.checkout, store, &name)?;
    let components = operator::components(&plan.checkout, platform)?;
    Ok(Image { platform, digest: built.digest, components })
}
