//! The client of reconcilers: it sends writes only in the term in which the reconcile began.

use std::{
    future::{Ready, ready},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::Either;
use http::{Request, Response};
use kube::{Client, client::Body};
use tower::{BoxError, Layer, Service};

use crate::leading::Term;

/// The time until the headers of an answer have to arrive.
const DEADLINE: Duration = Duration::from_secs(20);

/// Why a request was not sent, or has no answer.
#[derive(Debug, thiserror::Error)]
enum Unsent {
    #[error("the write was not sent: this process is not the leader")]
    NotLeading,
    #[error("no answer within {}s", DEADLINE.as_secs())]
    Deadline,
}

/// Whether a write was not sent because this process does not lead.
pub(crate) fn is_not_leading(error: &kube::Error) -> bool {
    let kube::Error::Service(cause) = error else { return false };
    matches!(cause.downcast_ref(), Some(Unsent::NotLeading))
}

/// Returns a client that checks the leadership of this term before it sends a write, and again after the write has waited for its
/// turn.
pub(crate) fn guarded(client: Client, term: Term) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request| send(client.clone(), term.clone(), request));
    Client::new(service, namespace)
}

async fn send(client: Client, term: Term, mut request: Request<Body>) -> Result<Response<Body>, BoxError> {
    if !request.method().is_safe() && !term.admit(&mut request) {
        return Err(Unsent::NotLeading.into());
    }
    match tokio::time::timeout(DEADLINE, client.send(request)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Unsent::Deadline.into()),
    }
}

/// Checks the leadership again right before a request is sent, if the request carries a [`Term`] in its extensions. A write can
/// wait behind a [`Limit`](super::Limit) for longer than the leadership lasts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recheck;

/// A service behind a [`Recheck`].
#[derive(Debug)]
pub(super) struct Rechecked<S>(S);

impl<S> Layer<S> for Recheck {
    type Service = Rechecked<S>;

    fn layer(&self, inner: S) -> Rechecked<S> {
        Rechecked(inner)
    }
}

impl<S: Service<Request<B>, Error = BoxError>, B> Service<Request<B>> for Rechecked<S> {
    type Response = S::Response;
    type Error = BoxError;
    type Future = Either<S::Future, Ready<Result<S::Response, BoxError>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if request.extensions().get::<Term>().is_some_and(|term| !term.may_write()) {
            return Either::Right(ready(Err(Unsent::NotLeading.into())));
        }
        Either::Left(self.0.call(request))
    }
}
