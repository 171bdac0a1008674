//! A proxy in front of a registry, and contents to push.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use images::Layer;
use images::reference::Repository;
use parking_lot::Mutex;
use registry::Registry;
use registry_client::{Client, Credentials, Options, PlainHttp, Retry};
use serde_json::json;

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// What happens to a request on its way.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// The registry answers.
    Pass,
    /// This answer comes instead. The registry does not see the request.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// The connection breaks before the registry sees the request.
    BreakBefore,
    /// The registry performs the request, and the connection breaks before its answer.
    BreakAfter,
}

impl Fate {
    pub(crate) fn status(status: u16) -> Self {
        Self::Answer(status, Vec::new(), String::new())
    }
}

/// A request that came to the proxy.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    /// The header `Authorization`.
    pub(crate) authorization: Option<String>,
    /// The length of the body in bytes.
    pub(crate) sent: usize,
    /// The status of the registry's answer.
    pub(crate) status: Option<u16>,
}

type Rule = Box<dyn FnMut(usize, &Seen) -> Fate + Send>;

/// A proxy in front of a registry. Ends with the runtime of its test.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    rule: Arc<Mutex<Rule>>,
}

impl Proxy {
    pub(crate) async fn before(registry: &Registry) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pass: Rule = Box::new(|_, _| Fate::Pass);
        let (seen, rule) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(pass)));
        let proxy = Self { address: listener.local_addr().unwrap(), seen, rule };
        let (seen, rule, upstream) = (proxy.seen.clone(), proxy.rule.clone(), registry.address);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (seen, rule) = (seen.clone(), rule.clone());
                let serve =
                    hyper::service::service_fn(move |request| forward(request, upstream, seen.clone(), rule.clone()));
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(connection), serve);
                tokio::spawn(connection);
            }
        });
        proxy
    }

    /// Decides about each further request, by its number since this call and what it is.
    pub(crate) fn decide(&self, rule: impl FnMut(usize, &Seen) -> Fate + Send + 'static) {
        self.seen.lock().clear();
        *self.rule.lock() = Box::new(rule);
    }

    /// The requests since the last call of this or of [`decide`](Self::decide).
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock())
    }

    pub(crate) fn repository(&self, path: &str) -> Repository {
        repository(self.address, path)
    }

    pub(crate) fn client(&self, credentials: Credentials) -> Client {
        client(self.address, credentials)
    }
}

/// Breaking a connection is an error of the service, which hyper answers by closing.
#[derive(Debug)]
struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken on purpose")
    }
}

impl std::error::Error for Broken {}

async fn forward(
    request: Request<Incoming>,
    upstream: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    rule: Arc<Mutex<Rule>>,
) -> Result<Response<Full<Bytes>>, Broken> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
    let authorization = parts.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let sent = body.len();
    let this = Seen { method: parts.method.clone(), uri: parts.uri.clone(), authorization, sent, status: None };
    let number = {
        let mut seen = seen.lock();
        seen.push(this.clone());
        seen.len() - 1
    };
    let fate = (rule.lock())(number, &this);
    let answer = match fate {
        Fate::BreakBefore => return Err(Broken),
        Fate::Answer(status, headers, text) => {
            let answer =
                headers.iter().fold(Response::builder().status(status), |it, (key, value)| it.header(*key, value));
            return Ok(answer.body(text.into()).unwrap());
        }
        Fate::Pass | Fate::BreakAfter => ask(upstream, Request::from_parts(parts, Full::new(body))).await.unwrap(),
    };
    if matches!(fate, Fate::BreakAfter) {
        return Err(Broken);
    }
    if let Some(seen) = seen.lock().get_mut(number) {
        seen.status = Some(answer.status().as_u16());
    }
    Ok(answer)
}

async fn ask(upstream: SocketAddr, request: Request<Full<Bytes>>) -> hyper::Result<Response<Full<Bytes>>> {
    let connection = tokio::net::TcpStream::connect(upstream).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await?;
    tokio::spawn(connection);
    let (parts, body) = sender.send_request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Response::from_parts(parts, Full::new(body)))
}

pub(crate) fn repository(address: SocketAddr, path: &str) -> Repository {
    Repository::parse(&format!("{address}/{path}")).unwrap()
}

pub(crate) fn client(address: SocketAddr, credentials: Credentials) -> Client {
    Client::new(&address.to_string(), options(credentials)).unwrap()
}

/// Options with short pauses.
pub(crate) fn options(credentials: Credentials) -> Options {
    let retry = Retry { attempts: 4, first: Duration::from_millis(1), longest: Duration::from_millis(4) };
    Options { credentials, plain_http: PlainHttp::Loopback, retry, ..Options::default() }
}

/// A Docker configuration in which this user may use the registry.
pub(crate) fn login(folder: &Path, address: SocketAddr, user: &str, password: &str) -> Credentials {
    use base64::Engine as _;
    let auth = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    let file = folder.join(format!("{user}-{password}.json"));
    std::fs::write(&file, json!({"auths": {address.to_string(): {"auth": auth}}}).to_string()).unwrap();
    Credentials::File(file)
}

/// A registry, a proxy before it, a client without credentials that goes through the proxy, and a repository for it.
pub(crate) async fn anonymous() -> (Registry, Proxy, Client, Repository) {
    let registry = Registry::start().unwrap();
    let proxy = Proxy::before(&registry).await;
    let (client, repository) = (proxy.client(Credentials::Anonymous), proxy.repository("app"));
    (registry, proxy, client, repository)
}

/// An image of one file, with an index above it.
pub(crate) struct Content {
    pub(crate) blobs: Vec<Bytes>,
    pub(crate) manifest: Bytes,
    pub(crate) index: Bytes,
}

/// An image whose layer has at least `length` bytes, which no compression makes smaller.
pub(crate) fn content(seed: u64, length: usize) -> Content {
    let mut random = fastrand::Rng::with_seed(seed);
    let file: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
    let mut files = Layer::new();
    files.file("/content", file, 0o644);
    let image = images::ImageSpec { files, ..images::ImageSpec::default() }.build().unwrap();
    let manifest = Bytes::from(image.manifest.clone());
    let platform = json!({"os": "linux", "architecture": "amd64"});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [{"mediaType": MANIFEST, "digest": image.digest(), "size": manifest.len(), "platform": platform}],
    });
    Content { blobs: vec![image.layer.into(), image.config.into()], manifest, index: index.to_string().into() }
}
