//! Resets a connection, so that the client gets no answer and no regular end.

use std::{
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::net::TcpStream;

/// A handle that can reset a connection while hyper reads and writes it.
pub(crate) struct Line(Mutex<Option<OwnedFd>>);

/// The error of a request that gets no answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is reset")]
pub(crate) struct Reset;

impl Line {
    pub(crate) fn of(stream: &TcpStream) -> Self {
        Self(Mutex::new(stream.as_fd().try_clone_to_owned().ok()))
    }

    /// Makes the close of the connection a reset: all data in flight are lost.
    pub(crate) fn reset(&self) -> Reset {
        if let Some(socket) = self.0.lock().take() {
            // An error means that the connection is closed already.
            let _ = rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        }
        Reset
    }
}
