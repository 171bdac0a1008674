//! The server as a whole: opens the database, listens on both ports, serves, and stops in order.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use jiff::SignedDuration;
use parking_lot::Mutex;
use serving::{Certificates, Drained, Limits, Listener, Tls};
use tokio_util::sync::CancellationToken;

use crate::{
    admin, api,
    app::{App, has_folder},
    booking::RouteKey,
    faults::Faults,
    file::OpenError,
    guard::Answering,
    ledger::{Decision, Policy},
    metrics::Metrics,
    recent::Recent,
    store::Store,
    tokens::{Access, Guard},
};

/// How long running requests may go on after the stop.
const DRAIN: Duration = Duration::from_secs(10);

/// Bytes of memory for the requests of each port that are in flight. The chart gives the server 64 MiB.
const REQUESTS: usize = 4 * 1024 * 1024;
/// Open connections of each listener. Their buffers are most of the memory when clients send slowly.
const CONNECTIONS: usize = 256;

/// The options of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the API listens.
    pub listen: SocketAddr,
    /// Where probes, metrics and the status page listen.
    pub admin_listen: SocketAddr,
    /// The database file, created if it does not exist.
    pub database: PathBuf,
    /// Which clients may use the server.
    pub access: Access,
    /// Routes with a given number of seats.
    pub routes: Vec<Route>,
    /// Seats of each other route; `None` refuses them.
    pub default_seats: Option<u32>,
    /// How long a booking stays pending; zero confirms it at once.
    pub confirm_delay: Duration,
    /// Whether the second port accepts faults and actions of the airline.
    pub fault_injection: bool,
    /// Files of the certificate and the key of the API; `None` serves plain HTTP.
    pub tls: Option<(PathBuf, PathBuf)>,
}

impl Options {
    /// Free ports on loopback, no tokens, and fault injection.
    pub fn for_tests(database: impl Into<PathBuf>) -> Self {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            listen: anywhere,
            admin_listen: anywhere,
            database: database.into(),
            access: Access::Public,
            routes: Vec::new(),
            default_seats: Some(100),
            confirm_delay: Duration::ZERO,
            fault_injection: true,
            tls: None,
        }
    }
}

/// A route and its number of seats on each day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Departure city.
    pub from: String,
    /// Destination city.
    pub to: String,
    /// Number of seats.
    pub seats: u32,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The database cannot be opened.
    #[error(transparent)]
    Database(#[from] OpenError),
    /// The folder of the database does not exist.
    #[error("the folder of the database {} does not exist: make it, or mount a volume there", .0.display())]
    NoFolder(PathBuf),
    /// The server cannot listen at an address.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        error: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("cannot use the certificate: {0}")]
    Certificate(#[from] serving::CertificateError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] serving::TlsError),
    /// The seats of the listed routes cannot be stored.
    #[error("cannot set the seats of the listed routes: {0}")]
    Routes(String),
    /// The metrics cannot be registered, which is a bug.
    #[error("cannot set up metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// A server that listens. It serves only within [`run`](Self::run).
#[must_use = "the server answers no request before `run`"]
pub struct BookingServer {
    app: Arc<App>,
    api: Listener,
    admin: Listener,
    writer: JoinHandle<()>,
    stop: CancellationToken,
    is_tls: bool,
}

impl BookingServer {
    /// Opens the database and both ports.
    pub async fn bind(options: Options) -> Result<Self, StartError> {
        if !has_folder(&options.database) {
            return Err(StartError::NoFolder(options.database));
        }
        let (api, admin) = (listen(options.listen).await?, listen(options.admin_listen).await?);
        let is_tls = options.tls.is_some();
        let api = match &options.tls {
            Some((certificate, key)) => api.tls(Tls::new(Certificates::from_files(certificate, key)?))?,
            None => api,
        };
        let metrics = Metrics::new()?;
        let (store, writer) = Store::open(&options.database, metrics.busy.clone())?;
        set_routes(&store, options.routes).await?;
        let confirm_delay = SignedDuration::try_from(options.confirm_delay).unwrap_or(SignedDuration::MAX);
        let app = App {
            writer_lives: store.writer_lives(),
            store: Arc::new(store),
            guard: Guard::new(options.access),
            policy: Policy { default_seats: options.default_seats, confirm_delay },
            metrics,
            recent: Recent::default(),
            faults: options.fault_injection.then(|| Mutex::new(Faults::default())),
            started: Instant::now(),
            stopping: CancellationToken::new(),
        };
        Ok(Self { app: Arc::new(app), api, admin, writer, stop: CancellationToken::new(), is_tls })
    }

    /// Where the API listens.
    pub fn address(&self) -> SocketAddr {
        self.api.local_addr()
    }

    /// Where probes, metrics and the status page listen.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.local_addr()
    }

    /// The address of the API as clients write it.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.address())
    }

    /// Cancelling this token stops the server.
    pub fn stop_handle(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Serves until the stop. Then finishes running requests, and writes the write-ahead log back into the database.
    pub async fn run(self) {
        let Self { app, api, admin, writer, stop, is_tls: _ } = self;
        tracing::info!(api = %api.local_addr(), admin = %admin.local_addr(), "Listening");
        let limits = Limits {
            header_size: 8 * 1024,
            body_size: usize::MAX,
            memory: REQUESTS,
            connections: CONNECTIONS,
            drain: DRAIN,
            ..Limits::default()
        };
        let admin_limits = Limits { drain: Duration::from_secs(1), ..limits.clone() };
        let served = CancellationToken::new();
        let admin = tokio::spawn({
            let (routes, served) = (admin::routes(Arc::clone(&app)), served.clone());
            async move { admin.limits(admin_limits).serve(Answering(routes), served.cancelled_owned()).await }
        });
        let stopping = app.stopping.clone();
        let until = async move {
            stop.cancelled().await;
            tracing::info!("Stopping: waiting for running requests");
            stopping.cancel();
        };
        let Drained { cut } = api.limits(limits).serve(Answering(api::routes(Arc::clone(&app))), until).await;
        if cut > 0 {
            tracing::warn!(connections = cut, "Connections with unfinished requests were cut");
        }
        served.cancel();
        drop(admin.await);
        app.store.close();
        // Wait for the writer: it first finishes the jobs in its queue.
        drop(tokio::task::spawn_blocking(move || writer.join()).await);
        tracing::info!("Stopped");
    }
}

async fn listen(address: SocketAddr) -> Result<Listener, StartError> {
    Listener::bind(address).await.map_err(|error| StartError::Listen { address, error })
}

/// Sets the seats of the listed routes. A route with a taken seat beyond the new number keeps its old number.
async fn set_routes(store: &Store, routes: Vec<Route>) -> Result<(), StartError> {
    let full = store
        .write(move |books| {
            let mut full = Vec::new();
            for route in routes {
                if !books.set_seats(&RouteKey::new(&route.from, &route.to, None), route.seats)? {
                    full.push(route);
                }
            }
            Ok(Decision { answer: full, changes: Vec::new() })
        })
        .await
        .map_err(|problem| StartError::Routes(problem.detail))?;
    for Route { from, to, seats } in full {
        tracing::warn!(from, to, seats, "A seat beyond the listed number is taken: the route keeps its seats");
    }
    Ok(())
}
