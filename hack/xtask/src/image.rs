//! `cargo xtask image`: builds OCI images without a container daemon, and serves them to nodes.

mod push;

use std::io::{Write as _, stdout};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Subcommand;
use images::operator::{self, Variant};
use images::{Platform, Reference, Store, default_store};

/// The version of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Build OCI images without a container daemon, and serve them to nodes
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder of the images [default: `images` in the folder that `OPERATORS_CACHE` names, or in ~/.cache/operators]
    #[arg(long, global = true, value_name = "FOLDER")]
    store: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the operator image (static release builds, unprivileged user, no shell) and its bill of materials
    Build {
        /// Name of the image
        #[arg(long, default_value = operator::DEFAULT_TAG)]
        tag: Reference,
        /// Also write the image as an OCI archive, for `docker load`, `podman load` or `ctr images import`
        #[arg(long, value_name = "FILE.tar")]
        output: Option<PathBuf>,
        /// File for the bill of materials in `CycloneDX` format [default: sbom.cdx.json beside the built programs]
        #[arg(long, value_name = "FILE.cdx.json")]
        sbom: Option<PathBuf>,
        /// Commit that the programs and the image name, for a release: `$(git rev-parse HEAD)`
        #[arg(long, value_name = "COMMIT")]
        commit: Option<String>,
        /// Platform of the image, linux/amd64 or linux/arm64 [default: that of this machine]
        ///
        /// Another one needs its cross-compiler and its standard library; the error names what is missing. Give such an image a
        /// `--tag` of its own, because it does not run here.
        #[arg(long, value_name = "PLATFORM")]
        platform: Option<Platform>,
        /// The profile of cargo for the programs; `dev` builds faster, to try the build itself
        #[arg(long, default_value = "release")]
        profile: String,
    },
    /// Build the missing images that samples and tests use, such as busybox
    Fixtures,
    /// List the images: name, digest, download size
    List,
    /// Serve the images as a read-only registry that can stand in for any other registry
    Serve {
        /// Address to listen on
        #[arg(long, default_value = "127.0.0.1:5000", value_name = "IP:PORT")]
        address: SocketAddr,
    },
    /// Write one image as an OCI archive, for `docker load`, `podman load` or `ctr images import`
    Export {
        /// Name of the image, such as localhost/operators/controller-manager:dev
        name: Reference,
        /// The file to write
        file: PathBuf,
    },
    /// Push one image to a registry, with the credentials of `docker login`; sends only what the registry lacks
    Push(push::Args),
}

pub(crate) fn run(Args { store, command }: Args) -> Result<()> {
    let store = Store::open(store.map_or_else(default_store, Ok)?)?;
    match command {
        Command::Build { tag, output, sbom, commit, platform, profile } => {
            let platform = platform.map_or_else(Platform::here, Ok)?;
            let variant = Variant { platform, profile: &profile, version: VERSION, commit: commit.as_deref() };
            build(&store, &tag, variant, output.as_deref(), sbom)
        }
        Command::Fixtures => {
            images::ensure_fixtures(store.root(), &mut |line| eprintln!("{line}"))?;
            list(&store)
        }
        Command::List => list(&store),
        Command::Serve { address } => serve(&store, address),
        Command::Export { name, file } => export(&store, &name, &file),
        Command::Push(args) => push::run(&store, args),
    }
}

fn build(
    store: &Store,
    tag: &Reference,
    variant: Variant<'_>,
    output: Option<&Path>,
    sbom: Option<PathBuf>,
) -> Result<()> {
    let workspace = workspace()?;
    let built = operator::build_variant(variant, &workspace, store, tag)?;
    let components = operator::components(&workspace, variant.platform)?;
    let (name, digest) = (built.reference.to_string(), built.digest.to_string());
    let sbom = sbom.unwrap_or_else(|| workspace.join("target/image/sbom.cdx.json"));
    std::fs::write(&sbom, images::sbom::cyclonedx(&name, &digest, &components)?)
        .with_context(|| format!("could not write {}", sbom.display()))?;
    eprintln!("the image links {} crates and libraries, see {}", components.len(), sbom.display());
    writeln!(stdout(), "{name}  {digest}  {}", megabytes(built.size))?;
    output.map_or(Ok(()), |file| export(store, tag, file))
}

fn list(store: &Store) -> Result<()> {
    let images = store.list()?;
    let width = images.iter().map(|stored| stored.reference.to_string().len()).max().unwrap_or(0);
    let mut out = stdout().lock();
    for stored in images {
        let name = stored.reference.to_string();
        writeln!(out, "{name:width$}  {}  {:>8}", stored.digest, megabytes(store.size(&stored.digest)?))?;
    }
    Ok(())
}

fn serve(store: &Store, address: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("could not listen on {address}"))?;
    eprintln!("serving {} on http://{}", store.root().display(), listener.local_addr()?);
    images::serve(listener, store.root()).context("the registry ended")
}

fn export(store: &Store, name: &Reference, file: &Path) -> Result<()> {
    store.export(name, file)?;
    eprintln!("wrote {}", file.display());
    Ok(())
}

/// The root of the workspace that contains the working directory.
fn workspace() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = std::process::Command::new(cargo)
        .args(["locate-project", "--workspace", "--message-format=plain"])
        .output()
        .context("could not run cargo")?;
    let manifest = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    manifest.parent().map(Path::to_owned).context("not inside the workspace: run `cargo xtask` from the checkout")
}

/// Formats a size in decimal megabytes, as registries do.
pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000)
}
