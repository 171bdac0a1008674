//! Digests, which are the names of blobs: `sha256:` and 64 hexadecimal digits.

use std::fmt;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The digest of a blob. Only SHA-256 exists here; a parsed digest is safe to use as a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest {
    hex: String,
}

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        use fmt::Write as _;
        let mut hex = String::with_capacity(64);
        for byte in Sha256::digest(bytes) {
            let _ = write!(hex, "{byte:02x}"); // writing to a String cannot fail
        }
        Self { hex }
    }

    /// Reads `sha256:<64 hexadecimal digits>`.
    pub fn parse(text: &str) -> Result<Self> {
        match text.strip_prefix("sha256:") {
            Some(hex) if hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) => {
                Ok(Self { hex: hex.to_owned() })
            }
            _ => bail!("{text:?} is not a digest: expected \"sha256:\" and 64 lowercase hexadecimal digits"),
        }
    }

    /// The 64 digits without the algorithm.
    pub fn hex(&self) -> &str {
        &self.hex
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex)
    }
}

impl TryFrom<String> for Digest {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_round_trips_and_rejects_path_traversal() {
        let digest = Digest::of(b"");
        assert_eq!(digest.to_string(), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(Digest::parse(&digest.to_string()).unwrap(), digest);
        for text in ["", "sha256:", "sha256:../../etc/passwd", "sha512:00", &format!("sha256:{}", "G".repeat(64))] {
            assert!(Digest::parse(text).is_err(), "{text}");
        }
    }
}
