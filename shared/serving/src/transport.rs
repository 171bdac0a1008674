//! A transport that reports to the activity of its connection.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::activity::Activity;

/// A transport that updates the activity of its connection.
pub(crate) struct Watched<T> {
    inner: T,
    activity: Arc<Activity>,
    /// False for HTTP/2, where input need not be a request.
    counts_reads: bool,
    /// Reads since the task last left the thread to others.
    reads: u8,
}

/// After this many reads in a row, the task leaves the thread to others. A read may bring thousands of HTTP/2 frames.
const READS: u8 = 2;

impl<T> Watched<T> {
    pub(crate) fn new(inner: T, activity: Arc<Activity>, counts_reads: bool) -> Self {
        Self { inner, activity, counts_reads, reads: 0 }
    }

    /// `flushed`: whether all output has left.
    fn written<R>(&self, result: Poll<R>, flushed: bool) -> Poll<R> {
        if result.is_pending() || flushed {
            self.activity.unwritten(result.is_pending());
        }
        result
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.reads >= READS {
            self.reads = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(context, buffer);
        self.reads = if result.is_ready() { self.reads + 1 } else { 0 };
        if self.counts_reads && buffer.filled().len() > before {
            self.activity.read();
        }
        result
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(context, buffer);
        self.written(result, false)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(context);
        self.written(result, true)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(context);
        self.written(result, true)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(context, buffers);
        self.written(result, false)
    }
}
