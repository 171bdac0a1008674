//! What all requests of a server share.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Instant,
};

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};
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

/// What all requests of a server share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) store: Arc<Store>,
    pub(crate) guard: Guard,
    pub(crate) policy: Policy,
    pub(crate) metrics: Metrics,
    pub(crate) recent: Recent,
    /// None unless faults can be asked for.
    pub(crate) faults: Option<Mutex<Faults>>,
    pub(crate) started: Instant,
    pub(crate) stopping: CancellationToken,
    /// Cleared when the writer has ended, which it does only on being told.
    pub(crate) writer_lives: Arc<AtomicBool>,
}

impl App {
    /// Lets in who has a token.
    pub(crate) fn authorise(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        self.verdict(header.and_then(tokens::bearer))
    }

    /// Lets in who has a token, also a browser that asked for it as a password. Not for anything that changes something:
    /// browsers send passwords along with other people's links.
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

    /// The faults, where they can be asked for.
    pub(crate) fn faults(&self) -> Option<MutexGuard<'_, Faults>> {
        self.faults.as_ref().map(|faults| faults.lock().unwrap_or_else(PoisonError::into_inner))
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

/// A JSON document.
pub(crate) fn json(status: http::StatusCode, document: &impl serde::Serialize) -> Response {
    // Values, numbers and texts always have a form in JSON.
    let text = serde_json::to_string(document).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Whether the folder of a file exists: the error of the database would not say.
pub(crate) fn has_folder(path: &Path) -> bool {
    path.parent().is_none_or(|folder| folder.as_os_str().is_empty() || folder.is_dir())
}
