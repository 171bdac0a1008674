//! The flags of tasks that speak with a registry.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use registry_client::{Client, Options, PlainHttp};

/// How to reach a registry. The credentials are those of `docker login`.
#[derive(clap::Args)]
pub(crate) struct Access {
    /// Also speak HTTP without encryption with a registry on another machine
    #[arg(long)]
    plain_http: bool,
    /// Certificates of a registry with an authority of its own
    #[arg(long, value_name = "FILE.pem")]
    authorities: Option<PathBuf>,
}

impl Access {
    /// The client of the registry with this host.
    pub(crate) fn client(self, registry: &str) -> Result<Client> {
        let read = |path: PathBuf| std::fs::read(&path).with_context(|| format!("could not read {}", path.display()));
        let options = Options {
            plain_http: if self.plain_http { PlainHttp::Allowed } else { PlainHttp::Loopback },
            authorities: self.authorities.map(read).transpose()?,
            notice: Some(|text| eprintln!("{text}")),
            ..Options::default()
        };
        Client::new(registry, options)
    }
}
