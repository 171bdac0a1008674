//! The operators' image for a cluster of this repository, in two parts, the second of which needs no terminal.

use std::path::PathBuf;

use anyhow::Result;
use images::{Store, operator};

use crate::install::{Profile, build_image, by_digest, workspace};

/// The operators' image for a cluster that this repository runs, see [`crate::image_for`]. The cluster need not run yet: its nodes
/// pull from the store of this machine.
#[derive(Debug)]
pub enum LocalImage {
    /// It exists under this name.
    Named(String),
    /// Its programs are compiled, into these files.
    Compiled(Vec<PathBuf>),
}

impl LocalImage {
    /// Compiles what is not yet compiled, and shows the output of cargo.
    pub fn compile() -> Result<Self> {
        if let Ok(image) = std::env::var("E2E_IMAGE") {
            return Ok(Self::Named(image));
        }
        match Profile::chosen()? {
            Profile::Trial => Ok(Self::Compiled(operator::compile_trial(workspace()?)?)),
            Profile::Release => {
                let store = Store::open(images::default_store()?)?;
                Ok(Self::Named(by_digest(&build_image(workspace()?, &store, Profile::Release)?)?))
            }
        }
    }

    /// Packs the programs and returns the name of the image. It prints nothing, so it can run while a cluster shows its progress.
    pub fn pack(self) -> Result<String> {
        match self {
            Self::Named(image) => Ok(image),
            Self::Compiled(programs) => {
                let store = Store::open(images::default_store()?)?;
                by_digest(&operator::pack_trial(&programs, workspace()?, &store)?)
            }
        }
    }
}
