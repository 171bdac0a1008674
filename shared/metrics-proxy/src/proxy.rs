//! Handles one request: admits or refuses it, forwards it, and returns the answer.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{
    Request, StatusCode,
    header::CACHE_CONTROL,
    uri::{Authority, Scheme},
};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::Empty;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use tokio::time::Sleep;

use crate::{
    Guard, Metrics, Refusal,
    forward::{self, IdentityHeaders},
};

/// Where admitted requests go.
pub(crate) struct Upstream {
    pub(crate) client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    /// How long the upstream may take to begin an answer, and again to end it.
    pub(crate) timeout: Duration,
}

/// Forwards what the guard admits.
pub(crate) struct Proxy {
    pub(crate) guard: Arc<Guard>,
    pub(crate) upstream: Upstream,
    pub(crate) identity: IdentityHeaders,
    pub(crate) metrics: Arc<Metrics>,
}

impl Proxy {
    pub(crate) async fn serve(&self, request: Request<serving::Body>) -> Response {
        let (parts, body) = request.into_parts();
        let response = match self.guard.admit(&parts, !body.is_end_stream()).await {
            Err(refusal) => refusal.answer(parts.version),
            Ok(admitted) => {
                let Upstream { scheme, authority, .. } = &self.upstream;
                match forward::request(&parts, &admitted, scheme, authority, &self.identity) {
                    None => Refusal::Malformed.into_response(),
                    Some(request) => self.forward(request).await,
                }
            }
        };
        self.metrics.answered(response.status());
        // Log neither the query nor headers: they may hold secrets.
        tracing::debug!(method = %parts.method, path = parts.uri.path(), status = response.status().as_u16(), "answered");
        response
    }

    async fn forward(&self, request: Request<Empty<Bytes>>) -> Response {
        let Upstream { client, timeout, .. } = &self.upstream;
        let since = Instant::now();
        let answer = tokio::time::timeout(*timeout, client.request(request)).await;
        let status = answer.as_ref().ok().and_then(|it| Some(it.as_ref().ok()?.status()));
        self.metrics.upstream(status, since.elapsed());
        match answer {
            Ok(Ok(response)) => {
                let bounded = |body| Body::new(Bounded { body, sleep: Box::pin(tokio::time::sleep(*timeout)) });
                forward::response(response.map(bounded))
            }
            Ok(Err(error)) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                tracing::warn!(%error, cause, "the upstream cannot be reached");
                own(StatusCode::BAD_GATEWAY, "The upstream cannot be reached.\n")
            }
            Err(_) => {
                tracing::warn!(?timeout, "the upstream does not answer");
                own(StatusCode::GATEWAY_TIMEOUT, "The upstream does not answer.\n")
            }
        }
    }
}

fn own(status: StatusCode, text: &'static str) -> Response {
    (status, [(CACHE_CONTROL, "no-store")], text).into_response()
}

/// A body with a deadline. Its error cuts the connection: half an answer must not look like a whole one.
struct Bounded<B> {
    body: B,
    sleep: Pin<Box<Sleep>>,
}

#[derive(Debug, thiserror::Error)]
#[error("the upstream did not end its answer in time")]
struct Endless;

impl<B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Unpin> HttpBody for Bounded<B> {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if self.sleep.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(Endless.into())));
        }
        Pin::new(&mut self.body).poll_frame(context).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
