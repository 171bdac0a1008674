//! Files that may change at any time: by a rename, by a swapped symbolic link, in several steps, or after being absent.
//!
//! They are looked at again and again rather than watched: a look is exact whatever happened in between, costs two reads of
//! small files, and needs no watch to survive that its folder is replaced.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::CertificateError;

/// How often files are looked at.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

type Contents<const N: usize> = Result<[Vec<u8>; N], (PathBuf, io::ErrorKind)>;

/// Some files that belong together, and what was last seen of them.
pub(crate) struct Files<const N: usize> {
    paths: [PathBuf; N],
    seen: Mutex<Option<Contents<N>>>,
}

impl<const N: usize> Files<N> {
    pub(crate) fn new(paths: [PathBuf; N]) -> Self {
        Self { paths, seen: Mutex::new(None) }
    }

    /// What is in the files, if that is something new.
    pub(crate) fn look(&self) -> Option<Result<[Vec<u8>; N], CertificateError>> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Lets `reload` look again and again, for as long as anybody else has `of`.
pub(crate) fn watch<T: Send + Sync + 'static>(of: &Arc<T>, every: Duration, reload: fn(&T)) {
    let of = Arc::downgrade(of);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(every).await;
            let Some(of) = of.upgrade() else { return };
            // A file system may hang; that must not hold up connections.
            drop(tokio::task::spawn_blocking(move || reload(&of)).await);
        }
    });
}
