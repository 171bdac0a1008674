//! `/healthz` and `/readyz` in controller-runtime's format: `ok`, or a line for each check.
//!
//! Alive means that the process makes progress, never that the API server does. Ready means that each kind's cache is
//! filled, or is in a state that is reported and would not be mended by waiting: one missing CRD must not take the other
//! kinds' webhooks away.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, RawQuery, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::time::Instant;

use crate::{
    controller::Running,
    informer::{InformerHealth, Phase},
    webhook::server::WebhookHealth,
};

/// What the probes look at.
pub(crate) struct Probes {
    pub(crate) informers: Vec<Arc<InformerHealth>>,
    pub(crate) controllers: Arc<Vec<Running>>,
    pub(crate) started: Instant,
    pub(crate) cache_sync_timeout: Duration,
    pub(crate) reconcile_timeout: Duration,
    pub(crate) stopping: tokio_util::sync::CancellationToken,
    /// The election, where there is one.
    pub(crate) election: Option<leader_election::Health>,
    /// The webhooks, where they are served.
    pub(crate) webhooks: Option<WebhookHealth>,
}

/// One check: its name, and what is wrong or worth saying.
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
            // A reconcile is cancelled at its time-out; one that goes on blocks a thread and will never end.
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
        checks
    }

    fn cache(&self, informer: &InformerHealth) -> Check {
        let phase = informer.phase();
        let says = phase.describe(&informer.resource);
        let result = match phase {
            Phase::Synced => Ok(None),
            Phase::NotInstalled | Phase::Forbidden(_) => Ok(Some(says)),
            Phase::Starting | Phase::Failing(_) if self.started.elapsed() > self.cache_sync_timeout => Ok(Some(says)),
            Phase::Starting | Phase::Failing(_) => Err(says),
        };
        Check { name: format!("cache-{}", informer.resource), result }
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
            Ok(Some(remark)) => format!("[+]{name} ok: {remark}"),
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
    use super::*;

    fn checks() -> Vec<Check> {
        vec![
            Check { name: "cache-pods".into(), result: Err("pods not listed yet".into()) },
            Check { name: "cache-foos.g".into(), result: Ok(Some("crd foos.g not installed".into())) },
            Check { name: "ping".into(), result: Ok(None) },
        ]
    }

    #[test]
    fn a_failure_is_told_in_words() {
        let (passed, text) = render("readyz", &checks(), &[]);
        assert!(!passed);
        assert_eq!(
            text,
            "[+]cache-foos.g ok: crd foos.g not installed\n[-]cache-pods failed: pods not listed yet\n[+]ping ok\nreadyz check failed\n"
        );
    }

    #[test]
    fn checks_can_be_excluded() {
        let (passed, text) = render("readyz", &checks(), &["cache-pods", "other"]);
        assert!(passed);
        assert!(text.contains("[+]cache-pods excluded: ok\n"), "{text}");
        assert!(text.contains("warn: some health checks cannot be excluded: no matches for \"other\"\n"), "{text}");
        assert!(text.ends_with("readyz check passed\n"), "{text}");
    }

    #[test]
    fn a_single_check_answers_for_itself() {
        assert_eq!(one(&checks(), "ping").status(), StatusCode::OK);
        assert_eq!(one(&checks(), "cache-pods").status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(one(&checks(), "nothing").status(), StatusCode::NOT_FOUND);
    }
}
