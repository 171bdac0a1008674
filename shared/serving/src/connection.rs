//! The life of one connection: handshake, requests, end.

use std::{net::SocketAddr, pin::Pin, sync::Arc, task::Poll, time::Duration};

use futures::{
    FutureExt as _,
    future::{BoxFuture, ready},
};
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode, Version,
    header::{CONNECTION, RETRY_AFTER},
};
use http_body::Body as HttpBody;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service, ServiceExt};

use crate::{
    Body, Dropped, Http2, Limits, Observer,
    activity::{Activity, Exchange, Step},
    budget::{Budget, NoShare},
    identity::Identity,
    response::ResponseBody,
    tls::Configs,
    transport::Watched,
};

/// What a request costs beside its head: its task, and its part of the state of its connection.
const REQUEST: usize = 16 * 1024;
/// What a header field costs beside its text.
const FIELD: usize = 64;
/// Answers to pings of HTTP/2 have this much time.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// The least window of an HTTP/2 connection, which is also its default.
const LEAST_WINDOW: u32 = 65_535;

/// The client of a connection: an extension of each request.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The address of the client.
    pub address: SocketAddr,
    /// The certificate of the client, if it sent one and there are [`crate::ClientAuthorities`]. It was checked for this request.
    pub certificate: Option<CertificateDer<'static>>,
}

/// Settings that all connections of a listener share.
pub(crate) struct Rules {
    pub(crate) limits: Limits,
    pub(crate) http2: Option<Http2>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) observer: Arc<dyn Observer>,
    /// Cancelled at the stop: a connection ends when no request is in progress.
    pub(crate) drain: CancellationToken,
}

/// The client of a connection, before a request.
#[derive(Clone)]
struct Client {
    address: SocketAddr,
    identity: Option<Arc<Identity>>,
}

/// Serves until the connection ends, by itself or by a limit.
pub(crate) async fn serve<S, B>(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Arc<Configs>>,
    activity: Arc<Activity>,
    rules: Arc<Rules>,
    service: S,
) where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
    B: HttpBody<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let Some(tls) = tls else {
        let client = Client { address, identity: None };
        return requests(stream, client, false, activity, rules, service).await;
    };
    let handshake = tokio::time::timeout(rules.limits.handshake, TlsAcceptor::from(tls.current()).accept(stream));
    let stream = tokio::select! {
        () = activity.cut.cancelled() => return,
        result = handshake => match result {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%address, %error, "TLS handshake failed");
                return rules.observer.dropped(Dropped::Handshake);
            }
            Err(_) => return rules.observer.dropped(Dropped::Handshake),
        },
    };
    let session = stream.get_ref().1;
    let identity = session.peer_certificates().zip(tls.client_authorities());
    let identity = identity.and_then(|(chain, authorities)| Identity::new(chain, authorities)).map(Arc::new);
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    requests(stream, Client { address, identity }, is_http2, activity, rules, service).await;
}

async fn requests<T, S, B>(
    transport: T,
    client: Client,
    is_http2: bool,
    activity: Arc<Activity>,
    rules: Arc<Rules>,
    service: S,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
    B: HttpBody<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    activity.connected();
    let io = TokioIo::new(Watched::new(transport, activity.clone(), !is_http2));
    let limits = &rules.limits;
    let answering = {
        let (activity, rules) = (activity.clone(), rules.clone());
        service_fn(move |request| begin(request, client.clone(), &activity, &rules, &service))
    };
    if is_http2 {
        let settings = rules.http2.clone().unwrap_or_default();
        // The library keeps what fits into the windows, and nothing counts it.
        let window = u32::try_from(limits.body_size).map_or(u32::MAX, |size| size.max(LEAST_WINDOW));
        let window = settings.stream_window.min(window);
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(settings.max_concurrent_streams)
            .initial_stream_window_size(window)
            .initial_connection_window_size(window.max(LEAST_WINDOW))
            .max_send_buf_size(64 * 1024)
            .max_pending_accept_reset_streams(20)
            .max_local_error_reset_streams(64)
            .keep_alive_interval(settings.ping)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_header_list_size(u32::try_from(limits.header_size).unwrap_or(u32::MAX))
            .serve_connection(io, answering);
        drive(connection, http2::Connection::graceful_shutdown, &activity, &rules).await;
    } else {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // `activity` has this limit: hyper's would also end connections between two requests.
            .header_read_timeout(None)
            .max_buf_size(limits.header_size.max(8192))
            .max_headers(limits.headers)
            .half_close(false)
            .serve_connection(io, answering);
        drive(connection, http1::Connection::graceful_shutdown, &activity, &rules).await;
    }
}

/// Drives a connection to its end. Shuts it down at the drain, and drops it when a deadline has passed.
async fn drive<C>(connection: C, shutdown: fn(Pin<&mut C>), activity: &Activity, rules: &Rules)
where
    C: Future<Output = Result<(), hyper::Error>>,
{
    let mut connection = std::pin::pin!(connection);
    let mut alarm = std::pin::pin!(tokio::time::sleep_until(Instant::now()));
    let mut draining = false;
    loop {
        // Polled after the connection, so the deadline includes what the connection has just done.
        let expired = std::future::poll_fn(|context| {
            if rules.http2.as_ref().is_some_and(|http2| activity.given_up() > http2.given_up) {
                return Poll::Ready(Dropped::GaveUp);
            }
            let Some((at, why)) = activity.deadline(&rules.limits, context) else { return Poll::Pending };
            if alarm.deadline() != at {
                alarm.as_mut().reset(at);
            }
            alarm.as_mut().poll(context).map(|()| why)
        });
        tokio::select! {
            biased;
            () = activity.cut.cancelled() => return,
            () = rules.drain.cancelled(), if !draining => {
                draining = true;
                // hyper would close a connection without any input. Keep it for its first request: `answer` then closes it.
                if !activity.drain() {
                    shutdown(connection.as_mut());
                }
            }
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            why = expired => return rules.observer.dropped(why),
        }
    }
}

/// The result of [`begin`].
type Answer<B> = Result<Response<ResponseBody<B>>, Failed>;

/// The handler failed: the connection ends without an answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failed(BoxError);

/// Begins to answer. The result is boxed because a client may send many requests at once: a task of HTTP/2 for a request that the
/// server refuses must be small.
fn begin<S, B>(
    request: Request<Incoming>,
    client: Client,
    activity: &Arc<Activity>,
    rules: &Arc<Rules>,
    service: &S,
) -> BoxFuture<'static, Answer<B>>
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
    B: HttpBody<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let (exchange, is_http1) = (activity.begin(), request.version() <= Version::HTTP_11);
    let refusal = if request.body().size_hint().lower() > rules.limits.body_size as u64 {
        Some(StatusCode::PAYLOAD_TOO_LARGE)
    } else if client.identity.as_ref().is_some_and(|identity| !identity.is_valid()) {
        Some(StatusCode::UNAUTHORIZED)
    } else {
        match rules.budget.begin(head_cost(&request), &exchange) {
            Ok(()) => None,
            Err(NoShare::TooMuch) => Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
            Err(NoShare::Taken) => Some(StatusCode::SERVICE_UNAVAILABLE),
        }
    };
    match refusal {
        Some(status) => ready(Ok(refuse(status, exchange, is_http1))).boxed(),
        None => answer(request, client, exchange, rules.clone(), service.clone()).boxed(),
    }
}

async fn answer<S, B>(
    request: Request<Incoming>,
    client: Client,
    exchange: Arc<Exchange>,
    rules: Arc<Rules>,
    service: S,
) -> Answer<B>
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>>,
    B: HttpBody,
{
    let Rules { limits, budget, .. } = &*rules;
    let is_http1 = request.version() <= Version::HTTP_11;
    if exchange.share() == 0 {
        // No work has begun, so the connection can give way to another one.
        exchange.enter(Step::Receiving);
        if budget.clone().take(head_cost(&request), exchange.clone()).await.is_err() {
            return Ok(refuse(StatusCode::SERVICE_UNAVAILABLE, exchange, is_http1));
        }
        exchange.enter(Step::Working);
    }
    let body = |body| Body::new(body, limits.body_size, limits.body_read, budget.clone(), exchange.clone());
    let mut request = request.map(body);
    let certificate = client.identity.map(|identity| identity.certificate().clone());
    request.extensions_mut().insert(Peer { address: client.address, certificate });
    let Ok(answer) = tokio::time::timeout(limits.handle, service.oneshot(request)).await else {
        return Ok(refuse(StatusCode::SERVICE_UNAVAILABLE, exchange, is_http1));
    };
    let mut response = match answer {
        Ok(response) => response,
        Err(error) => return Err(Failed(error.into())),
    };
    if let Some(status) = exchange.answered() {
        return Ok(refuse(status, exchange, is_http1));
    }
    if is_http1 && rules.drain.is_cancelled() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(|body| ResponseBody::new(body, exchange)))
}

/// The server's own answer. It ends a connection of HTTP/1.
fn refuse<B>(status: StatusCode, exchange: Arc<Exchange>, is_http1: bool) -> Response<ResponseBody<B>> {
    exchange.answered();
    let mut response = Response::new(ResponseBody::empty(exchange));
    *response.status_mut() = status;
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if is_http1 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Bytes of memory that a request needs before its body.
fn head_cost<B>(request: &Request<B>) -> usize {
    let fields = |headers: &HeaderMap| {
        headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD).sum::<usize>()
    };
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    REQUEST + target + fields(request.headers())
}

#[cfg(test)]
mod tests;
