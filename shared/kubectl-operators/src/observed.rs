//! An object with what belongs to it: what `describe` and `trace` show.

use jiff::Timestamp;
use kube::api::DynamicObject;

use crate::{
    Session,
    children::{self, Children},
    cli::TargetFlags,
    events::{self, Event},
    kinds::Kind,
    request::find,
};

pub(crate) struct Observed<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) object: DynamicObject,
    pub(crate) children: Children,
    /// The events about the object, or why they cannot be read.
    pub(crate) events: Result<Vec<Event>, String>,
    pub(crate) now: Timestamp,
}

impl<'a> Observed<'a> {
    pub(crate) async fn read(session: &'a Session, target: &TargetFlags) -> Result<Self, String> {
        let (kind, object) = find(session, target).await?;
        let (children, events) = futures::join!(children::of(session, kind, &object), events::of(session, &object));
        Ok(Self { kind, object, children, events, now: session.now })
    }
}
