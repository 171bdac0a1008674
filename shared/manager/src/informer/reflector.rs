//! List, then watch: the requests that keep a [`Store`](crate::store::Store) in step with the API server.
//!
//! A list is read in pages and shows one moment; the watch goes on from there. A watch that ends, is refused or breaks is
//! started again from the last version that it told of, with one exception: after the API server was away, everything is
//! listed again. It may have been restored from a backup meanwhile, and a watch that starts at a version which the restored
//! cluster has not reached is accepted and stays silent.

use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::{
    Client, Resource,
    api::{ListParams, WatchParams},
    core::{NamespaceResourceScope, Request, Status, WatchEvent},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::store::WentBack;

/// The server ends a watch after this time, in seconds.
const WATCH_SECONDS: u32 = 230;
/// A watch that has said nothing, not even that it ends, for this time is given up.
const SILENT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);
/// A page is in memory as a whole while it is decoded; four kinds list at the same time.
const PAGE_SIZE: u32 = 100;

/// The requests for the objects of one kind in one scope.
pub(super) struct Reflector {
    client: Client,
    request: Request,
    selector: Option<String>,
}

/// Why a list or a watch could not go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("could not list")]
    List(#[source] Box<kube::Error>),
    #[error("could not start a watch")]
    Watch(#[source] Box<kube::Error>),
    /// An event of the watch says so.
    #[error("the watch ended: {}", .0.message)]
    Status(Box<Status>),
    #[error("the watch broke")]
    Broken(#[source] Box<kube::Error>),
    /// There is nothing that a watch could start from.
    #[error("the list has no resource version")]
    Unversioned,
    #[error(transparent)]
    WentBack(#[from] WentBack),
}

/// A page of a list. The objects are decoded one by one, so that one bad object cannot stop the others.
#[derive(Deserialize)]
pub(super) struct Page<'a> {
    pub(super) metadata: PageMetadata,
    /// `null` for an empty list of some servers.
    #[serde(borrow)]
    pub(super) items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMetadata {
    resource_version: String,
    /// What to ask the next page with; empty on the last one.
    #[serde(rename = "continue", default)]
    pub(super) next: String,
}

impl<'a> Page<'a> {
    pub(super) fn read(json: &'a str) -> Result<Self, Failure> {
        serde_json::from_str(json).map_err(|error| Failure::List(Box::new(kube::Error::SerdeError(error))))
    }

    /// The version that the whole list shows.
    pub(super) fn version(&self) -> Result<u64, Failure> {
        self.metadata.resource_version.parse().map_err(|_| Failure::Unversioned)
    }
}

impl Reflector {
    /// Of one namespace, or of all with an empty `scope`.
    pub(super) fn new<K>(client: Client, scope: &str, selector: Option<String>) -> Self
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let namespace = (!scope.is_empty()).then_some(scope);
        Self { client, request: Request::new(K::url_path(&(), namespace)), selector }
    }

    /// One page, as JSON: the first with an empty `next`.
    pub(super) async fn page(&self, next: &str) -> Result<String, Failure> {
        let mut parameters = ListParams::default().limit(PAGE_SIZE);
        parameters.label_selector.clone_from(&self.selector);
        parameters.continue_token = (!next.is_empty()).then(|| next.to_owned());
        let request = self.request.list(&parameters).map_err(kube::Error::BuildRequest);
        let answer = async { self.client.request_text(request?).await };
        answer.await.map_err(|error| Failure::List(Box::new(error)))
    }

    /// The changes after `version`.
    pub(super) async fn watch(
        &self,
        version: u64,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Box<RawValue>>, Failure>> + use<>, Failure> {
        let mut parameters = WatchParams::default().timeout(WATCH_SECONDS);
        parameters.label_selector.clone_from(&self.selector);
        let request = self.request.watch(&parameters, &version.to_string()).map_err(kube::Error::BuildRequest);
        let answer = async { self.client.request_events::<Box<RawValue>>(request?).await };
        let events = answer.await.map_err(|error| Failure::Watch(Box::new(error)))?;
        // A connection that is dead in silence looks like one on which nothing happens.
        let events = futures::stream::unfold(Box::pin(events), |mut events| async {
            let event: Option<Result<WatchEvent<Box<RawValue>>, kube::Error>> =
                timeout(SILENT, events.next()).await.ok().flatten();
            event.map(|event| (event, events))
        });
        Ok(events.map(|event| match event {
            Ok(WatchEvent::Error(status)) | Err(kube::Error::Api(status)) => Err(Failure::Status(status)),
            Ok(event) => Ok(event),
            Err(error) => Err(Failure::Broken(Box::new(error))),
        }))
    }
}

impl Failure {
    /// Whether the present state has to be listed before a watch makes sense: the version to start from is too old, or the
    /// API server was away.
    pub(super) fn wants_a_list(&self) -> bool {
        match self {
            Self::List(_) | Self::Unversioned | Self::WentBack(_) => true,
            Self::Watch(error) => match &**error {
                kube::Error::Api(status) => !matches!(status.code, 403 | 429),
                _ => true,
            },
            Self::Status(status) => status.code == 410,
            Self::Broken(_) => false,
        }
    }
}
