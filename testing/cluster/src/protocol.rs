//! The protocol of a cluster's supervisor, over a Unix socket: each request and each reply is a line of JSON.
//!
//! Each connection counts as a user of the cluster. As long as there is one, the cluster does not stop by itself.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::layout::Layout;

/// A request to the supervisor. The strings are names of parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    Status,
    Stop(String),
    /// Stops the part with SIGTERM, like an administrator.
    Terminate(String),
    Start(String),
    Pause(String),
    Resume(String),
}

/// The supervisor's reply to one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    Status(Status),
    Done,
    Refused(String),
}

/// The state of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// How far the start has come.
    pub phase: Phase,
    /// The processes of the cluster.
    pub parts: Vec<Part>,
    /// The number of handles and commands that use the cluster now.
    pub users: usize,
}

/// How far the start of a cluster has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The cluster starts, and waits for what the text names.
    Starting(String),
    /// All parts have become ready.
    Ready,
    /// The cluster will not become ready, for the reason in the text.
    Failed(String),
}

/// One process of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The name, such as "etcd".
    pub name: String,
    /// The present state.
    pub state: PartState,
    /// How often the supervisor has restarted it after it ended by itself.
    pub restarts: u32,
    /// The process id: in a [`Summary`](crate::Summary) the id on this machine, otherwise the id in the supervisor's namespace.
    pub pid: Option<i32>,
}

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartState {
    /// It waits for another part before its first start.
    Waiting,
    /// It runs.
    Running,
    /// A user has paused it.
    Paused,
    /// A user has sent SIGTERM, and it has not ended yet.
    Ending,
    /// A user has stopped it.
    Stopped,
    /// It ended by itself, and the supervisor will restart it soon.
    Restarting,
    /// It ended by itself too often. The supervisor no longer restarts it.
    Failed,
}

/// A connection to a supervisor.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    /// Connects to the supervisor of this cluster; `None` if it does not run.
    pub(crate) fn open(layout: &Layout) -> Option<Self> {
        let (_folder, path) = short(layout).ok()?;
        let stream = UnixStream::connect(path).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
        Some(Self { stream: BufReader::new(stream) })
    }

    /// The supervisor's process id on this machine.
    pub(crate) fn pid(&self) -> Result<i32> {
        let peer = rustix::net::sockopt::socket_peercred(self.stream.get_ref())
            .context("could not read the peer of the socket")?;
        Ok(peer.pid.as_raw_nonzero().get())
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<Reply> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes()).context("the cluster's supervisor is gone")?;
        let mut reply = String::new();
        self.stream.read_line(&mut reply).context("the cluster's supervisor does not answer")?;
        if reply.is_empty() {
            bail!("the cluster's supervisor is gone");
        }
        Ok(serde_json::from_str(&reply)?)
    }

    pub(crate) fn status(&mut self) -> Result<Status> {
        match self.ask(&Request::Status)? {
            Reply::Status(status) => Ok(status),
            other => bail!("the supervisor answered {other:?}"),
        }
    }
}

/// Listens on the socket to which [`Connection::open`] connects.
pub(crate) fn listen(layout: &Layout) -> Result<UnixListener> {
    let (_folder, path) = short(layout)?;
    let _ = std::fs::remove_file(&path);
    UnixListener::bind(path).with_context(|| format!("could not listen on {}", layout.socket().display()))
}

/// A short path of the socket, however long the folder's path is: a socket address has at most 108 bytes. The path is valid as
/// long as the returned file is open.
fn short(layout: &Layout) -> Result<(File, PathBuf)> {
    let folder = File::open(layout.folder()).with_context(|| format!("{} is gone", layout.folder().display()))?;
    let name = layout.socket();
    let path = format!("/proc/self/fd/{}/{}", folder.as_raw_fd(), name.file_name().unwrap_or_default().display());
    Ok((folder, path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_works_in_folder_with_long_path() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("x".repeat(120));
        std::fs::create_dir(&long).unwrap();
        let layout = Layout::at(long);
        let listener = listen(&layout).unwrap();
        let client = Connection::open(&layout).unwrap();
        listener.accept().unwrap();
        assert_eq!(client.pid().unwrap(), i32::try_from(std::process::id()).unwrap());
    }
}
