//! State that all request handlers share, the check of tokens, and answers in JSON.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::{
    faults::Faults,
    ledger::Policy,
    metrics::Metrics,
    problem::{Code, Problem},
    recent::Recent,
    store::Store,
    tokens::{self, Guard, Verdict},
};

/// State that the request handlers of both ports share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) store: Arc<Store>,
    pub(crate) guard: Guard,
    pub(crate) policy: Policy,
    pub(crate) metrics: Metrics,
    pub(crate) recent: Recent,
    /// `None` without `--fault-injection`.
    pub(crate) faults: Option<Mutex<Faults>>,
    pub(crate) started: Instant,
    pub(crate) stopping: CancellationToken,
    /// False once the writer thread has ended. Before the stop of the server, only a panic ends it.
    pub(crate) writer_lives: Arc<AtomicBool>,
}

impl App {
    /// Checks the bearer token of a request.
    pub(crate) fn authorise(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        self.verdict(header.and_then(tokens::bearer))
    }

    /// Checks the token of a request. A browser may also send it as a password. For reads only: browsers add stored passwords
    /// also to requests that other sites trigger.
    pub(crate) fn authorise_browser(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let password = header.and_then(tokens::basic);
        self.verdict(password.as_deref().or_else(|| header.and_then(tokens::bearer)))
    }

    fn verdict(&self, token: Option<&str>) -> Result<(), Problem> {
        match self.guard.judge(token) {
            Verdict::Welcome => Ok(()),
            Verdict::Unknown => {
                Err(Problem::new(Code::Unauthenticated, "send a valid token as `Authorization: Bearer TOKEN`"))
            }
            Verdict::TooEarly => Err(Problem::unavailable("the token file does not exist yet")),
        }
    }

    /// The faults; `None` without `--fault-injection`.
    pub(crate) fn faults(&self) -> Option<MutexGuard<'_, Faults>> {
        self.faults.as_ref().map(|faults| faults.lock())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.code.status(), self.to_json().to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == Code::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self.code);
        response
    }
}

/// Answers with a JSON document.
pub(crate) fn json(status: http::StatusCode, document: &impl serde::Serialize) -> Response {
    // Cannot fail: the documents hold only JSON values, numbers and strings.
    let text = serde_json::to_string(document).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Whether the folder of a file exists. The database's own error would not name a missing folder.
pub(crate) fn has_folder(path: &Path) -> bool {
    path.parent().is_none_or(|folder| folder.as_os_str().is_empty() || folder.is_dir())
}
