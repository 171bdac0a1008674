//! The operator's own flags.

use clap::Args;

/// The settings of the operator itself, as opposed to the fields of a Memcached.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Memcached")]
pub struct Config {
    /// Image of memcached for every Memcached that sets none.
    #[arg(long = "memcached-image", env = "MEMCACHED_IMAGE", value_name = "IMAGE", default_value = DEFAULT_IMAGE)]
    pub image: String,

    /// Image of the exporter for every Memcached with metrics that sets none.
    #[arg(
        long = "memcached-exporter-image",
        env = "MEMCACHED_EXPORTER_IMAGE",
        value_name = "IMAGE",
        default_value = DEFAULT_EXPORTER_IMAGE
    )]
    pub exporter_image: String,

    /// `--image-registry`, a flag of the runtime: a prefix for the images above, never for an image in a spec.
    #[arg(skip)]
    pub image_registry: Option<String>,
}

const DEFAULT_IMAGE: &str = "docker.io/library/memcached:1.6";
const DEFAULT_EXPORTER_IMAGE: &str = "docker.io/prom/memcached-exporter:v0.15.4";

impl Config {
    /// The image of memcached for a Memcached that sets none.
    pub fn default_image(&self) -> String {
        self.of_registry(&self.image)
    }

    /// The image of the exporter for a Memcached that sets none.
    pub fn default_exporter_image(&self) -> String {
        self.of_registry(&self.exporter_image)
    }

    fn of_registry(&self, image: &str) -> String {
        match &self.image_registry {
            Some(registry) => format!("{}/{image}", registry.trim_end_matches('/')),
            None => image.to_owned(),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            image: DEFAULT_IMAGE.to_owned(),
            exporter_image: DEFAULT_EXPORTER_IMAGE.to_owned(),
            image_registry: None,
        }
    }
}
