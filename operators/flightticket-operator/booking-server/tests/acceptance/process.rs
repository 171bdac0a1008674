//! A server in a process of its own, which tests can kill.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    client::{Client, PATIENCE},
    served::database,
};

/// A running process.
pub(crate) struct Process {
    child: Child,
    pub(crate) api: Client,
    pub(crate) admin: Client,
    log: Arc<Mutex<String>>,
}

impl Process {
    /// Starts the server on free ports and waits until it listens. It needs no token, unless the flags name a token file.
    pub(crate) fn start(folder: &Path, flags: &[&str]) -> Self {
        let mut command = command();
        command.arg("--db").arg(database(folder)).args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        if !flags.contains(&"--token-file") {
            command.arg("--insecure");
        }
        command.args(flags);
        Self::of(command)
    }

    /// Starts the command, and waits until its log says where it listens.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (listens, told) = mpsc::channel();
        let (stderr, kept) = (child.stderr.take().unwrap(), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some(addresses) = addresses(&line) {
                    listens.send(addresses).ok();
                }
                kept.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let Ok((api, admin)) = told.recv_timeout(PATIENCE) else {
            drop(child.kill());
            panic!("it does not listen: {}", log.lock().unwrap());
        };
        Self { child, api: Client::new(api), admin: Client::new(admin), log }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The program, without settings from the environment of the tests.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_booking-server"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BOOKING_")) {
        command.env_remove(name);
    }
    command
}

pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line: Value = serde_json::from_str(line).ok()?;
    let address = |name: &str| line[name].as_str()?.parse().ok();
    Some((address("api")?, address("admin")?))
}
