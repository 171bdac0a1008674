//! A minimal client of the API server, with the administrator's permissions, for the few requests that start a cluster.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::pki::Authority;

/// A client of one API server.
#[derive(Clone)]
pub(crate) struct Api {
    port: u16,
    config: Arc<ClientConfig>,
}

/// The answer to one request.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Vec<u8>,
}

const PATIENCE: Duration = Duration::from_secs(5);

impl Api {
    pub(crate) fn new(port: u16, authority: &Authority) -> Result<Self> {
        let user = authority.client("cluster-supervisor", &["system:masters"])?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate.as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(user.certificate.as_bytes())?],
                PrivateKeyDer::from_pem_slice(user.key.as_bytes())?,
            )?;
        Ok(Self { port, config: Arc::new(config) })
    }

    /// Whether the API server reports that it is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.get("/readyz").is_ok_and(|answer| answer.code == 200)
    }

    pub(crate) fn get(&self, path: &str) -> Result<Answer> {
        self.request("GET", path, "", b"")
    }

    /// Creates the object, unless it exists.
    pub(crate) fn create(&self, path: &str, object: &Value) -> Result<()> {
        let answer = self.request("POST", path, "application/json", object.to_string().as_bytes())?;
        match answer.code {
            200..=299 | 409 => Ok(()),
            code => bail!("could not create an object at {path}: {code} {}", String::from_utf8_lossy(&answer.body)),
        }
    }

    /// Sends one request on its own connection. It uses HTTP/1.0, so that the answer ends with the connection.
    fn request(&self, method: &str, path: &str, content: &str, body: &[u8]) -> Result<Answer> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let tcp = TcpStream::connect_timeout(&address, PATIENCE).context("could not reach the API server")?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        tcp.set_write_timeout(Some(PATIENCE))?;
        let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        let mut stream = StreamOwned::new(ClientConnection::new(self.config.clone(), name)?, tcp);

        let length = body.len();
        write!(stream, "{method} {path} HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n")?;
        write!(
            stream,
            "User-Agent: cluster-supervisor\r\nContent-Type: {content}\r\nContent-Length: {length}\r\n\r\n"
        )?;
        stream.write_all(body)?;
        stream.flush()?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => Err(error.into()),
            _ => parse(&answer),
        }
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

fn parse(answer: &[u8]) -> Result<Answer> {
    let head_end = answer.windows(4).position(|four| four == b"\r\n\r\n").context("the answer has no head")?;
    let head = String::from_utf8_lossy(&answer[..head_end]);
    let code = head.split_whitespace().nth(1).and_then(|word| word.parse().ok()).context("the answer has no code")?;
    Ok(Answer { code, body: answer[head_end + 4..].to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_parsed_into_code_and_body() {
        let answer = parse(b"HTTP/1.0 409 Conflict\r\nA: b\r\n\r\n{}").unwrap();
        assert_eq!((answer.code, answer.body.as_slice()), (409, b"{}".as_slice()));
        assert!(parse(b"").is_err());
    }
}
