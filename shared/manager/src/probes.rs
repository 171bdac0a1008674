//! `/healthz` and `/readyz` in controller-runtime's format: `ok`, or a line for each check.
//!
//! Liveness depends only on this process, never on the API server. Readiness waits for the cache of each kind, except where
//! waiting would not help (a missing CRD, a 403, a kind whose objects this process converts) or lasts longer than the cache sync
//! time-out. Such a state becomes a remark: one missing CRD must not make the webhooks of other kinds unavailable.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, RawQuery, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use cache::{InformerHealth, Phase};
use tokio::time::Instant;

use webhooks::WebhookHealth;

use crate::controller::Running;

/// What the probes check.
pub(crate) struct Probes {
    pub(crate) informers: Vec<Arc<InformerHealth>>,
    pub(crate) controllers: Arc<Vec<Running>>,
    pub(crate) started: Instant,
    pub(crate) cache_sync_timeout: Duration,
    pub(crate) reconcile_timeout: Duration,
    pub(crate) stopping: tokio_util::sync::CancellationToken,
    /// `None` without leader election.
    pub(crate) election: Option<leader_election::Health>,
    /// `None` if the process serves no webhooks.
    pub(crate) webhooks: Option<WebhookHealth>,
    /// The CRDs whose objects this process converts.
    pub(crate) converted: Vec<String>,
}

/// One check. `Ok` may hold a remark; `Err` holds the reason of the failure.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Check {
    name: String,
    result: Result<Option<String>, String>,
}

/// The routes of both probes.
pub(crate) fn routes(probes: Arc<Probes>) -> Router {
    Router::new()
        .route("/healthz", get(|State(probes): State<Arc<Probes>>, query: RawQuery| async move { all("healthz", &probes.liveness(), query) }))
        .route("/readyz", get(|State(probes): State<Arc<Probes>>, query: RawQuery| async move { all("readyz", &probes.readiness(), query) }))
        .route("/healthz/{check}", get(|State(probes): State<Arc<Probes>>, Path(name): Path<String>| async move { one(&probes.liveness(), &name) }))
        .route("/readyz/{check}", get(|State(probes): State<Arc<Probes>>, Path(name): Path<String>| async move { one(&probes.readiness(), &name) }))
        .with_state(probes)
}

impl Probes {
    fn liveness(&self) -> Vec<Check> {
        let mut checks = vec![Check { name: "ping".to_owned(), result: Ok(None) }];
        for controller in self.controllers.iter() {
            // A reconcile is cancelled at its time-out. One that is still running later blocks its thread and may never end.
            let longest = controller.queue.unfinished().longest;
            let result = if longest > self.reconcile_timeout + Duration::from_secs(30) {
                Err(format!("a worker has been busy with one object for {}s", longest.as_secs()))
            } else {
                Ok(None)
            };
            checks.push(Check { name: format!("workers-{}", controller.name), result });
        }
        if let Some(election) = &self.election {
            let result = election.check().map(|()| Some(election.describe())).map_err(|stuck| stuck.to_string());
            checks.push(Check { name: "leader-election".to_owned(), result });
        }
        checks
    }

    fn readiness(&self) -> Vec<Check> {
        let mut checks: Vec<Check> = self.informers.iter().map(|informer| self.cache(informer)).collect();
        if let Some(webhooks) = &self.webhooks {
            checks.push(Check { name: "webhooks".to_owned(), result: webhooks.check() });
        }
        if self.stopping.is_cancelled() {
            checks.push(Check { name: "shutdown".to_owned(), result: Err("the process is stopping".to_owned()) });
        }
        if checks.is_empty() {
            checks.push(Check { name: "ping".to_owned(), result: Ok(None) });
        }
        checks
    }

    fn cache(&self, informer: &InformerHealth) -> Check {
        let phase = informer.phase();
        let says = phase.describe(&informer.resource);
        let result = match phase {
            Phase::Synced => Ok(informer.warning()),
            phase if self.waits_for(&phase, &informer.resource) => Err(says),
            _ => Ok(Some(says)),
        };
        Check { name: format!("cache-{}", informer.resource), result }
    }

    /// Whether readiness waits for the cache of this resource, which is not synced.
    ///
    /// The list of objects that are stored in another version needs the conversion webhook, and the API server reaches the webhooks
    /// of ready pods only. So readiness must not wait for a list that fails if this process is the one that converts.
    fn waits_for(&self, phase: &Phase, resource: &str) -> bool {
        let helps = match phase {
            Phase::Synced | Phase::NotInstalled | Phase::Forbidden(_) => false,
            Phase::Starting => true,
            Phase::Failing(_) => !self.converted.iter().any(|definition| definition == resource),
        };
        helps && self.started.elapsed() <= self.cache_sync_timeout
    }
}

fn all(probe: &str, checks: &[Check], RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let parameters: Vec<(&str, &str)> =
        query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
    let verbose = parameters.iter().any(|(name, _)| *name == "verbose");
    let excluded: Vec<&str> =
        parameters.iter().filter(|(name, _)| *name == "exclude").map(|(_, value)| *value).collect();
    let (passed, text) = render(probe, checks, &excluded);
    answer(passed, if passed && !verbose { "ok".to_owned() } else { text })
}

fn one(checks: &[Check], name: &str) -> Response {
    match checks.iter().find(|check| check.name == name) {
        None => (StatusCode::NOT_FOUND, "404 page not found\n").into_response(),
        Some(Check { result: Ok(_), .. }) => answer(true, "ok".to_owned()),
        Some(Check { result: Err(why), .. }) => answer(false, format!("internal server error: {why}\n")),
    }
}

fn render(probe: &str, checks: &[Check], excluded: &[&str]) -> (bool, String) {
    let mut sorted: Vec<&Check> = checks.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let (mut passed, mut lines) = (true, Vec::new());
    for Check { name, result } in sorted {
        lines.push(match result {
            _ if excluded.contains(&name.as_str()) => format!("[+]{name} excluded: ok"),
            Ok(None) => format!("[+]{name} ok"),
            Ok(Some(warning)) => format!("[+]{name} ok: {warning}"),
            Err(why) => {
                passed = false;
                format!("[-]{name} failed: {why}")
            }
        });
    }
    for missing in excluded.iter().filter(|name| !checks.iter().any(|check| check.name == **name)) {
        lines.push(format!("warn: some health checks cannot be excluded: no matches for \"{missing}\""));
    }
    lines.push(format!("{probe} check {}", if passed { "passed" } else { "failed" }));
    (passed, lines.join("\n") + "\n")
}

fn answer(passed: bool, text: String) -> Response {
    let status = if passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt;

    use super::*;

    /// Status code, content type and body of the response for these checks.
    async fn told(checks: &[Check], path: &str) -> (u16, String, String) {
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query.to_owned())));
        let answer = match path {
            "/healthz" => all("healthz", checks, RawQuery(query)),
            other => one(checks, other.strip_prefix("/healthz/").expect("a check")),
        };
        read(answer).await
    }

    async fn read(answer: Response) -> (u16, String, String) {
        let (parts, body) = answer.into_parts();
        let type_ = parts.headers.get(header::CONTENT_TYPE).map(|it| it.to_str().expect("text").to_owned());
        let body = axum::body::to_bytes(body, 10_000).await.expect("a body");
        (parts.status.as_u16(), type_.unwrap_or_default(), String::from_utf8(body.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn probes_answer_like_controller_runtime() {
        let check = |name: &str, result| Check { name: name.to_owned(), result };
        let good = [check("ok2", Ok(None)), check("ok1", Ok(None))];
        let mixed = [check("ok1", Ok(None)), check("bad1", Err("blech".to_owned()))];
        let failed = "[-]bad1 failed: blech\n[+]ok1 ok\nhealthz check failed\n";
        let excluded = "[+]bad1 excluded: ok\n[+]ok1 ok\nhealthz check passed\n";
        let unknown = "[+]ok1 ok\n[+]ok2 ok\n\
                       warn: some health checks cannot be excluded: no matches for \"other\"\nhealthz check passed\n";
        let cases: [(&[Check], &str, u16, &str); 15] = [
            (&good, "/healthz", 200, "ok"),
            (&mixed, "/healthz", 500, failed),
            (&mixed, "/healthz?exclude=bad1", 200, "ok"),
            (&mixed, "/healthz?exclude=bad1&verbose", 200, excluded),
            (&mixed, "/healthz?exclude=ok1&exclude=bad1", 200, "ok"),
            (&good, "/healthz?exclude=other", 200, "ok"),
            (&good, "/healthz?exclude=other&verbose", 200, unknown),
            (&good, "/healthz?verbose=true", 200, "[+]ok1 ok\n[+]ok2 ok\nhealthz check passed\n"),
            (&good, "/healthz?verbose", 200, "[+]ok1 ok\n[+]ok2 ok\nhealthz check passed\n"),
            (&mixed, "/healthz?verbose=true", 500, failed),
            (&good, "/healthz/ok1", 200, "ok"),
            (&mixed, "/healthz/bad1", 500, "internal server error: blech\n"),
            (&mixed, "/healthz/ok1", 200, "ok"),
            (&mixed, "/healthz/other", 404, "404 page not found\n"),
            (&[], "/healthz/other", 404, "404 page not found\n"),
        ];
        for (checks, path, code, body) in cases {
            let told = told(checks, path).await;
            assert_eq!((told.0, &*told.2), (code, body), "{path}");
            assert_eq!(told.1, "text/plain; charset=utf-8", "{path}");
        }
    }

    fn probes(controllers: Vec<Running>, timeout: Duration) -> Probes {
        Probes {
            informers: Vec::new(),
            controllers: Arc::new(controllers),
            started: Instant::now(),
            cache_sync_timeout: timeout,
            reconcile_timeout: timeout,
            stopping: tokio_util::sync::CancellationToken::new(),
            election: None,
            webhooks: None,
            converted: vec!["crontabs.example.com".to_owned()],
        }
    }

    #[tokio::test]
    async fn probe_without_checks_answers_ping() {
        let probes = Arc::new(probes(Vec::new(), Duration::ZERO));
        for probe in ["healthz", "readyz"] {
            let expected = [
                (format!("/{probe}?verbose"), format!("[+]ping ok\n{probe} check passed\n")),
                (format!("/{probe}/ping"), "ok".to_owned()),
            ];
            for (path, body) in expected {
                let request = axum::http::Request::get(&path).body(axum::body::Body::empty()).expect("a request");
                let answer = routes(probes.clone()).oneshot(request).await.expect("an answer");
                assert_eq!(answer.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
                let told = read(answer).await;
                assert_eq!((told.0, told.2), (200, body), "{path}");
            }
        }
    }

    /// A reconcile that blocks its thread cannot be cancelled at its time-out.
    #[tokio::test(start_paused = true)]
    async fn c9_l8_a_worker_that_never_ends_fails_liveness() {
        let queue = workqueue::WorkQueue::new(workqueue::Config::default());
        let controller = Running::with(queue.clone(), || Box::pin(async {}));
        let probes = probes(vec![controller], Duration::from_mins(2));
        queue.add(cache::ObjectKey::new("a", "b"), workqueue::Priority::LIVE);
        let item = queue.get().await.expect("a key");
        tokio::time::advance(Duration::from_secs(149)).await;
        assert_eq!(
            render("healthz", &probes.liveness(), &[]),
            (true, "[+]ping ok\n[+]workers-toy ok\nhealthz check passed\n".to_owned())
        );
        tokio::time::advance(Duration::from_secs(2)).await;
        let (passed, text) = render("healthz", &probes.liveness(), &[]);
        assert!(
            !passed && text.contains("[-]workers-toy failed: a worker has been busy with one object for 151s"),
            "{text}"
        );
        item.done(workqueue::Outcome::Success);
        assert!(render("healthz", &probes.liveness(), &[]).0);
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_waits_for_no_list_that_may_need_the_conversion_of_this_process() {
        let probes = probes(Vec::new(), Duration::from_mins(2));
        let failing = Phase::Failing("conversion webhook failed: connection refused".to_owned());
        let waits = |phase: &Phase| ["crontabs.example.com", "foos.example.com"].map(|it| probes.waits_for(phase, it));
        assert_eq!(waits(&Phase::Starting), [true, true]);
        assert_eq!(waits(&failing), [false, true]);
        assert_eq!(waits(&Phase::NotInstalled), [false, false]);
        assert_eq!(waits(&Phase::Forbidden("no right".to_owned())), [false, false]);
        tokio::time::advance(Duration::from_secs(121)).await;
        assert_eq!((waits(&Phase::Starting), waits(&failing)), ([false, false], [false, false]));
    }

    #[test]
    fn a_remark_does_not_fail_a_check() {
        let missing =
            Check { name: "cache-foos.g".to_owned(), result: Ok(Some("crd foos.g not installed".to_owned())) };
        let (passed, text) = render("readyz", &[missing], &[]);
        assert!(passed);
        assert_eq!(text, "[+]cache-foos.g ok: crd foos.g not installed\nreadyz check passed\n");
    }
}
