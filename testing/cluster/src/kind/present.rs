//! Compares the nodes of a present cluster with those that a caller wants. Otherwise tests would pass on another Kubernetes than their
//! user believes.

use anyhow::{Result, bail};

use super::engine::Engine;

/// Checks that the nodes of this cluster are those that the caller wants. `recorded` is the image that the first call named, if it named
/// one.
pub(super) fn check(engine: &Engine, name: &str, workers: usize, recorded: Option<&str>) -> Result<()> {
    let image = engine.image_of(&format!("{name}-control-plane"))?;
    let present = Present { image: &image, recorded, workers: engine.workers(name)? };
    let Some(differs) = present.differs_from(engine.image.as_deref(), workers) else { return Ok(()) };
    let advice = format!("take it down first with `cargo xtask cluster down --name {name}`, or choose another name");
    bail!("the kind cluster {name} already has {differs}: {advice}")
}

/// The nodes of a cluster.
#[derive(Debug)]
struct Present<'a> {
    /// The image, as the engine keeps its name.
    image: &'a str,
    /// The image that the first call named. Without one, the image is kind's default, whose name only kind knows.
    recorded: Option<&'a str>,
    /// Their number beside the control plane.
    workers: usize,
}

impl Present<'_> {
    /// What they have instead of what a caller wants; `None` if nothing differs. Without an `image`, the caller wants kind's default.
    fn differs_from(&self, image: Option<&str>, workers: usize) -> Option<String> {
        let wanted = match image {
            Some(wanted) => Some(wanted).filter(|wanted| !is_same_image(wanted, self.image)),
            None => self.recorded.map(|_| "the default one"),
        };
        if let Some(wanted) = wanted {
            return Some(format!("the node image {}, not {wanted}", self.image));
        }
        (self.workers != workers).then(|| format!("{} workers, not {workers}", self.workers))
    }
}

/// Whether two references name the same image. Docker keeps a reference as the caller wrote it. Podman completes its registry, and drops
/// the tag if there is a digest.
fn is_same_image(one: &str, other: &str) -> bool {
    let (first, second) = (Reference::of(one), Reference::of(other));
    let is_same_content = if first.digest.is_some() && second.digest.is_some() {
        first.digest == second.digest
    } else {
        first.tag == second.tag
    };
    first.name == second.name && is_same_content
}

/// The parts of the name of an image.
struct Reference<'a> {
    /// Without the registry, if that is the usual one.
    name: &'a str,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

impl<'a> Reference<'a> {
    fn of(text: &'a str) -> Self {
        let (rest, digest) = text.split_once('@').map_or((text, None), |(rest, digest)| (rest, Some(digest)));
        // A colon before a slash belongs to the port of a registry.
        let tagged = rest.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'));
        let (name, tag) = tagged.map_or((rest, None), |(name, tag)| (name, Some(tag)));
        let name = name.strip_prefix("docker.io/").unwrap_or(name);
        Self { name: name.strip_prefix("library/").unwrap_or(name), tag, digest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLDEST: &str = "kindest/node:v1.31.14";

    #[test]
    fn cluster_with_other_nodes_than_the_wanted_ones_is_not_joined() {
        let present = Present { image: OLDEST, recorded: Some(OLDEST), workers: 2 };
        assert_eq!(present.differs_from(Some(OLDEST), 2), None);
        let other = present.differs_from(Some("kindest/node:v1.37.0"), 2);
        assert_eq!(other.as_deref(), Some("the node image kindest/node:v1.31.14, not kindest/node:v1.37.0"));
        let default = present.differs_from(None, 2);
        assert_eq!(default.as_deref(), Some("the node image kindest/node:v1.31.14, not the default one"));
        assert_eq!(present.differs_from(Some(OLDEST), 0).as_deref(), Some("2 workers, not 0"));
        assert_eq!(Present { recorded: None, ..present }.differs_from(None, 2), None, "both have the default");
    }

    #[test]
    fn same_image_has_several_names() {
        let digest = "kindest/node:v1.31.14@sha256:00";
        for (one, other) in [
            (OLDEST, OLDEST),
            (OLDEST, "docker.io/kindest/node:v1.31.14"),
            (OLDEST, digest),
            (digest, "docker.io/kindest/node@sha256:00"),
            ("node:v1", "docker.io/library/node:v1"),
            ("localhost:5000/node", "localhost:5000/node"),
        ] {
            assert!(is_same_image(one, other) && is_same_image(other, one), "{one} {other}");
        }
        for (one, other) in [
            (OLDEST, "kindest/node:v1.31.13"),
            (OLDEST, "example.com/kindest/node:v1.31.14"),
            (digest, "kindest/node:v1.31.14@sha256:01"),
            ("localhost:5000/node", "localhost:5001/node"),
            ("localhost/operators/kind-node:v1.37.0-a", "localhost/operators/kind-node:v1.37.0-b"),
        ] {
            assert!(!is_same_image(one, other), "{one} {other}");
        }
    }
}
