//! The requests for one lease. Each has a time-out, and none is repeated.

use std::time::Duration;

use api_errors::{Class, chain, classify};
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{PostParams, WatchEvent, WatchParams},
};

use crate::{
    Config,
    config::call_timeout,
    core::{Answer, Request},
};

/// The API server ends a watch after this time, and a new one begins.
const WATCH_SECONDS: u32 = 240;

/// A client with its own connection, so that busy caches cannot starve the elector. It does not retry: the elector does, and
/// knows the deadlines.
///
/// `renew_deadline` has to be that of the elector's [`Config`].
pub fn client(mut config: kube::Config, renew_deadline: Duration) -> kube::Result<Client> {
    config.default_retry = false;
    config.connect_timeout = Some(call_timeout(renew_deadline));
    Client::try_from(config)
}

pub(crate) struct Requests {
    leases: Api<Lease>,
    name: String,
    timeout: Duration,
}

/// An event of a watch.
pub(crate) enum Event {
    Changed(Box<Lease>),
    Gone,
    /// The watch has ended, for this reason.
    Ended(String),
}

impl Requests {
    pub(crate) fn new(client: Client, config: &Config) -> Self {
        let leases = Api::namespaced(client, &config.namespace);
        Self { leases, name: config.name.clone(), timeout: config.call_timeout() }
    }

    /// Sends one request. Returns its meaning for the election, and the text of an error for logs and probes.
    pub(crate) fn send(&self, request: Request) -> impl Future<Output = (Answer, Option<String>)> + Send + 'static {
        let (leases, name, timeout) = (self.leases.clone(), self.name.clone(), self.timeout);
        async move {
            let parameters = PostParams::default();
            let call = async {
                match request {
                    Request::Get => leases.get(&name).await,
                    Request::Create(lease) => leases.create(&parameters, &lease).await,
                    // The whole object with its resourceVersion and uid: the API server refuses it if another client wrote.
                    Request::Replace(lease) => leases.replace(&name, &parameters, &lease).await,
                }
            };
            match tokio::time::timeout(timeout, call).await {
                Ok(Ok(lease)) => (Answer::Lease(Box::new(lease)), None),
                Ok(Err(error)) => (meaning(&error), Some(chain(&error))),
                Err(_) => (Answer::Unknown, Some(format!("no answer within {timeout:?}"))),
            }
        }
    }

    /// The current lease, and then its changes. Ends with [`Event::Ended`].
    pub(crate) fn watch(&self) -> BoxStream<'static, Event> {
        let leases = self.leases.clone();
        let parameters = WatchParams::default().fields(&format!("metadata.name={}", self.name)).timeout(WATCH_SECONDS);
        // Version 0 reads from the API server's cache, however old. A write that is based on an outdated lease is refused.
        let events = stream::once(async move { leases.watch(&parameters, "0").await }).try_flatten();
        events
            .map(|event| match event {
                Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => Some(Event::Changed(Box::new(lease))),
                Ok(WatchEvent::Deleted(_)) => Some(Event::Gone),
                Ok(WatchEvent::Bookmark(_)) => None,
                Ok(WatchEvent::Error(status)) => Some(Event::Ended(status.message)),
                Err(error) => Some(Event::Ended(chain(&error))),
            })
            .filter_map(async |event| event)
            .chain(stream::once(async { Event::Ended("it was closed".to_owned()) }))
            .boxed()
    }
}

/// What an error means for the election. A webhook's denial says nothing about the lease, whatever its code.
fn meaning(error: &kube::Error) -> Answer {
    match classify(error) {
        Class::NotFound => Answer::Absent,
        Class::AlreadyExists | Class::Conflict => Answer::Conflict,
        _ => Answer::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn denial_by_a_webhook_says_nothing_about_the_lease() {
        let told = |code, reason: &str, message: &str| {
            let status = Status { code, reason: reason.to_owned(), message: message.to_owned(), ..Status::default() };
            meaning(&kube::Error::Api(Box::new(status)))
        };
        assert!(matches!(told(404, "NotFound", "leases \"manager\" not found"), Answer::Absent));
        assert!(matches!(told(409, "AlreadyExists", "leases \"manager\" already exists"), Answer::Conflict));
        assert!(matches!(told(409, "Conflict", "the object has been modified"), Answer::Conflict));
        let denial = "admission webhook \"a.b.c\" denied the request: no";
        for (code, reason) in [(404, "NotFound"), (409, "AlreadyExists"), (409, "Conflict")] {
            assert!(matches!(told(code, reason, denial), Answer::Unknown), "{code} {reason}");
        }
    }
}
