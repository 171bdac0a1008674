//! A minimal memcached client, with which tests check that a node really caches. It speaks the text protocol, plain or over TLS.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};

const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to one node. The calling thread must be in the cluster's network.
pub(super) struct CacheClient {
    stream: BufReader<Box<dyn ReadWrite>>,
    address: SocketAddr,
}

/// The operations that the client needs of a connection.
trait ReadWrite: Read + Write + Send {}

impl<S: Read + Write + Send> ReadWrite for S {}

impl CacheClient {
    /// Connects without TLS.
    pub(super) fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self { stream: BufReader::new(Box::new(connect(address)?)), address })
    }

    /// Connects over TLS to a node whose certificate is for `name`.
    pub(super) fn connect_tls(address: SocketAddr, name: &str, config: Arc<ClientConfig>) -> Result<Self> {
        let tls = ClientConnection::new(config, ServerName::try_from(name.to_owned())?)?;
        Ok(Self { stream: BufReader::new(Box::new(StreamOwned::new(tls, connect(address)?))), address })
    }

    /// Authenticates. Nodes with authentication require this as the first command.
    pub(super) fn authenticate(&mut self, user: &str, password: &str) -> Result<()> {
        self.set("auth", &format!("{user} {password}"))
    }

    /// Sets a value that expires after a minute.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<()> {
        self.send(&format!("set {key} 0 60 {}\r\n{value}\r\n", value.len()))?;
        let answer = self.line()?;
        ensure!(answer == "STORED", "{} answered {answer:?} to set", self.address);
        Ok(())
    }

    /// Gets the value; `None` if the key is missing.
    pub(super) fn get(&mut self, key: &str) -> Result<Option<String>> {
        self.send(&format!("get {key}\r\n"))?;
        let answer = self.line()?;
        if answer == "END" {
            return Ok(None);
        }
        if !answer.starts_with(&format!("VALUE {key} ")) {
            bail!("{} answered {answer:?} to get", self.address);
        }
        let value = self.line()?;
        ensure!(self.line()? == "END", "{} did not end its answer after the value", self.address);
        Ok(Some(value))
    }

    fn send(&mut self, command: &str) -> Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(command.as_bytes())?;
        stream.flush().with_context(|| format!("{} takes no command", self.address))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).with_context(|| format!("{} does not answer", self.address))?;
        ensure!(read > 0, "{} has hung up", self.address);
        Ok(line.trim_end().to_owned())
    }
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).with_context(|| format!("no node at {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
