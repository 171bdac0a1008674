//! Measures what a proxy costs: memory at rest, CPU time and latency of scrapes. The arguments name the programs, so
//! kube-rbac-proxy can be measured in the same way: it has the same flags.
//!
//! `cargo run --release -p operators-metrics-proxy --example measure -- target/release/metrics-proxy`
#![expect(clippy::print_stdout, reason = "the table is its result")]

use std::{
    error::Error,
    fs,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Router, body::Bytes, routing::post};
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::{Value, json};
use serving::{Limits, Listener};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

type Failure = Box<dyn Error + Send + Sync>;

const SCRAPES: usize = 1_000;
const CONNECTIONS: usize = 200;
/// Size of the metrics of a busy controller, in bytes.
const PAGE: usize = 64 * 1024;

/// The measured program. Dropping it kills the process.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> Result<(), Failure> {
    let programs: Vec<_> = std::env::args().skip(1).collect();
    if programs.is_empty() {
        return Err("give the paths of programs to measure".into());
    }
    println!("| program | size | at rest | after | CPU/1,000 scrapes | p50 | p99 | CPU/1,000 new connections |");
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    for program in &programs {
        measure(Path::new(program)).await?;
    }
    Ok(())
}

async fn measure(program: &Path) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let api = serve(api_server()).await?;
    let page = "a_metric{with=\"labels\"} 1\n".repeat(PAGE / 26);
    let upstream = serve(Router::new().fallback(async move || page)).await?;
    let (address, connector) = (free()?, certificate(folder.path())?);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a", "users": [{"name": "a", "user": {}}],
        "clusters": [{"name": "a", "cluster": {"server": format!("http://{api}")}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    });
    fs::write(folder.path().join("kubeconfig"), kubeconfig.to_string())?;
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.path().join(name).display());
    let child = Command::new(program)
        .arg(format!("--secure-listen-address={address}"))
        .arg(format!("--upstream=http://{upstream}/"))
        .arg(file("kubeconfig", "kubeconfig"))
        .arg(file("tls-cert-file", "tls.crt"))
        .arg(file("tls-private-key-file", "tls.key"))
        .stderr(Stdio::null())
        .spawn()?;
    let program_size = fs::metadata(program)?.len();
    let child = Program(child);
    let mut stream = connect(&connector, address).await?;
    drop(stream);
    tokio::time::sleep(Duration::from_secs(3)).await; // At rest is when nothing has happened for a while.
    let rest = resident(&child)?;

    stream = connect(&connector, address).await?;
    scrape(&mut stream).await?;
    let (before, mut times) = (processor(&child)?, Vec::with_capacity(SCRAPES));
    for _ in 0..SCRAPES {
        let since = Instant::now();
        scrape(&mut stream).await?;
        times.push(since.elapsed());
    }
    let scrapes = processor(&child)?.saturating_sub(before);
    times.sort();

    let before = processor(&child)?;
    for _ in 0..CONNECTIONS {
        scrape(&mut connect(&connector, address).await?).await?;
    }
    let connections = processor(&child)?.saturating_sub(before) * u32::try_from(1_000 / CONNECTIONS)?;
    println!(
        "| {} | {:.1} MiB | {:.1} MiB | {:.1} MiB | {scrapes:.2?} | {:.2?} | {:.2?} | {connections:.2?} |",
        program.file_name().unwrap_or_default().display(),
        mebibytes(program_size),
        mebibytes(rest),
        mebibytes(resident(&child)?),
        times[SCRAPES / 2],
        times[SCRAPES * 99 / 100],
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "for one digit behind the point")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A stub of the API server that accepts any token and allows everything.
fn api_server() -> Router {
    let answer = async |body: Bytes| {
        let mut review: Value = serde_json::from_slice(&body).unwrap_or_default();
        let user = json!({"username": "prometheus", "groups": ["system:authenticated"]});
        review["status"] = json!({"authenticated": true, "user": user, "allowed": true});
        (http::StatusCode::CREATED, [("content-type", "application/json")], review.to_string())
    };
    Router::new().fallback(post(answer))
}

async fn serve(routes: Router) -> Result<SocketAddr, Failure> {
    let limits = Limits { headers: 100, ..Limits::default() };
    let listener = Listener::bind("127.0.0.1:0".parse()?).await?.limits(limits);
    let address = listener.local_addr();
    tokio::spawn(listener.serve(routes, std::future::pending()));
    Ok(address)
}

fn free() -> Result<SocketAddr, Failure> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Writes a self-signed certificate and its key. Returns a client that trusts it.
fn certificate(folder: &Path) -> Result<TlsConnector, Failure> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    fs::write(folder.join("tls.crt"), made.cert.pem())?;
    fs::write(folder.join("tls.key"), made.signing_key.serialize_pem())?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(made.cert.pem().as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config).into())
}

/// Connects with TLS. Retries until the program listens.
async fn connect(connector: &TlsConnector, address: SocketAddr) -> Result<TlsStream<TcpStream>, Failure> {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(connector.connect(ServerName::try_from("localhost")?, stream).await?);
            }
            Err(error) if Instant::now() > until => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn scrape(stream: &mut TlsStream<TcpStream>) -> Result<(), Failure> {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer token\r\n\r\n").await?;
    let mut answer = Vec::with_capacity(PAGE + 1024);
    // The answer has a content length, or ends with an empty chunk: that differs between the programs.
    loop {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err("the connection has ended".into());
        }
        let Some(end) = answer.windows(4).position(|it| it == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        if !head.starts_with("http/1.1 200 ") {
            return Err(head.into());
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        let is_whole = match length {
            Some(length) => answer.len() >= end + 4 + length,
            None => answer.ends_with(b"\r\n0\r\n\r\n"),
        };
        if is_whole {
            return Ok(());
        }
    }
}

fn resident(program: &Program) -> Result<u64, Failure> {
    let status = fs::read_to_string(format!("/proc/{}/status", program.0.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// CPU time of its threads, from the scheduler's statistics: clock ticks would be too coarse.
fn processor(program: &Program) -> Result<Duration, Failure> {
    let mut nanoseconds = 0;
    for task in fs::read_dir(format!("/proc/{}/task", program.0.id()))? {
        let account = fs::read_to_string(task?.path().join("schedstat"))?;
        nanoseconds += account.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}
