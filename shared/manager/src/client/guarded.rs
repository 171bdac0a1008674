//! The client of reconcilers: it sends writes only while this process leads.

use std::time::Duration;

use http::{Request, Response};
use kube::{Client, client::Body};
use tower::BoxError;

use crate::leading::Leading;

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

/// Returns a client that checks the leadership right before it sends a write.
pub(crate) fn guarded(client: Client, leading: Leading) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request| send(client.clone(), leading.clone(), request));
    Client::new(service, namespace)
}

async fn send(client: Client, leading: Leading, request: Request<Body>) -> Result<Response<Body>, BoxError> {
    if !request.method().is_safe() && !leading.may_write() {
        return Err(Unsent::NotLeading.into());
    }
    match tokio::time::timeout(DEADLINE, client.send(request)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Unsent::Deadline.into()),
    }
}
