//! The body of a request as handlers read it, with limits on its size and time.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::Limited;
use hyper::body::Incoming;
use tokio::time::Sleep;
use tower::BoxError;

/// The body of a request. Fails if it is longer than [`crate::Limits::body_size`] (with `LengthLimitError` of `http-body-util`,
/// which axum answers with 413) or slower than [`crate::Limits::body_read`] (with [`BodyTimeout`]).
pub struct Body {
    inner: Limited<Incoming>,
    timeout: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

/// The client took too long to send its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request's body did not arrive in time")]
pub struct BodyTimeout;

impl Body {
    pub(crate) fn new(inner: Incoming, size: usize, timeout: Duration) -> Self {
        Self { inner: Limited::new(inner, size), timeout, sleep: None }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { inner, timeout, sleep } = &mut *self;
        if let Poll::Ready(frame) = Pin::new(inner).poll_frame(context) {
            return Poll::Ready(frame);
        }
        let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(*timeout)));
        ready!(sleep.as_mut().poll(context));
        Poll::Ready(Some(Err(BodyTimeout.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Body").finish_non_exhaustive()
    }
}
