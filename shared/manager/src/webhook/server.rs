//! Serves the webhooks on every replica, with the certificate of `certificate_manager` or from a folder of files.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use serving::{Certificates, Limits, Listener, Tls};
use tokio_util::sync::CancellationToken;

use super::{
    CONVERT, Webhook, Work,
    certificate_manager::{CertificateManager, Round},
    pki::{self, Pair},
    review::{self, Malformed, Outcome},
    selfcheck,
};
use crate::{error::chain, metrics::Metrics};

/// The largest body of a request in bytes, as in controller-runtime.
const BODY: usize = 7 * 1024 * 1024;
/// The interval of self-checks with a certificate from a folder.
const LOOK: Duration = Duration::from_secs(10);
/// The interval of checks while the folder has no certificate yet, or the self-check fails.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The server of all webhooks of the process.
pub(crate) struct WebhookServer {
    pub(super) listener: Listener,
    pub(super) webhooks: Vec<Webhook>,
    pub(super) source: Source,
    pub(super) metrics: Arc<Metrics>,
    pub(super) health: WebhookHealth,
}

/// Where the certificate comes from.
pub(super) enum Source {
    /// We issue the certificate, and write the `caBundle` for the API server.
    Own(Box<CertificateManager>),
    /// A folder with `tls.crt` and `tls.key`, from cert-manager or another source, which also has to write the `caBundle`.
    Folder {
        folder: PathBuf,
        /// The name at which the API server calls us, if a flag sets it.
        name: Option<String>,
    },
}

/// Whether the webhooks answer, for readiness. Clones share one state.
#[derive(Debug, Clone)]
pub(crate) struct WebhookHealth(Arc<Mutex<Result<Option<String>, String>>>);

impl Default for WebhookHealth {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Err("the webhooks have no certificate yet".to_owned()))))
    }
}

impl WebhookHealth {
    /// `Ok` with a remark, or the problem in words on which a user can act.
    pub(crate) fn check(&self) -> Result<Option<String>, String> {
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
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Self { listener, webhooks, source, metrics, health } = self;
        let address = listener.local_addr();
        let serve = |certificates: &Certificates| {
            certificates.observe(Arc::new(Watched(metrics.clone())));
            let limits = Limits { body_size: BODY, ..Limits::default() };
            let listener = listener.limits(limits).tls(Tls::new(certificates.clone()));
            let (routes, health, stop) = (routes(webhooks, &metrics), health.clone(), stop.clone());
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
                let Some(first) = first_round(&mut manager, &health, &stop).await else { return };
                let Pair { certificate, key } = &first.material.serving;
                let certificates = match Certificates::from_pem(certificate.as_bytes(), key.as_bytes()) {
                    Ok(certificates) => certificates,
                    Err(error) => return health.set(Err(chain(&error))),
                };
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
                    manager.trust.withdraw().await;
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
        let pause = if answered.is_ok() { LOOK } else { LOOK_AGAIN };
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
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = stop.cancelled() => return None,
        }
    }
}

/// Retries the first round until it succeeds. The API server may be down when we start, but then it calls no webhooks either.
async fn first_round(
    manager: &mut CertificateManager,
    health: &WebhookHealth,
    stop: &CancellationToken,
) -> Option<Round> {
    for failures in 1.. {
        match manager.round(Timestamp::now()).await {
            Ok(round) => return Some(round),
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
    manager: &mut CertificateManager,
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
        let answered = if pki::has_expired(&in_use.certificate, now()) {
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

/// One route for each webhook, and one for all conversions.
fn routes(webhooks: Vec<Webhook>, metrics: &Arc<Metrics>) -> Router {
    let (converting, admitting): (Vec<_>, Vec<_>) =
        webhooks.into_iter().partition(|webhook| matches!(webhook.work, Work::Convert(_)));
    let mut routes = Router::new();
    for webhook in admitting {
        let path = webhook.path();
        metrics.prepare_webhook(&path);
        let hook = Hook { path: path.clone().into(), webhooks: vec![webhook].into(), metrics: metrics.clone() };
        routes = routes.route(&path, post(answer).with_state(hook));
    }
    if !converting.is_empty() {
        metrics.prepare_webhook(CONVERT);
        let hook = Hook { path: CONVERT.into(), webhooks: converting.into(), metrics: metrics.clone() };
        routes = routes.route(CONVERT, post(answer).with_state(hook));
    }
    routes.layer(DefaultBodyLimit::disable()) // the listener has its own limit
}

#[derive(Clone)]
struct Hook {
    path: Arc<str>,
    webhooks: Arc<[Webhook]>,
    metrics: Arc<Metrics>,
}

async fn answer(State(hook): State<Hook>, headers: axum::http::HeaderMap, body: Bytes) -> Response {
    let metrics = &hook.metrics;
    let running = metrics.webhook_running.with_label_values(&[&*hook.path]);
    running.inc();
    let started = std::time::Instant::now();
    let json = headers.get(header::CONTENT_TYPE).is_some_and(|it| it.as_bytes().starts_with(b"application/json"));
    let result = match (&*hook.webhooks, json) {
        (_, false) => Err(Malformed("expected Content-Type: application/json".to_owned())),
        (webhooks, true) if *hook.path == *CONVERT => review::convert(webhooks, &body),
        ([webhook], true) => review::admit(webhook, &body),
        _ => Err(Malformed("nothing is served here".to_owned())),
    };
    let response = respond(&hook, result);
    metrics.webhook_seconds.with_label_values(&[&*hook.path]).observe(started.elapsed().as_secs_f64());
    metrics.webhook_requests.with_label_values(&[&*hook.path, response.status().as_str()]).inc();
    running.dec();
    response
}

fn respond(hook: &Hook, result: Result<(Value, Outcome), Malformed>) -> Response {
    match result {
        Ok((review, outcome)) => {
            if outcome == Outcome::Panicked {
                let converts = *hook.path == *CONVERT;
                let counter = if converts { &hook.metrics.conversion_panics } else { &hook.metrics.webhook_panics };
                counter.inc();
                tracing::error!(webhook = &*hook.path, "Webhook panicked");
            }
            ([(header::CONTENT_TYPE, "application/json")], review.to_string()).into_response()
        }
        Err(Malformed(why)) => (StatusCode::BAD_REQUEST, why).into_response(),
    }
}

/// Updates the metrics of controller-runtime's certificate watcher.
struct Watched(Arc<Metrics>);

impl serving::Observer for Watched {
    fn certificate(&self, not_after: SystemTime) {
        let seconds = not_after.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        self.0.certificate_expiry.with_label_values::<&str>(&[]).set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }

    fn reloaded(&self, outcome: Result<(), &serving::CertificateError>) {
        self.0.certificate_reads.inc();
        if let Err(error) = outcome {
            self.0.certificate_errors.inc();
            tracing::error!(error = chain(error), "Cannot replace the webhook certificate");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use jiff::SignedDuration;
    use model_apiserver::{Model, NoFaults, Planned};
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::{metrics::MetricRegistry, webhook::pki::Policy};

    const MOMENT: Duration = Duration::from_millis(100);

    /// Runs `keep` with a model API server. `call` replaces the self-check.
    async fn kept<C: Future<Output = Result<(), String>>>(
        model: Model,
        health: WebhookHealth,
        call: impl Fn(Option<String>) -> C,
    ) {
        let policy = Policy { names: vec!["a".to_owned()], lifetime: SignedDuration::from_hours(1) };
        let mut manager = CertificateManager::for_tests(&model, policy);
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

    #[test]
    fn certificate_reads_and_read_errors_are_counted() {
        let metrics = Arc::new(Metrics::new(&MetricRegistry::default()));
        let [first, second] = [(); 2].map(|()| {
            let made = rcgen::generate_simple_self_signed(["a".to_owned()]).expect("a certificate");
            (made.cert.pem(), made.signing_key.serialize_pem())
        });
        let certificates = Certificates::from_pem(first.0.as_bytes(), first.1.as_bytes()).expect("a pair");
        certificates.observe(Arc::new(Watched(metrics.clone())));
        let expiry = metrics.certificate_expiry.with_label_values::<&str>(&[]).get();
        assert!(expiry > Timestamp::now().as_second(), "{expiry}");
        let before = metrics.certificate_reads.get();
        certificates.replace(second.0.as_bytes(), second.1.as_bytes()).expect("a pair");
        assert_eq!((metrics.certificate_reads.get() - before, metrics.certificate_errors.get()), (1, 0));
        certificates.replace(first.0.as_bytes(), second.1.as_bytes()).expect_err("keys do not match");
        assert_eq!((metrics.certificate_reads.get() - before, metrics.certificate_errors.get()), (2, 1));
    }
}
