//! The operator's own flags.

use clap::Args;

/// What the operator itself is told, as opposed to what users write in a Memcached.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Memcached")]
pub struct Config {
    /// Image of the nodes of every Memcached that names none.
    #[arg(long = "memcached-image", env = "MEMCACHED_IMAGE", value_name = "IMAGE", default_value = DEFAULT_IMAGE)]
    pub image: String,

    /// `--image-registry`, which is a flag of the runtime: a prefix for the image above, never for one in a spec.
    #[arg(skip)]
    pub image_registry: Option<String>,
}

const DEFAULT_IMAGE: &str = "docker.io/library/memcached:1.6";

impl Config {
    /// The image of a Memcached that names none.
    pub fn default_image(&self) -> String {
        match &self.image_registry {
            Some(registry) => format!("{}/{}", registry.trim_end_matches('/'), self.image),
            None => self.image.clone(),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self { image: DEFAULT_IMAGE.to_owned(), image_registry: None }
    }
}
