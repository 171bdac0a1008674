//! Accepts connections until the stop, and then waits for the last ones.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use futures::FutureExt as _;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::{BoxError, Service};

use crate::{
    Body, Dropped, Http2, Limits, Observer, Tls, TlsError,
    budget::Budget,
    connection::{self, Rules},
    connections::Connections,
    observer::NoObserver,
    socket,
    tls::Configs,
};

/// A listening socket with its settings. It serves only within [`serve`](Self::serve).
#[must_use = "the listener answers no request before `serve`"]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<Configs>,
    limits: Limits,
    http2: Option<Http2>,
    observer: Arc<dyn Observer>,
}

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still open at the deadline, and were cut.
    pub cut: usize,
}

impl Listener {
    /// Listens at an address. Port 0 means any free port. `[::]` means all addresses of both families, or those of IPv4 where
    /// there is no IPv6.
    #[expect(clippy::unused_async, reason = "a socket can only be made within a runtime")]
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::new(socket::listen(address)?)
    }

    /// Takes over a socket that already listens.
    pub fn new(socket: TcpListener) -> io::Result<Self> {
        let address = socket.local_addr()?;
        let (limits, observer) = (Limits::default(), Arc::new(NoObserver));
        Ok(Self { socket, address, tls: None, limits, http2: None, observer })
    }

    /// The address of the socket.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Speaks TLS only, and over it HTTP/1.1 only. Fails if no version of TLS is left.
    pub fn tls(self, tls: Tls) -> Result<Self, TlsError> {
        Ok(Self { tls: Some(tls.configs(false)?), http2: None, ..self })
    }

    /// Speaks TLS only, and over it HTTP/2 with clients that offer it.
    pub fn tls_with_http2(self, tls: Tls, http2: Http2) -> Result<Self, TlsError> {
        Ok(Self { tls: Some(tls.configs(true)?), http2: Some(http2), ..self })
    }

    /// Sets the limits of clients.
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the receiver of events.
    pub fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// Serves until the stop. Then accepts no more connections, finishes running requests, and closes their connections. Cuts
    /// what is left after [`Limits::drain`].
    pub async fn serve<S, B>(self, service: S, stop: impl Future<Output = ()>) -> Drained
    where
        S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
        B: HttpBody<Data: Send, Error: Into<BoxError>> + Send + 'static,
    {
        let Self { socket, address: _, tls, limits, http2, observer } = self;
        let connections = Connections::new(limits.connections, observer.clone());
        let (drain, tasks) = (CancellationToken::new(), TaskTracker::new());
        let deadline = limits.drain;
        let budget = Budget::new(&limits, connections.clone());
        let rules = Arc::new(Rules { limits, http2, budget, observer: observer.clone(), drain: drain.clone() });
        let tls = tls.map(Arc::new);
        let begin = |stream: TcpStream, address: SocketAddr| {
            let Some(place) = connections.admit(address.into()) else { return };
            // Without Nagle's algorithm, a small answer goes out at once.
            drop(stream.set_nodelay(true));
            let (tls, rules, service) = (tls.clone(), rules.clone(), service.clone());
            tasks.spawn(async move {
                connection::serve(stream, address, tls, place.activity.clone(), rules, service).await;
                drop(place);
            });
        };
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = socket.accept() => match accepted {
                    Ok((stream, address)) => begin(stream, address),
                    Err(error) => pause_after(&error).await,
                },
            }
        }
        // Accept what was in the queue at the stop: those clients are already connected from their own point of view.
        while let Some(Ok((stream, address))) = socket.accept().now_or_never() {
            begin(stream, address);
        }
        drop(socket);
        drain.cancel();
        tasks.close();
        if tokio::time::timeout(deadline, tasks.wait()).await.is_ok() {
            return Drained { cut: 0 };
        }
        let cut = connections.cut();
        (0..cut).for_each(|_| observer.dropped(Dropped::Drain));
        tasks.wait().await;
        Drained { cut }
    }
}

/// Ignores a connection that failed before it was accepted. After other errors, such as no free file descriptors, pauses:
/// otherwise the loop would spin.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(%error, "could not accept a connection; trying again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
