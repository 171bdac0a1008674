//! The platforms for which the image of the product exists.

use std::fmt;

use anyhow::{Result, bail};

/// A platform, as registries and clusters name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Platform {
    /// linux/amd64, which Rust names `x86_64`.
    Amd64,
    /// linux/arm64, which Rust names aarch64.
    Arm64,
}

impl Platform {
    /// Every platform, in the order of an index.
    pub const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// The platform of this machine.
    ///
    /// # Errors
    ///
    /// If it is another one.
    pub fn here() -> Result<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::Amd64),
            "aarch64" => Ok(Self::Arm64),
            other => bail!("there is no image for the architecture {other}"),
        }
    }

    /// The architecture in the words of images.
    pub fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The target triple of Rust.
    pub fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// The compiler that links programs for this platform on a machine of another one, and the Debian packages that contain it.
    pub fn cross_compiler(self) -> (&'static str, &'static str) {
        match self {
            Self::Amd64 => ("x86_64-linux-gnu-gcc", "gcc-x86-64-linux-gnu libc6-dev-amd64-cross"),
            Self::Arm64 => ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linux/{}", self.architecture())
    }
}

impl std::str::FromStr for Platform {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|platform| platform.to_string() == text) {
            Some(platform) => Ok(platform),
            None => bail!("{text:?} is not a platform of the image: use linux/amd64 or linux/arm64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platform_is_parsed_from_its_name() {
        for platform in Platform::ALL {
            assert_eq!(platform.to_string().parse::<Platform>().unwrap(), platform);
        }
        let error = "linux/riscv64".parse::<Platform>().unwrap_err().to_string();
        assert!(error.contains("linux/riscv64") && error.contains("linux/arm64"), "{error}");
    }
}
