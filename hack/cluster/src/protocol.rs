//! What a cluster's supervisor can be asked, over a Unix socket: a line of JSON each way.
//!
//! A connection also counts as a user: as long as someone is connected, the cluster does not end itself.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::layout::Layout;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    Status,
    Stop(String),
    /// As an administrator stops it: SIGTERM.
    Terminate(String),
    Start(String),
    Pause(String),
    Resume(String),
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    Status(Status),
    Done,
    Refused(String),
}

/// How a cluster is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// How far it has come.
    pub phase: Phase,
    /// What it consists of.
    pub parts: Vec<Part>,
    /// How many handles and commands use it now.
    pub users: usize,
}

/// How far a cluster has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// On the way; the text says what it waits for.
    Starting(String),
    /// Everything has been ready once.
    Ready,
    /// It will not become ready.
    Failed(String),
}

/// One process of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Such as "etcd".
    pub name: String,
    /// What it does now.
    pub state: PartState,
    /// How often it was started again because it had ended by itself.
    pub restarts: u32,
    /// The process. In a [`Summary`](crate::Summary) as seen from here; else as seen from the supervisor.
    pub pid: Option<i32>,
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartState {
    /// Its turn has not come.
    Waiting,
    /// It runs.
    Running,
    /// Someone has paused it.
    Paused,
    /// Someone has asked it to end, and it is about to.
    Ending,
    /// Someone has stopped it.
    Stopped,
    /// It ended by itself, and is started again soon.
    Restarting,
    /// It ended by itself too often.
    Failed,
}

/// A connection to a supervisor.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    /// Connects to the supervisor of this cluster, if one is there.
    pub(crate) fn open(layout: &Layout) -> Option<Self> {
        let (_folder, path) = short(layout).ok()?;
        let stream = UnixStream::connect(path).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
        Some(Self { stream: BufReader::new(stream) })
    }

    /// The supervisor's process, as seen from here.
    pub(crate) fn pid(&self) -> Result<i32> {
        let peer =
            rustix::net::sockopt::socket_peercred(self.stream.get_ref()).context("could not ask who is there")?;
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

/// Listens where [`Connection::open`] looks.
pub(crate) fn listen(layout: &Layout) -> Result<UnixListener> {
    let (_folder, path) = short(layout)?;
    let _ = std::fs::remove_file(&path);
    UnixListener::bind(path).with_context(|| format!("could not listen on {}", layout.socket().display()))
}

/// A name for the socket that is short enough whatever the folder is called: socket addresses end at 108 bytes.
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
    fn a_long_folder_name_is_no_obstacle() {
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
