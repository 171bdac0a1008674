//! An API server with one lease, and a network that delays and loses requests.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep,
};

use crate::lease;

type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The server. Clones share one state.
#[derive(Clone, Default)]
pub(super) struct Server {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    version: u64,
    uids: u64,
    watches: Vec<mpsc::UnboundedSender<Bytes>>,
    served: Vec<Served>,
    /// The candidates whose work runs; they must not release the lease.
    working: Vec<String>,
    faults: Vec<String>,
}

/// A request that the server has processed.
#[derive(Debug, Clone)]
pub(super) struct Served {
    pub(super) by: String,
    pub(super) what: &'static str,
}

/// The faults of the network. Probabilities are in percent.
#[derive(Debug, Clone, Default)]
pub(super) struct Network {
    /// The usual maximum for each direction.
    pub(super) delay: Duration,
    pub(super) lost_before: u32,
    pub(super) lost_after: u32,
    /// A lost request fails at once; otherwise its answer never comes.
    pub(super) refused: bool,
    /// The server refuses watches with 403.
    pub(super) no_watches: bool,
}

/// One candidate's connection to the server.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) network: Arc<Mutex<Network>>,
    random: Arc<Mutex<fastrand::Rng>>,
}

impl Link {
    pub(super) fn new(seed: u64) -> Self {
        Self { network: Arc::default(), random: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))) }
    }

    pub(super) fn set(&self, network: Network) {
        *self.network.lock().expect("no panic") = network;
    }

    /// Loses all requests.
    pub(super) fn cut(&self) {
        self.set(Network { lost_before: 100, ..Network::default() });
    }

    pub(super) fn heal(&self) {
        self.set(Network::default());
    }

    fn chance(&self, percent: u32) -> bool {
        self.random.lock().expect("no panic").u32(..100) < percent
    }

    fn delay(&self) -> Duration {
        let most = self.network.lock().expect("no panic").delay;
        let mut random = self.random.lock().expect("no panic");
        if random.u8(..20) == 0 { most * 8 } else { most.mul_f64(random.f64()) }
    }
}

impl Server {
    pub(super) fn client(&self, name: &str, link: &Link) -> Client {
        let (server, name, link) = (self.clone(), name.to_owned(), link.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, name, link) = (server.clone(), name.clone(), link.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let (sender, reply) = oneshot::channel();
                let refused = link.network.lock().expect("no panic").refused;
                // In its own task: a request that was sent arrives even if its sender is dropped.
                tokio::spawn(async move {
                    let network = link.network.lock().expect("no panic").clone();
                    sleep(link.delay()).await;
                    if link.chance(network.lost_before) {
                        return;
                    }
                    let reply = server.serve(&name, &parts, &body, &network);
                    sleep(link.delay()).await;
                    if !link.chance(network.lost_after) {
                        drop(sender.send(reply));
                    }
                });
                match reply.await {
                    Ok(reply) => Ok(reply),
                    Err(_) if refused => Err(std::io::Error::other("connection reset").into()),
                    Err(_) => std::future::pending::<Result<Reply, tower::BoxError>>().await,
                }
            }
        });
        Client::new(service, "operators")
    }

    /// The current lease.
    pub(super) fn lease(&self) -> Option<Lease> {
        self.lock().lease.clone()
    }

    pub(super) fn holder(&self) -> String {
        self.lease().as_ref().map(lease::holder).unwrap_or_default().to_owned()
    }

    /// Returns the requests since the last call.
    pub(super) fn served(&self) -> Vec<Served> {
        std::mem::take(&mut self.lock().served)
    }

    /// The violations that the server and the tests have recorded.
    pub(super) fn faults(&self) -> Vec<String> {
        self.lock().faults.clone()
    }

    pub(super) fn complain(&self, fault: String) {
        self.lock().faults.push(fault);
    }

    pub(super) fn working(&self, identity: &str, works: bool) {
        let mut state = self.lock();
        state.working.retain(|other| other != identity);
        if works {
            state.working.push(identity.to_owned());
        }
    }

    /// Edits the lease, like `kubectl edit`.
    pub(super) fn edit(&self, edit: impl FnOnce(&mut LeaseSpec)) {
        let mut state = self.lock();
        let mut lease = state.lease.clone().expect("a lease");
        edit(lease.spec.as_mut().expect("a spec"));
        state.store(lease);
    }

    /// Annotates the lease, like `kubectl annotate`.
    pub(super) fn annotate(&self) {
        let mut state = self.lock();
        let mut lease = state.lease.clone().expect("a lease");
        let note = state.version.to_string();
        lease.metadata.annotations = Some([("note".to_owned(), note)].into());
        state.store(lease);
    }

    /// Deletes the lease, like `kubectl delete`.
    pub(super) fn delete(&self) {
        let mut state = self.lock();
        if let Some(lease) = state.lease.take() {
            state.tell("DELETED", &lease);
        }
    }

    /// Makes all watches silent for ever, as behind a load balancer that has lost their connections.
    pub(super) fn forget_watches(&self) {
        let mut state = self.lock();
        for watch in state.watches.drain(..) {
            std::mem::forget(watch);
        }
    }

    fn serve(&self, by: &str, parts: &http::request::Parts, body: &[u8], network: &Network) -> Reply {
        let watch = parts.uri.query().is_some_and(|query| query.contains("watch=true"));
        let (what, reply) = {
            let mut state = self.lock();
            match parts.method {
                Method::GET if watch && network.no_watches => ("watch", refuse(403, "leases may not be watched")),
                Method::GET if watch => ("watch", state.watch()),
                Method::GET => ("get", state.get()),
                _ => {
                    let lease = serde_json::from_slice(body).expect("a lease");
                    if parts.method == Method::POST {
                        ("create", state.create(lease))
                    } else {
                        ("replace", state.replace(lease))
                    }
                }
            }
        };
        self.lock().served.push(Served { by: by.to_owned(), what });
        reply
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }
}

impl State {
    fn get(&self) -> Reply {
        match &self.lease {
            Some(lease) => ok(lease),
            None => refuse(404, "leases.coordination.k8s.io not found"),
        }
    }

    fn create(&mut self, mut lease: Lease) -> Reply {
        if self.lease.is_some() {
            return refuse(409, "already exists");
        }
        self.uids += 1;
        lease.metadata.uid = Some(format!("uid-{}", self.uids));
        ok(self.store(lease))
    }

    fn replace(&mut self, lease: Lease) -> Reply {
        let Some(now) = &self.lease else { return refuse(409, "the uid in the precondition is another") };
        let (known, uid) = (&lease.metadata.resource_version, &lease.metadata.uid);
        if known.is_none() {
            self.faults.push("a write without resourceVersion".to_owned());
        } else if *known != now.metadata.resource_version || *uid != now.metadata.uid {
            return refuse(409, "the object has been modified");
        }
        let before = lease::holder(now).to_owned();
        if lease::is_released(&lease) && self.working.contains(&before) {
            self.faults.push(format!("{before} gave the lease back while it worked"));
        }
        if lease.spec == now.spec {
            return ok(now); // nothing changes, not even the version
        }
        ok(self.store(lease))
    }

    fn store(&mut self, mut lease: Lease) -> &Lease {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.tell("MODIFIED", &lease);
        self.lease.insert(lease)
    }

    fn watch(&mut self) -> Reply {
        let (sender, events) = mpsc::unbounded_channel();
        if let Some(lease) = &self.lease {
            drop(sender.send(event("ADDED", lease)));
        }
        self.watches.push(sender);
        let frames = futures::stream::unfold(events, async |mut events| Some((events.recv().await?, events)));
        Response::new(StreamBody::new(frames.map(|bytes| Ok(http_body::Frame::data(bytes)))).boxed_unsync())
    }

    fn tell(&mut self, kind: &str, lease: &Lease) {
        let event = event(kind, lease);
        self.watches.retain(|watch| watch.send(event.clone()).is_ok());
    }
}

fn event(kind: &str, lease: &Lease) -> Bytes {
    let mut line = json!({"type": kind, "object": lease}).to_string();
    line.push('\n');
    line.into()
}

fn ok(lease: &Lease) -> Reply {
    reply(200, &json!(lease))
}

fn refuse(code: u16, message: &str) -> Reply {
    reply(code, &json!({"kind": "Status", "status": "Failure", "code": code, "reason": "", "message": message}))
}

fn reply(code: u16, body: &Value) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *reply.status_mut() = code.try_into().expect("a status");
    reply
}
