//! The body of a request as handlers read it, with limits on its size, its time and its memory.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use http::StatusCode;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::Limited;
use hyper::body::Incoming;
use tokio::time::Sleep;
use tower::BoxError;

use crate::{
    activity::{Exchange, Step},
    budget::{Budget, NoShare},
};

/// What a piece of a body costs beside its bytes. A client may send a body in pieces of one byte.
const PIECE: usize = 128;

/// The body of a request. Reading fails if it is longer than [`crate::Limits::body_size`] (with `LengthLimitError` of
/// `http-body-util`, which axum answers with 413), slower than [`crate::Limits::body_read`] (with [`BodyTimeout`]), or if there
/// is no memory for it in time (with [`NoMemory`]). After [`NoMemory`], the client gets 503, or 413 if the body needs more than
/// the whole [`crate::Limits::memory`], whatever the handler answers.
pub struct Body {
    inner: Limited<Incoming>,
    timeout: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    budget: Arc<Budget>,
    exchange: Arc<Exchange>,
    /// A piece that waits for its share of the memory.
    waiting: Option<(BoxFuture<'static, Result<(), NoShare>>, Bytes)>,
}

/// The client took too long to send its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request's body did not arrive in time")]
pub struct BodyTimeout;

/// The memory of all requests in flight is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory for the request's body now")]
pub struct NoMemory;

impl Body {
    pub(crate) fn new(
        inner: Incoming,
        size: usize,
        timeout: Duration,
        budget: Arc<Budget>,
        exchange: Arc<Exchange>,
    ) -> Self {
        Self { inner: Limited::new(inner, size), timeout, sleep: None, budget, exchange, waiting: None }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if let Some((taking, _)) = &mut self.waiting {
                let taken = ready!(taking.poll_unpin(context));
                let piece = self.waiting.take().map(|(_, piece)| Frame::data(piece));
                let refused = match taken {
                    Ok(()) => return Poll::Ready(piece.map(Ok)),
                    Err(NoShare::TooMuch) => StatusCode::PAYLOAD_TOO_LARGE,
                    Err(NoShare::Taken) => StatusCode::SERVICE_UNAVAILABLE,
                };
                self.exchange.refuse(refused);
                return Poll::Ready(Some(Err(NoMemory.into())));
            }
            match ready!(Pin::new(&mut self.inner).poll_frame(context)).transpose()?.map(Frame::into_data) {
                None => return Poll::Ready(None),
                Some(Err(other)) => return Poll::Ready(Some(Ok(other))),
                Some(Ok(piece)) => {
                    // A small piece would keep the whole buffer into which it was read.
                    let piece = Bytes::copy_from_slice(&piece);
                    let share = self.budget.clone().take(piece.len() + PIECE, self.exchange.clone());
                    self.waiting = Some((share.boxed(), piece));
                }
            }
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = self.poll(context);
        let is_last = frame.is_ready() && (self.is_end_stream() || matches!(frame, Poll::Ready(None)));
        self.exchange.enter(if is_last { Step::Working } else { Step::Receiving });
        if frame.is_ready() {
            return frame;
        }
        let Self { timeout, sleep, .. } = &mut *self;
        let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(*timeout)));
        ready!(sleep.as_mut().poll(context));
        Poll::Ready(Some(Err(BodyTimeout.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_none() && self.inner.is_end_stream()
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
