//! Lists the objects of a kind in pages.

use kube::{
    Api,
    api::{DynamicObject, ListParams, PartialObjectMeta},
};

use crate::persist::{is_expired, persist};

/// How often a list may start again because the API server has forgotten its position.
const RESTARTS: u32 = 20;

/// A list in progress.
pub(crate) struct Pages {
    api: Api<DynamicObject>,
    /// Where the next page begins; `None` for the first page.
    token: Option<String>,
    limit: u32,
    /// How many objects to read one by one before pages are tried again.
    singly: u32,
    restarts: u32,
    ended: bool,
    /// The last object that was listed.
    last: Option<String>,
}

/// One page.
pub(crate) struct Page {
    /// The metadata of its objects.
    pub(crate) objects: Vec<PartialObjectMeta<DynamicObject>>,
    /// How many objects follow, as far as the API server says.
    pub(crate) remaining: u64,
}

/// Why a list ended early.
pub(crate) struct Unreadable {
    pub(crate) error: kube::Error,
    /// The last object that could be read.
    pub(crate) after: Option<String>,
}

impl Pages {
    pub(crate) fn new(api: Api<DynamicObject>, limit: u32) -> Self {
        Self { api, token: None, limit, singly: 0, restarts: 0, ended: false, last: None }
    }

    /// The next page, or `None` after the last one.
    ///
    /// If a page cannot be read, reads its objects one by one, so that those before the unreadable one are migrated, and the error
    /// is about that one.
    pub(crate) async fn next(&mut self) -> Result<Option<Page>, Unreadable> {
        while !self.ended {
            let limit = if self.singly > 0 { 1 } else { self.limit };
            let parameters =
                ListParams { limit: Some(limit), continue_token: self.token.clone(), ..ListParams::default() };
            match persist(async || self.api.list_metadata(&parameters).await).await {
                Ok(list) => {
                    self.token = list.metadata.continue_.filter(|token| !token.is_empty());
                    self.ended = self.token.is_none();
                    self.singly = self.singly.saturating_sub(1);
                    if let Some(object) = list.items.last() {
                        self.last = Some(named(object));
                    }
                    let remaining = list.metadata.remaining_item_count.and_then(|count| u64::try_from(count).ok());
                    return Ok(Some(Page { objects: list.items, remaining: remaining.unwrap_or_default() }));
                }
                Err(error) if is_expired(&error) && self.restarts < RESTARTS => {
                    self.restarts += 1;
                    // The API server offers to continue at the same position in its present state. Objects that were created
                    // since are stored in the storage version.
                    self.token = match error {
                        kube::Error::Api(status) => status.metadata.and_then(|metadata| metadata.continue_),
                        _ => None,
                    };
                }
                Err(kube::Error::Api(status)) if status.code >= 500 && limit > 1 => self.singly = self.limit,
                Err(error) => return Err(Unreadable { error, after: self.last.clone() }),
            }
        }
        Ok(None)
    }
}

/// The object as messages name it.
pub(crate) fn named(object: &PartialObjectMeta<DynamicObject>) -> String {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    match object.metadata.namespace.as_deref() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}
