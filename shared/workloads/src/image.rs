//! When the kubelet pulls an image.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When the kubelet pulls an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the fields' descriptions explain them, and the schema would lose these")]
pub enum ImagePullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl ImagePullPolicy {
    /// The name in the Kubernetes API.
    pub fn name(self) -> String {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
        .to_owned()
    }
}

/// Whether a name refers to the tag `latest`, explicitly or because it has neither tag nor digest (`parsers.ParseImageName` of
/// Kubernetes).
pub fn runs_latest(image: &str) -> bool {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or(name);
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => digest.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_without_a_fixed_tag_run_latest() {
        for image in ["app", "registry:5000/app", "docker.io/library/app:latest", "app:latest@sha256:0"] {
            assert!(runs_latest(image), "{image}");
        }
        for image in ["app:1", "registry:5000/app:1", "app@sha256:0", "app:1@sha256:0"] {
            assert!(!runs_latest(image), "{image}");
        }
    }
}
