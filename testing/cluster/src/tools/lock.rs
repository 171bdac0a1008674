//! A lock between processes. The kernel releases it when its holder ends, also after a crash.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::progress::{Event, Progress};

/// A held lock. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Waits for the lock, and reports that it waits. `what` completes the sentence "another call is …; waiting for it".
    pub(crate) fn acquire(path: &Path, what: &str, patience: Duration, progress: Progress<'_>) -> Result<Self> {
        let begun = Instant::now();
        let mut told = false;
        while begun.elapsed() < patience {
            if let Some(lock) = Self::try_acquire(path)? {
                return Ok(lock);
            }
            if !told && begun.elapsed() > Duration::from_millis(500) {
                progress(Event::Note(&format!("another call is {what}; waiting for it")));
                told = true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!(
            "another call has been {what} for more than {} minutes: end it, or wait and try again",
            patience.as_secs() / 60
        )
    }

    /// Takes the lock; `None` if another process or handle holds it.
    pub(crate) fn try_acquire(path: &Path) -> Result<Option<Self>> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => {
                let lock = Self { file, path: path.to_path_buf() };
                Ok(lock.is_current().then_some(lock))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("could not lock {}", path.display())),
        }
    }

    /// Releases the lock and removes its file.
    pub(crate) fn remove(self) {
        let _ = std::fs::remove_file(&self.path); // an empty file that stays does no harm
    }

    /// Whether the path still names the locked file: the last holder may have removed it.
    fn is_current(&self) -> bool {
        let number = |metadata: std::io::Result<Metadata>| metadata.ok().map(|metadata| metadata.ino());
        number(self.file.metadata()) == number(std::fs::metadata(&self.path))
    }
}

fn open(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
    }
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    file.with_context(|| format!("could not open {}", path.display()))
}
