//! `cargo xtask image push`.

use std::io::{Write as _, stdout};

use anyhow::Result;
use images::{Reference, Store};
use registry_client::image;

use crate::registry;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Name of the image in the store, such as localhost/operators/controller-manager:dev
    name: Reference,
    /// Name of the image in the registry, such as ghcr.io/team/controller-manager:1.2.3
    to: Reference,
    #[command(flatten)]
    access: registry::Access,
}

pub(super) fn run(store: &Store, args: Args) -> Result<()> {
    let Args { name, to, access } = args;
    let client = access.client(&to.repository.registry)?;
    eprintln!("pushing {name} to {to}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sent = runtime.block_on(image::push(&client, store, &name, &to))?;
    writeln!(stdout(), "{}@{}  sent {}", to.repository, sent.digest, super::megabytes(sent.bytes))?;
    Ok(())
}
