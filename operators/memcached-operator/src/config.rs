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

    /// `--image-registry`, a flag of the runtime: a prefix for the default images. An image in a spec or in a flag above stays
    /// unchanged.
    #[arg(skip)]
    pub image_registry: Option<String>,

    /// `--fixed-user-ids`, a flag of the runtime: whether the containers name a user and a group.
    #[arg(skip = true)]
    pub fixed_user_ids: bool,
}

const DEFAULT_IMAGE: &str = "docker.io/library/memcached:1.6";
const DEFAULT_EXPORTER_IMAGE: &str = "docker.io/prom/memcached-exporter:v0.15.4";

impl Config {
    /// The image of memcached for a Memcached that sets none.
    pub fn default_image(&self) -> String {
        self.of_registry(&self.image, DEFAULT_IMAGE)
    }

    /// The image of the exporter for a Memcached that sets none.
    pub fn default_exporter_image(&self) -> String {
        self.of_registry(&self.exporter_image, DEFAULT_EXPORTER_IMAGE)
    }

    /// The user or group of a container, if the pods name any.
    pub(crate) fn fixed(&self, id: i64) -> Option<i64> {
        self.fixed_user_ids.then_some(id)
    }

    fn of_registry(&self, image: &str, default: &str) -> String {
        match &self.image_registry {
            Some(registry) if image == default => format!("{}/{image}", registry.trim_end_matches('/')),
            _ => image.to_owned(),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            image: DEFAULT_IMAGE.to_owned(),
            exporter_image: DEFAULT_EXPORTER_IMAGE.to_owned(),
            image_registry: None,
            fixed_user_ids: true,
        }
    }
}
