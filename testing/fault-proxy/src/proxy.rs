//! [`FaultProxy`], the handle of a running proxy, and its listener.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use fault_plan::Plan;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{exchange, reset::Line, shared::Shared, signal::Signal, trace::Trace, upstream::Upstream};

/// A running proxy. It stops when this handle is dropped.
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    folder: TempDir,
    _ends: DropGuard,
}

impl std::fmt::Debug for FaultProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultProxy").field("address", &self.address).finish_non_exhaustive()
    }
}

impl FaultProxy {
    /// Starts a proxy on a free port of loopback.
    pub async fn start(upstream: Upstream, plan: &Plan) -> Result<Self> {
        Self::start_at(upstream, plan, SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// Starts a proxy at this address.
    ///
    /// # Errors
    ///
    /// If the address is not on loopback, because the proxy speaks plain HTTP.
    pub async fn start_at(upstream: Upstream, plan: &Plan, address: SocketAddr) -> Result<Self> {
        anyhow::ensure!(address.ip().is_loopback(), "{address} is not on loopback, and the proxy speaks plain HTTP");
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.local_addr()?;
        let ended = CancellationToken::new();
        let shared = Arc::new(Shared::new(upstream, ended.clone()));
        let proxy = Self {
            address,
            shared: shared.clone(),
            folder: tempfile::tempdir().context("no folder for the kubeconfig")?,
            _ends: ended.clone().drop_guard(),
        };
        proxy.set_plan(plan);
        proxy.write_kubeconfig("kubeconfig", &json!({}))?;
        tokio::spawn(ended.run_until_cancelled_owned(listen(listener, shared)));
        Ok(proxy)
    }

    /// The address of the proxy.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig for clients of the proxy. They act as the user of the upstream.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// The same, with a token that clients read from a file. Plans identify a client by this token. The proxy does not forward it
    /// to an upstream with credentials.
    pub fn kubeconfig_with_token(&self, file: &Path) -> Result<PathBuf> {
        self.write_kubeconfig("kubeconfig-with-token", &json!({"tokenFile": file}))
    }

    /// Replaces the plan. Its counts start from zero. What is held stays held.
    pub fn set_plan(&self, plan: &Plan) {
        self.shared.set_plan(plan);
    }

    /// The rules of the plan that were never applied.
    pub fn unused(&self) -> Vec<String> {
        self.shared.progress().unused().iter().map(ToString::to_string).collect()
    }

    /// Releases everything that is held or stalled.
    pub fn release(&self) {
        self.shared.release();
    }

    /// A copy of everything that has passed.
    pub fn trace(&self) -> Trace {
        self.shared.recorder.trace()
    }

    /// Clears the trace.
    pub fn clear(&self) {
        drop(self.drain());
    }

    /// Returns the trace and clears it, for runs whose whole trace would not fit into memory.
    pub fn drain(&self) -> Trace {
        self.shared.recorder.drain()
    }

    /// Sets the handler of the plan's signals. The request waits until the handler has finished.
    pub fn on_signal<F>(&self, handler: impl Fn(Signal) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.shared.hook.set(handler);
    }

    fn write_kubeconfig(&self, name: &str, user: &serde_json::Value) -> Result<PathBuf> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": self.url()}}],
            "users": [{"name": "proxy", "user": user}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        });
        let path = self.folder.path().join(name);
        std::fs::write(&path, config.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        // An error concerns only one connection, which the client closed before it was accepted.
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(shared.ended.clone().run_until_cancelled_owned(serve(stream, shared.clone())));
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // Without it, small frames are delayed. It fails only on a dead socket.
    drop(stream.set_nodelay(true));
    let line = Arc::new(Line::of(&stream));
    let service = service_fn(|request| exchange::answer(shared.clone(), line.clone(), request));
    // An error means that the client or the plan has ended the connection.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}
