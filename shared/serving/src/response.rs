//! The body of a response, which marks its connection as busy.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http_body::{Body, Frame, SizeHint};

use crate::activity::Busy;

/// The body of a response. While it exists, its connection is busy.
pub(crate) struct ResponseBody<B> {
    /// `None` if the server itself answers.
    inner: Option<Pin<Box<B>>>,
    _busy: Busy,
}

impl<B> ResponseBody<B> {
    pub(crate) fn new(inner: B, busy: Busy) -> Self {
        Self { inner: Some(Box::pin(inner)), _busy: busy }
    }

    pub(crate) fn empty(busy: Busy) -> Self {
        Self { inner: None, _busy: busy }
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match &mut self.inner {
            Some(inner) => inner.as_mut().poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
