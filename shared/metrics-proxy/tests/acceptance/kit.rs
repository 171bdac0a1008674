//! Test kit: a proxy, its upstream, its reviewer, and clients.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use clap::Parser as _;
use futures::{FutureExt as _, future::BoxFuture};
use metrics_proxy::{
    Decision, Flags, Program, ReviewError, Reviewer,
    policy::{Attributes, Target, User},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// Longest wait for an expected event, on a busy machine, too.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for a future that must complete.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("it did not happen within a minute")
}

/// A reviewer with two tokens: `ann` may read `/metrics`, paths below `/api`, and services of namespace `a`; `bob` nothing.
#[derive(Default)]
pub(crate) struct Ask {
    pub(crate) away: AtomicBool,
    pub(crate) tokens: AtomicUsize,
    pub(crate) accesses: AtomicUsize,
}

impl Reviewer for Ask {
    fn token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>, ReviewError>> {
        self.tokens.fetch_add(1, Ordering::Relaxed);
        let groups = ["a", "b"].map(str::to_owned).to_vec();
        let user = ["ann", "bob"].contains(&token).then(|| User { name: token.to_owned(), groups, ..User::default() });
        let away = self.away.load(Ordering::Relaxed);
        async move { if away { Err(ReviewError("away".to_owned())) } else { Ok(user) } }.boxed()
    }

    fn access<'a>(&'a self, user: &'a User, to: &'a Attributes) -> BoxFuture<'a, Result<Decision, ReviewError>> {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        let may = match &to.target {
            Target::Path(path) => path == "/metrics" || path.starts_with("/api/"),
            Target::Resource { namespace, resource, .. } => namespace == "a" && resource == "services",
        };
        let allowed = may && user.name == "ann" && to.verb == "get";
        let away = self.away.load(Ordering::Relaxed);
        let decision = Decision { allowed, reason: String::new() };
        async move { if away { Err(ReviewError("away".to_owned())) } else { Ok(decision) } }.boxed()
    }
}

pub(crate) const HELLO: &str = "HTTP/1.1 200 OK\r\nserver: secret/1.0\r\ncontent-length: 5\r\n\r\nhello";

/// An upstream that answers every head with the same text, and records the heads, byte by byte.
pub(crate) struct Behind {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Behind {
    pub(crate) async fn new(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, seen) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let heads = seen.clone();
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let heads = heads.clone();
                tokio::spawn(async move {
                    let mut read = Vec::new();
                    while stream.read_buf(&mut read).await.unwrap_or(0) > 0 {
                        while let Some(end) = read.windows(4).position(|it| it == b"\r\n\r\n") {
                            let head = read.drain(..end + 4).collect::<Vec<_>>();
                            heads.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
                            if stream.write_all(answer.as_bytes()).await.is_err() {
                                return;
                            }
                        }
                    }
                    if !read.is_empty() {
                        heads.lock().unwrap().push(format!("rest: {}", String::from_utf8_lossy(&read)));
                    }
                });
            }
        });
        Self { address, seen, task }
    }

    /// Returns the heads since the last call.
    pub(crate) fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    pub(crate) fn end(&self) {
        self.task.abort();
    }
}

/// A proxy that serves, without TLS unless the flags give a secure address.
pub(crate) struct Running {
    pub(crate) plain: Option<SocketAddr>,
    pub(crate) secure: Option<SocketAddr>,
    pub(crate) reload: Box<dyn Fn() + Send>,
    pub(crate) stop: CancellationToken,
    task: JoinHandle<()>,
}

pub(crate) fn flags(upstream: SocketAddr, more: &[&str]) -> Flags {
    let upstream = format!("--upstream=http://{upstream}/");
    let usual = ["metrics-proxy", "--insecure-listen-address=127.0.0.1:0"];
    // clap refuses a repeated flag, so an upstream in `more` replaces the usual one.
    let given = more.iter().any(|flag| flag.starts_with("--upstream="));
    let upstream = if given { None } else { Some(upstream.as_str()) };
    Flags::try_parse_from(usual.into_iter().chain(upstream).chain(more.iter().copied())).unwrap()
}

impl Running {
    pub(crate) async fn new(behind: &Behind, ask: &Arc<Ask>, more: &[&str]) -> Self {
        let program = Program::with_reviewer(&flags(behind.address, more), ask.clone()).await.unwrap();
        Self::run(program)
    }

    pub(crate) fn run(program: Program) -> Self {
        let stop = CancellationToken::new();
        let (plain, secure) = (program.insecure_address(), program.secure_address());
        let reload = Box::new(program.reloader());
        Self { plain, secure, reload, task: tokio::spawn(program.run(stop.clone())), stop }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        soon(TcpStream::connect(self.plain.unwrap())).await.unwrap()
    }

    /// Requests a path with a token, and returns the status and the body.
    pub(crate) async fn get(&self, path: &str, token: Option<&str>) -> (u16, String) {
        let answer = tell(&mut self.connect().await, &get(path, token)).await;
        (status(&answer), body(&answer))
    }

    pub(crate) async fn ended(self) {
        soon(self.task).await.unwrap();
    }
}

/// An upstream, a reviewer and a proxy with the usual settings.
pub(crate) async fn usual(more: &[&str]) -> (Behind, Arc<Ask>, Running) {
    let (behind, ask) = (Behind::new(HELLO).await, Arc::new(Ask::default()));
    let proxy = Running::new(&behind, &ask, more).await;
    (behind, ask, proxy)
}

/// The text of a request that ends its connection.
pub(crate) fn get(path: &str, token: Option<&str>) -> String {
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    format!("GET {path} HTTP/1.1\r\nhost: a\r\n{token}connection: close\r\n\r\n")
}

/// Sends text and reads until the connection ends, as it must.
pub(crate) async fn tell(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), text: impl AsRef<[u8]>) -> String {
    // The proxy may answer and close before everything is sent, so a failed write is no failure.
    drop(stream.write_all(text.as_ref()).await);
    rest(stream).await
}

/// Reads until the connection ends, as it must. A reset counts as an end.
pub(crate) async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut answer = Vec::new();
    while soon(stream.read_buf(&mut answer)).await.unwrap_or(0) > 0 {}
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status of an answer; 0 if there was none.
pub(crate) fn status(answer: &str) -> u16 {
    answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).unwrap_or(0)
}

pub(crate) fn body(answer: &str) -> String {
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}
