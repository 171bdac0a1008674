//! The list and watch requests that keep a [`Store`](crate::store::Store) in step with the API server.
//!
//! A list is read in pages that all show one version; the watch continues from there. A watch that ends, breaks or gets a 403
//! or 429 is restarted from its last version. After any other failure to start it, and after a silence, the informer relists: the
//! version may be too old, or the API server was out of reach and may have been restored from a backup meanwhile. A restored API
//! server accepts a watch that starts at a version which it has not reached, and sends nothing on it.

use std::time::Duration;

use api_errors::{Class, classify};
use futures::{Stream, StreamExt};
use http_body_util::LengthLimitError;
use kube::{
    Client,
    api::{ListParams, WatchParams},
    core::{Request, Status, WatchEvent},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{error::Elapsed, timeout};
use workloads::Scoped;

use super::page_size::PageSize;
use crate::store::WentBack;

/// The API server ends a watch after this time, in seconds.
const WATCH_SECONDS: u32 = 230;
/// A watch that has received nothing for this time, not even its end, is given up.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);

/// Where the API server has the definitions of all custom kinds.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// An event as the client gets it. Its object stays raw.
type Received = Result<WatchEvent<Box<RawValue>>, kube::Error>;

/// Sends the requests for the objects of one kind in one scope.
pub(super) struct Reflector {
    client: Client,
    request: Request,
    selector: Option<String>,
    fields: Option<String>,
}

/// Why a list or a watch could not go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("could not list")]
    List(#[source] Box<kube::Error>),
    #[error("could not start a watch")]
    Watch(#[source] Box<kube::Error>),
    /// The watch delivered an error event.
    #[error("the watch ended: {}", .0.message)]
    Status(Box<Status>),
    #[error("the watch broke")]
    Broken(#[source] Box<kube::Error>),
    /// The watch has received nothing for [`SILENCE_TIMEOUT`].
    #[error("the watch was silent for {}s", SILENCE_TIMEOUT.as_secs())]
    Silent,
    /// A watch has no version to start from.
    #[error("the list has no resource version")]
    Unversioned,
    #[error(transparent)]
    WentBack(#[from] WentBack),
    #[error("the watch has not delivered a deletion of ours")]
    Overdue,
}

/// A page of a list. Its objects stay raw and are decoded one by one, so that one bad object cannot stop the others.
#[derive(Deserialize)]
pub(super) struct Page<'a> {
    pub(super) metadata: PageMetadata,
    /// Some servers send `null` for an empty list.
    #[serde(borrow)]
    pub(super) items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMetadata {
    resource_version: String,
    /// The continue token for the next page; empty on the last one.
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
    /// A reflector of the namespace `scope`, or of the whole cluster if `scope` is empty.
    pub(super) fn new<K: Scoped>(client: Client, scope: &str, selector: Option<String>) -> Self {
        let namespace = (!scope.is_empty()).then_some(scope);
        Self { client, request: Request::new(K::url_path(&(), namespace)), selector, fields: None }
    }

    /// A reflector of the definition of this name alone. RBAC permits a request with this selector to those who may read that object.
    pub(super) fn of_definition(client: Client, name: &str) -> Self {
        let fields = Some(format!("metadata.name={name}"));
        Self { client, request: Request::new(DEFINITIONS), selector: None, fields }
    }

    /// Requests one page of this size and returns its JSON. An empty `next` requests the first page.
    pub(super) async fn page(&self, next: &str, size: PageSize) -> Result<String, Failure> {
        let mut parameters = ListParams::default().limit(size.limit());
        parameters.label_selector.clone_from(&self.selector);
        parameters.continue_token = (!next.is_empty()).then(|| next.to_owned());
        let request = self.request.list(&parameters).map_err(kube::Error::BuildRequest);
        let answer = async { self.client.request_text(request?).await };
        answer.await.map_err(|error| Failure::List(Box::new(error)))
    }

    /// Starts a watch and returns its events after `version`; without one, first the present state as added objects.
    pub(super) async fn watch(
        &self,
        version: Option<u64>,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Box<RawValue>>, Failure>> + use<>, Failure> {
        let mut parameters = WatchParams::default().timeout(WATCH_SECONDS);
        parameters.label_selector.clone_from(&self.selector);
        parameters.field_selector.clone_from(&self.fields);
        let version = version.map(|it| it.to_string()).unwrap_or_default();
        let request = self.request.watch(&parameters, &version).map_err(kube::Error::BuildRequest);
        let answer = async { self.client.request_events::<Box<RawValue>>(request?).await };
        let events = answer.await.map_err(|error| Failure::Watch(Box::new(error)))?;
        // A dead connection looks the same as one without changes, so silence ends the watch.
        Ok(futures::stream::unfold(Box::pin(events), |mut events| async {
            let received: Result<Option<Received>, Elapsed> = timeout(SILENCE_TIMEOUT, events.next()).await;
            let event = match received {
                Ok(None) => return None,
                Ok(Some(Ok(WatchEvent::Error(status)) | Err(kube::Error::Api(status)))) => Err(Failure::Status(status)),
                Ok(Some(Ok(event))) => Ok(event),
                Ok(Some(Err(error))) => Err(Failure::Broken(Box::new(error))),
                Err(_) => Err(Failure::Silent),
            };
            Some((event, events))
        }))
    }
}

impl Failure {
    /// Whether the body of a page was longer than [`LONGEST`](super::page_size::LONGEST).
    pub(super) fn is_too_long(&self) -> bool {
        let Self::List(error) = self else { return false };
        matches!(&**error, kube::Error::Service(source) if source.is::<LengthLimitError>())
    }

    /// Whether the same page may be there in a moment: the API server is busy or does not answer. A page that has expired never
    /// comes back.
    pub(super) fn is_temporary(&self) -> bool {
        let Self::List(error) = self else { return false };
        let has_expired = matches!(&**error, kube::Error::Api(status) if status.code == 410);
        !has_expired && classify(error) == Class::Transient
    }

    /// Whether a list has to come before the next watch: the version to start from is too old, or the API server was out of reach.
    pub(super) fn wants_a_list(&self) -> bool {
        match self {
            Self::List(_) | Self::Unversioned | Self::WentBack(_) | Self::Overdue | Self::Silent => true,
            Self::Watch(error) => match &**error {
                kube::Error::Api(status) => !matches!(status.code, 403 | 429),
                _ => true,
            },
            Self::Status(status) => status.code == 410,
            Self::Broken(_) => false,
        }
    }
}
