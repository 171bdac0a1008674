//! The life of one connection: handshake, requests, end.

use std::{net::SocketAddr, pin::Pin, sync::Arc, task::Poll};

use http::{HeaderValue, Request, Response, StatusCode, Version, header::CONNECTION};
use http_body::Body as HttpBody;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::{ServerConfig, pki_types::CertificateDer};
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
    activity::{Activity, Watched},
    response::ResponseBody,
};

/// The client of a connection: an extension of each request.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The address of the client.
    pub address: SocketAddr,
    /// The checked certificate of the client, if it sent one and there are [`crate::ClientAuthorities`].
    pub certificate: Option<CertificateDer<'static>>,
}

/// Settings that all connections of a listener share.
pub(crate) struct Rules {
    pub(crate) limits: Limits,
    pub(crate) http2: Option<Http2>,
    pub(crate) observer: Arc<dyn Observer>,
    /// Cancelled at the stop: a connection ends when no request is in progress.
    pub(crate) drain: CancellationToken,
}

/// Serves until the connection ends, by itself or by a limit.
pub(crate) async fn serve<S, B>(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    activity: Arc<Activity>,
    rules: Arc<Rules>,
    service: S,
) where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
    B: HttpBody<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let Some(tls) = tls else {
        let peer = Peer { address, certificate: None };
        return requests(stream, peer, false, activity, rules, service).await;
    };
    let handshake = tokio::time::timeout(rules.limits.handshake, TlsAcceptor::from(tls).accept(stream));
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
    let certificate = session.peer_certificates().and_then(<[_]>::first).map(|it| it.clone().into_owned());
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    requests(stream, Peer { address, certificate }, is_http2, activity, rules, service).await;
}

async fn requests<T, S, B>(
    transport: T,
    peer: Peer,
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
        service_fn(move |request| answer(request, peer.clone(), activity.clone(), rules.clone(), service.clone()))
    };
    if is_http2 {
        let settings = rules.http2.clone().unwrap_or_default();
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(settings.max_concurrent_streams)
            .initial_stream_window_size(settings.stream_window)
            .initial_connection_window_size(settings.stream_window.max(64 * 1024))
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
            let Some((at, why)) = activity.deadline(&rules.limits) else { return Poll::Pending };
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

/// The result of [`answer`].
type Answer<B> = Result<Response<ResponseBody<B>>, BoxError>;

async fn answer<S, B>(
    request: Request<Incoming>,
    peer: Peer,
    activity: Arc<Activity>,
    rules: Arc<Rules>,
    service: S,
) -> Answer<B>
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>>,
    B: HttpBody,
{
    let limits = &rules.limits;
    let busy = activity.busy();
    let too_long = request.body().size_hint().lower() > limits.body_size as u64;
    if too_long {
        let mut response = Response::new(ResponseBody::empty(busy));
        *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
        return Ok(response);
    }
    let mut request = request.map(|body| Body::new(body, limits.body_size, limits.body_read));
    request.extensions_mut().insert(peer);
    let is_http1 = request.version() <= Version::HTTP_11;
    let mut response = service.oneshot(request).await.map_err(Into::into)?;
    if is_http1 && rules.drain.is_cancelled() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(|body| ResponseBody::new(body, busy)))
}
