//! A target as a process of its own.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::{memory, target::Target};

const START: Duration = Duration::from_secs(30);

/// A running target. The process ends when this is dropped.
pub(crate) struct Program {
    child: Child,
    folder: TempDir,
    pub(crate) address: SocketAddr,
}

impl Program {
    /// Starts `binary serve TARGET`, which prints its address.
    pub(crate) async fn start(binary: &Path, target: Target) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(binary);
        command.args(["serve", target.name()]).arg(folder.path()).stdout(Stdio::piped()).stdin(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().with_context(|| format!("{}", binary.display()))?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let address = timeout(START, lines.next_line()).await.context("the target did not start")??;
        let Some(address) = address else { bail!("the target ended at once") };
        let address = address.parse().with_context(|| format!("{address:?} is no address"))?;
        Ok(Self { child, folder, address })
    }

    /// The folder with its certificate.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().ok().flatten().is_some()
    }

    /// The peak of its resident memory in bytes; `None` if it has ended.
    pub(crate) fn peak(&self) -> Option<u64> {
        memory::of_process(self.child.id()?, "VmHWM")
    }
}
