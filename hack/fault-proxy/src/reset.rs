//! Ending a connection without a word.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::net::TcpStream;

/// A connection that can be reset while somebody else reads and writes it.
pub(crate) struct Line(Mutex<Option<OwnedFd>>);

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is reset")]
pub(crate) struct Reset;

impl Line {
    pub(crate) fn of(stream: &TcpStream) -> Self {
        Self(Mutex::new(stream.as_fd().try_clone_to_owned().ok()))
    }

    /// From now on, closing it is a reset: whatever is on the way is lost.
    pub(crate) fn reset(&self) -> Reset {
        if let Some(socket) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // It may be closed already; then there is nothing to reset.
            let _ = rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        }
        Reset
    }
}
