//! Image names as users and manifests write them: `nginx`, `docker.io/library/nginx:latest`, `localhost/pause:1`.

use std::fmt;

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// The registry of names without a registry.
pub const DEFAULT_REGISTRY: &str = "docker.io";

/// A full image name. The parser completes short names like Docker and containerd.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference {
    /// The registry and the path of the image.
    pub repository: Repository,
    /// The tag, `latest` if the name had none.
    pub tag: String,
}

/// A registry and a path in it, without a tag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repository {
    /// The host, such as `docker.io`.
    pub registry: String,
    /// The path, such as `library/memcached`.
    pub path: String,
}

impl Reference {
    /// Parses an image name.
    pub fn parse(text: &str) -> Result<Self> {
        ensure!(!text.contains('@'), "{text:?} names a digest: name the image by its tag");
        // A colon before the last slash belongs to the registry's port.
        let (name, tag) = match text.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, tag),
            _ => (text, "latest"),
        };
        ensure!(is_tag(tag), "{text:?} is not an image name: {tag:?} cannot be a tag");
        Ok(Self { repository: Repository::parse(name)?, tag: tag.to_owned() })
    }

    /// The same repository under another tag.
    pub fn with_tag(&self, tag: &str) -> Self {
        Self { repository: self.repository.clone(), tag: tag.to_owned() }
    }
}

impl Repository {
    /// Parses a name without a tag.
    pub fn parse(text: &str) -> Result<Self> {
        let (registry, path) = match text.split_once('/') {
            Some((host, path)) if host == "localhost" || host.contains(['.', ':']) => (host, path.to_owned()),
            Some(_) => (DEFAULT_REGISTRY, text.to_owned()),
            None => (DEFAULT_REGISTRY, format!("library/{text}")),
        };
        if !is_host(registry) || !path.split('/').all(is_path_component) {
            bail!("{text:?} is not an image name: use lowercase letters, digits, '.', '_' and '-' between slashes");
        }
        Ok(Self { registry: registry.to_owned(), path })
    }
}

fn is_host(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':');
    text.bytes().all(inner) && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

fn is_path_component(text: &str) -> bool {
    let inner = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    let outer = |b: Option<u8>| matches!(b, Some(b'a'..=b'z' | b'0'..=b'9'));
    text.bytes().all(inner) && outer(text.bytes().next()) && outer(text.bytes().next_back())
}

fn is_tag(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=128).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with(['.', '-'])
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.path)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.repository, self.tag)
    }
}

impl std::str::FromStr for Reference {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Reference {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> Self {
        reference.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, full: &str) {
        assert_eq!(Reference::parse(text).unwrap().to_string(), full);
    }

    #[test]
    fn short_names_are_completed() {
        check("nginx", "docker.io/library/nginx:latest");
        check("nginx:1", "docker.io/library/nginx:1");
        check("prom/memcached-exporter:v0.15.4", "docker.io/prom/memcached-exporter:v0.15.4");
        check("docker.io/library/memcached:1.6", "docker.io/library/memcached:1.6");
        check("localhost/pause:1", "localhost/pause:1");
        check("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b:latest");
    }

    #[test]
    fn invalid_references_are_rejected() {
        for text in ["", ":1", "nginx:", "Nginx", "a//b", "../a", "a/../b", "a:b:c", "nginx@sha256:00", "nginx:-x"] {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
    }
}
