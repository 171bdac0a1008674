//! A memcached client of the fewest lines, to see that a node really caches.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

const PATIENCE: Duration = Duration::from_secs(5);

/// Sets a value on the node at `address` and gets it back. The calling thread must be in the cluster's network.
pub fn set_and_get(address: SocketAddr, key: &str, value: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).with_context(|| format!("no node at {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    write!(stream, "set {key} 0 60 {}\r\n{value}\r\n", value.len())?;
    answers.read_line(&mut line)?;
    ensure!(line.trim_end() == "STORED", "{address} answered {line:?} to set");
    write!(stream, "get {key}\r\n")?;
    line.clear();
    answers.read_line(&mut line)?;
    ensure!(line.starts_with(&format!("VALUE {key} ")), "{address} answered {line:?} to get");
    line.clear();
    answers.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}
