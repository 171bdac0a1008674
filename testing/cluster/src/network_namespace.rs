//! Work of this process in the network of another one.

use std::fs::File;
use std::os::fd::AsFd as _;

use anyhow::{Context as _, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Does this work on a thread in the network of this process, or in that of the caller if there is no process.
pub(crate) fn on_thread_in<T: Send>(process: Option<i32>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let entered = || -> Result<T> {
        if let Some(process) = process {
            enter(process)?;
        }
        work()
    };
    // A thread of its own, because it can never leave the other network again.
    match std::thread::scope(|scope| scope.spawn(entered).join()) {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Moves the calling thread into the network of this process for the rest of its life.
pub(crate) fn enter(process: i32) -> Result<()> {
    let network = File::open(format!("/proc/{process}/ns/net")).context("the process is gone")?;
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("could not enter the network of process {process}"))
}
