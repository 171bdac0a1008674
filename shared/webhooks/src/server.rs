//! Serves the webhooks on every replica, with a certificate of our own or from a folder of files.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use api_errors::chain;
use axum::{
    Extension, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use certificates::{CertificateManager, Pair, Round, has_expired};
use jiff::Timestamp;
use parking_lot::Mutex;
use serving::{Certificates, Limits, Listener, Origin, Peer, Tls};
use tokio_util::sync::CancellationToken;

use crate::{
    CONVERT, Observer, Webhook, Work, answer, conversion,
    memory::Memory,
    review::{Malformed, Outcome},
    selfcheck,
    trust::Trust,
};

/// The largest body of a request in bytes, as in controller-runtime.
const BODY: usize = 7 * 1024 * 1024;
/// The most connections. The API server needs a few. Each one may hold 64 KiB of an unfinished handshake.
const CONNECTIONS: usize = 256;
/// The interval of self-checks with a certificate from a folder.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The interval of checks while the folder has no certificate yet, or the self-check fails.
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The server of all webhooks of the process.
pub struct WebhookServer {
    pub(super) listener: Listener,
    pub(super) own: Vec<Webhook>,
    pub(super) foreign: Vec<Webhook>,
    pub(super) source: Source,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) health: WebhookHealth,
}

/// Where the certificate comes from.
pub(super) enum Source {
    /// We issue the certificate, and write the `caBundle` for the API server.
    Own(Box<CertificateManager<Trust>>),
    /// A folder with `tls.crt` and `tls.key`, from cert-manager or another source, which also has to write the `caBundle`.
    Folder {
        folder: PathBuf,
        /// The name at which the API server calls us, if a flag sets it.
        name: Option<String>,
    },
}

/// Whether the webhooks answer, for readiness. Clones share one state.
#[derive(Debug, Clone)]
pub struct WebhookHealth(Arc<Mutex<Result<Option<String>, String>>>);

impl Default for WebhookHealth {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Err("the webhooks have no certificate yet".to_owned()))))
    }
}

impl WebhookHealth {
    /// `Ok` with a remark, or the problem in words on which a user can act.
    pub fn check(&self) -> Result<Option<String>, String> {
        self.0.lock().clone()
    }

    fn set(&self, state: Result<Option<String>, String>) {
        let mut stored = self.0.lock();
        if *stored != state {
            match &state {
                Ok(None) => tracing::info!("Webhooks answer"),
                Ok(Some(remark)) => tracing::warn!(remark, "Webhooks answer"),
                Err(why) => tracing::warn!(why, "Webhooks do not answer"),
            }
            *stored = state;
        }
    }
}

impl WebhookServer {
    /// Serves until `stop`, then lets running requests finish.
    pub async fn run(self, stop: CancellationToken) {
        let Self { listener, own, foreign, source, observer, health } = self;
        let address = listener.local_addr();
        let serve = |certificates: &Certificates| {
            certificates.observe(observer.clone());
            let limits = Limits { body_size: BODY, connections: CONNECTIONS, ..Limits::default() };
            let listener = listener.limits(limits).tls(Tls::new(certificates.clone()));
            let (routes, health, stop) = (routes(own, foreign, &observer), health.clone(), stop.clone());
            async move {
                match listener {
                    Ok(listener) => drop(listener.serve(routes, stop.cancelled_owned()).await),
                    Err(error) => health.set(Err(chain(&error))),
                }
            }
        };
        match source {
            Source::Folder { folder, name } => {
                let Some(certificates) = from_folder(&folder, &health, &stop).await else { return };
                let authority = folder.join("ca.crt");
                tokio::select! {
                    () = serve(&certificates) => {}
                    () = look(&authority, address, name.as_deref(), &health) => {}
                }
            }
            Source::Own(mut manager) => {
                let Some((first, certificates)) = first_round(&mut manager, &health, &stop).await else { return };
                let name = manager.policy.names.first().cloned();
                let call = move |trusted: Option<String>| {
                    let name = name.clone();
                    async move { selfcheck::check(address, trusted.as_deref(), name.as_deref()).await }
                };
                let keeping = async {
                    tokio::select! {
                        () = keep(&mut manager, first, &certificates, &health, Timestamp::now, call) => {}
                        () = stop.cancelled() => {}
                    }
                    for error in manager.distribution.restore().await {
                        tracing::warn!(error = chain(&error), "Cannot remove the webhooks from the cluster");
                    }
                };
                tokio::join!(serve(&certificates), keeping);
            }
        }
    }
}

/// Checks a server whose certificate comes from a folder, for ever: it has to answer, with a certificate that `ca.crt` beside it
/// has signed.
async fn look(authority: &Path, address: std::net::SocketAddr, name: Option<&str>, health: &WebhookHealth) {
    loop {
        let bundle = std::fs::read_to_string(authority).ok();
        let answered = selfcheck::check(address, bundle.as_deref(), name).await;
        let pause = if answered.is_ok() { CHECK_INTERVAL } else { RECHECK_INTERVAL };
        health.set(answered.map(|()| None));
        tokio::time::sleep(pause).await;
    }
}

async fn from_folder(folder: &Path, health: &WebhookHealth, stop: &CancellationToken) -> Option<Certificates> {
    loop {
        match Certificates::from_files(folder.join("tls.crt"), folder.join("tls.key")) {
            Ok(certificates) => return Some(certificates),
            Err(error) => health.set(Err(format!("--webhook-cert-dir: {}", chain(&error)))),
        }
        tokio::select! {
            () = tokio::time::sleep(RECHECK_INTERVAL) => {}
            () = stop.cancelled() => return None,
        }
    }
}

/// Retries the first round until it results in a usable certificate. The API server may be down when we start, but then it calls no
/// webhooks either.
async fn first_round(
    manager: &mut CertificateManager<Trust>,
    health: &WebhookHealth,
    stop: &CancellationToken,
) -> Option<(Round, Certificates)> {
    for failures in 1.. {
        match manager.round(Timestamp::now()).await {
            Ok(round) => {
                let Pair { certificate, key } = &round.material.serving;
                match Certificates::from_pem(certificate.as_bytes(), key.as_bytes()) {
                    Ok(certificates) => return Some((round, certificates)),
                    Err(error) => health.set(Err(chain(&error))),
                }
            }
            Err(error) => health.set(Err(chain(&error))),
        }
        tokio::select! {
            () = tokio::time::sleep(manager.pause(failures)) => {}
            () = stop.cancelled() => return None,
        }
    }
    None
}

/// Renews and reloads the certificate, and checks the own listener as the API server would, for ever.
///
/// A failed round does not make the webhooks unready: as long as the certificate is valid and the self-check passes, the result
/// of the last round stays in use.
async fn keep<C: Future<Output = Result<(), String>>>(
    manager: &mut CertificateManager<Trust>,
    mut last: Round,
    certificates: &Certificates,
    health: &WebhookHealth,
    now: impl Fn() -> Timestamp,
    call: impl Fn(Option<String>) -> C,
) {
    let mut in_use = last.material.serving.clone();
    let (mut trouble, mut failures) = (None, 0_u32);
    loop {
        if last.material.serving != in_use {
            in_use = last.material.serving.clone();
            if let Err(error) = certificates.replace(in_use.certificate.as_bytes(), in_use.key.as_bytes()) {
                tracing::error!(error = chain(&error), "The renewed webhook certificate is not usable");
            }
        }
        let answered = if has_expired(&in_use.certificate, now()) {
            Err("the certificate has expired".to_owned())
        } else {
            call(last.trusted.clone()).await
        };
        failures = if answered.is_err() || trouble.is_some() { failures.saturating_add(1) } else { 0 };
        health.set(match (answered, &trouble) {
            (Ok(()), None) => Ok(last.remark.clone()),
            (Ok(()), Some(trouble)) => Ok(Some(format!("the certificate is valid, but {trouble}"))),
            (Err(why), None) => Err(why),
            (Err(why), Some(trouble)) => Err(format!("{why}; {trouble}")),
        });
        tokio::time::sleep(manager.pause(failures)).await;
        match manager.round(now()).await {
            Ok(round) => (last, trouble) = (round, None),
            Err(error) => trouble = Some(chain(&error)),
        }
    }
}

/// One route for each webhook, and one for all conversions. The observer hears of the `own` ones before the first request.
fn routes(own: Vec<Webhook>, foreign: Vec<Webhook>, observer: &Arc<dyn Observer>) -> Router {
    for path in own.iter().map(Webhook::path).collect::<BTreeSet<_>>() {
        observer.serves(&path);
    }
    conversion::possible(&own).for_each(|conversion| observer.converts(&conversion));
    let (converting, admitting): (Vec<_>, Vec<_>) =
        own.into_iter().chain(foreign).partition(|webhook| matches!(webhook.work, Work::Convert(..)));
    let memory = Memory::default();
    let hook = |path: &str, webhooks: Vec<Webhook>| Hook {
        path: path.into(),
        webhooks: webhooks.into(),
        memory: memory.clone(),
        observer: observer.clone(),
    };
    let mut routes = Router::new();
    for webhook in admitting {
        let path = webhook.path();
        routes = routes.route(&path, post(serve_review).with_state(hook(&path, vec![webhook])));
    }
    if !converting.is_empty() {
        routes = routes.route(CONVERT, post(serve_review).with_state(hook(CONVERT, converting)));
    }
    routes.layer(DefaultBodyLimit::disable()) // the listener has its own limit
}

#[derive(Clone)]
struct Hook {
    path: Arc<str>,
    webhooks: Arc<[Webhook]>,
    memory: Memory,
    observer: Arc<dyn Observer>,
}

async fn serve_review(
    State(hook): State<Hook>,
    peer: Option<Extension<Peer>>,
    headers: axum::http::HeaderMap,
    body: Bytes,
) -> Response {
    hook.observer.started(&hook.path);
    let started = std::time::Instant::now();
    let json = headers.get(header::CONTENT_TYPE).is_some_and(|it| it.as_bytes().starts_with(b"application/json"));
    let response = if json {
        review(&hook, body, peer.map(|Extension(peer)| peer.address.into())).await
    } else {
        respond(&hook, Err(Malformed("expected Content-Type: application/json".to_owned())))
    };
    hook.observer.answered(&hook.path, response.status().as_u16(), started.elapsed());
    response
}

/// Reviews a body of a client of this origin when there is memory for it.
async fn review(hook: &Hook, body: Bytes, of: Option<Origin>) -> Response {
    let wanted = match answer::weigh(&hook.path, &body) {
        Ok(bytes) => bytes,
        Err(why) => return (StatusCode::PAYLOAD_TOO_LARGE, why).into_response(),
    };
    let of_task = hook.clone();
    let work = move || {
        answer::at(&of_task.webhooks, &of_task.path, &body, |conversion| of_task.observer.converted(conversion))
    };
    match hook.memory.run(wanted, of, work).await {
        Some(Ok(result)) => respond(hook, result),
        Some(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        None => ([(header::RETRY_AFTER, "1")], StatusCode::SERVICE_UNAVAILABLE).into_response(),
    }
}

fn respond(hook: &Hook, result: Result<(String, Outcome), Malformed>) -> Response {
    match result {
        Ok((review, outcome)) => {
            if outcome == Outcome::Panicked {
                hook.observer.panicked(&hook.path);
                tracing::error!(webhook = &*hook.path, "Webhook panicked");
            }
            ([(header::CONTENT_TYPE, "application/json")], review).into_response()
        }
        Err(Malformed(why)) => (StatusCode::BAD_REQUEST, why).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use certificates::{CertificateStore, Policy};
    use fastrand::Rng;
    use jiff::SignedDuration;
    use model_apiserver::{Model, NoFaults, Planned};
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::configuration::Endpoint;

    const MOMENT: Duration = Duration::from_millis(100);

    /// Runs `keep` with a model API server. `call` replaces the self-check.
    async fn kept<C: Future<Output = Result<(), String>>>(
        model: Model,
        health: WebhookHealth,
        call: impl Fn(Option<String>) -> C,
    ) {
        let (names, lifetime) = (vec!["a".to_owned()], SignedDuration::from_hours(1));
        let policy = Policy { purpose: "webhooks", names, lifetime };
        // The model calls no webhooks, so there is nothing to configure.
        let trust = Trust {
            client: model.client(),
            endpoint: Endpoint::Service { namespace: "default".to_owned(), name: "webhooks".to_owned() },
            configuration: "webhooks".to_owned(),
            webhooks: Vec::new(),
            before: Vec::new(),
        };
        let store = CertificateStore::secret(model.client(), "default", "certificate");
        let mut manager = CertificateManager::new(store, policy, trust, Rng::new());
        let first = manager.round(model.now()).await.expect("a round");
        let Pair { certificate, key } = &first.material.serving;
        let certificates = Certificates::from_pem(certificate.as_bytes(), key.as_bytes()).expect("a pair");
        keep(&mut manager, first, &certificates, &health, || model.now(), call).await;
    }

    #[tokio::test(start_paused = true)]
    async fn failed_round_keeps_readiness_and_is_retried_soon() {
        let (model, health) = (Model::new(), WebhookHealth::default());
        tokio::spawn(kept(model.clone(), health.clone(), |_| ready(Ok(()))));
        sleep(MOMENT).await;
        assert_eq!(health.check(), Ok(None));
        model.set_faults(Planned::new(&"before get secrets.core #1..3 -> answer 503".parse().expect("a plan")));
        let asked = || model.requests().iter().filter(|it| it.resource == "secrets").count();
        let before = asked();
        let mut failing: Option<Instant> = None;
        let begun = Instant::now();
        while asked() < before + 4 {
            let told = health.check().expect("the webhooks stay ready");
            let told_why = told.is_none_or(|why| why.contains("cannot read Secret certificate"));
            assert!(told_why && begun.elapsed() < Duration::from_secs(90));
            if asked() > before {
                failing.get_or_insert_with(Instant::now);
            }
            sleep(MOMENT).await;
        }
        let took = failing.expect("a failed round").elapsed();
        assert!(took > Duration::from_secs(3) && took < Duration::from_secs(12), "1 s, 2 s and 4 s: {took:?}");
        sleep(MOMENT).await;
        assert_eq!(health.check(), Ok(None));
        let quiet = asked();
        sleep(Duration::from_secs(50)).await;
        assert_eq!(asked(), quiet, "then rounds have the usual interval");
    }

    #[tokio::test(start_paused = true)]
    async fn unrenewed_certificate_is_ready_until_it_expires() {
        let (model, health) = (Model::new(), WebhookHealth::default());
        tokio::spawn(kept(model.clone(), health.clone(), |_| ready(Ok(()))));
        sleep(MOMENT).await;
        model.set_faults(Planned::new(&"before * secrets.core -> answer 503".parse().expect("a plan")));
        sleep(Duration::from_mins(58)).await;
        assert!(health.check().is_ok());
        sleep(Duration::from_mins(3)).await;
        let why = health.check().expect_err("the certificate has expired");
        assert!(why.contains("has expired") && why.contains("cannot read Secret"), "{why}");
        model.set_faults(NoFaults);
        sleep(Duration::from_secs(20)).await;
        assert_eq!(health.check(), Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn failed_self_check_is_retried_soon() {
        let (model, health) = (Model::new(), WebhookHealth::default());
        let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = calls.clone();
        tokio::spawn(kept(model, health.clone(), move |_| {
            let call = counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            ready(if call == 1 { Err("it does not answer".to_owned()) } else { Ok(()) })
        }));
        while health.check().is_err() {
            sleep(MOMENT).await;
        }
        let begun = Instant::now();
        while health.check().is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(80));
            sleep(MOMENT).await;
        }
        sleep(Duration::from_secs(2)).await;
        assert_eq!(health.check(), Ok(None));
    }
}
