//! The body of a response, which tells the activity of its connection who waits for whom.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};

use crate::activity::{Exchange, Step};

/// The body of a response. While it exists, its request is in progress.
pub(crate) struct ResponseBody<B> {
    /// `None` if the server itself answers.
    inner: Option<Pin<Box<B>>>,
    /// The last byte of a piece, kept back until the client has room for all others. hyper takes a piece as soon as the client has
    /// room for one byte: over HTTP/2 it passes the piece to its library, over HTTP/1 it puts the piece into its buffer. So the
    /// request would end here, and give its memory back, while the rest of its answer waits there.
    kept_back: Option<Bytes>,
    exchange: Arc<Exchange>,
}

impl<B> ResponseBody<B> {
    pub(crate) fn new(inner: B, exchange: Arc<Exchange>) -> Self {
        Self { inner: Some(Box::pin(inner)), kept_back: None, exchange }
    }

    pub(crate) fn empty(exchange: Arc<Exchange>) -> Self {
        Self { inner: None, kept_back: None, exchange }
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(last) = self.kept_back.take() {
            return Poll::Ready(Some(Ok(Frame::data(last))));
        }
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let next = inner.as_mut().poll_frame(context);
        // The next poll comes when the client has taken this frame.
        self.exchange.enter(if next.is_ready() { Step::Answering } else { Step::Working });
        let Some(frame) = ready!(next).transpose()? else { return Poll::Ready(None) };
        let frame = frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
        Poll::Ready(Some(Ok(match frame.into_data() {
            Ok(mut data) if data.len() > 1 => {
                self.kept_back = Some(data.split_off(data.len() - 1));
                Frame::data(data)
            }
            Ok(data) => Frame::data(data),
            Err(other) => other,
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.kept_back.is_none() && self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
