//! Files that may change at any time: by a rename, by a swapped symbolic link, in several steps, or after being absent.
//!
//! The files are polled rather than watched. A poll finds the current contents, however they changed. It costs two reads of small
//! files. And it goes on after the folder was replaced, where a watch would end.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::CertificateError;

/// The default interval between two reads.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(5);

type Contents<const N: usize> = Result<[Vec<u8>; N], (PathBuf, io::ErrorKind)>;

/// Files that belong together, and the result of the last read.
pub(crate) struct Files<const N: usize> {
    paths: [PathBuf; N],
    seen: Mutex<Option<Contents<N>>>,
}

impl<const N: usize> Files<N> {
    pub(crate) fn new(paths: [PathBuf; N]) -> Self {
        Self { paths, seen: Mutex::new(None) }
    }

    /// Reads the files. Returns `None` if nothing has changed since the last read.
    pub(crate) fn poll(&self) -> Option<Result<[Vec<u8>; N], CertificateError>> {
        let mut seen = self.seen.lock();
        let now = self.read();
        if seen.as_ref() == Some(&now) {
            return None;
        }
        *seen = Some(now.clone());
        Some(now.map_err(|(path, kind)| CertificateError::Unreadable { path, source: kind.into() }))
    }

    fn read(&self) -> Contents<N> {
        let mut contents = [const { Vec::new() }; N];
        for (content, path) in contents.iter_mut().zip(&self.paths) {
            *content = std::fs::read(path).map_err(|error| (path.clone(), error.kind()))?;
        }
        Ok(contents)
    }
}

/// Calls `reload` at this interval until all other owners of `of` are gone.
pub(crate) fn watch<T: Send + Sync + 'static>(of: &Arc<T>, every: Duration, reload: fn(&T)) {
    let of = Arc::downgrade(of);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(every).await;
            let Some(of) = of.upgrade() else { return };
            // Reading may hang in the file system; that must not hold up connections.
            drop(tokio::task::spawn_blocking(move || reload(&of)).await);
        }
    });
}
