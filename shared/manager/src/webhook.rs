//! Webhooks: what an operator wants to say about objects before they are stored, and how one version becomes another.
//!
//! An operator's part is pure functions ([`Operator::webhooks`](crate::Operator::webhooks)):
//!
//! ```ignore
//! fn webhooks(&self) -> Vec<Webhook> {
//!     vec![
//!         Webhook::validating(webhook::validate),            // (Option<&Memcached>, &Memcached) -> Findings
//!         Webhook::converting::<Memcached>(convert::convert), // (Value, &str) -> Result<Value, String>
//!     ]
//! }
//! ```
//!
//! The runtime's part: `review` turns requests into calls of these functions, and never drops one; `configuration` makes
//! the configurations for the API server from the same declarations; `pki` decides when which certificate is made,
//! `keeper` shares them with other replicas through a Secret and tells the API server whom to trust; `server` serves, also
//! on a standby.

use std::sync::Arc;

use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub(crate) mod configuration;
mod keeper;
mod pki;
mod review;
mod selfcheck;
pub(crate) mod server;
pub(crate) mod setup;
mod trust;

use crate::error::Error;
use review::{Admission, Answer, Refusal};

/// One webhook of one kind and version.
#[derive(Clone)]
pub struct Webhook {
    pub(crate) target: Target,
    pub(crate) work: Work,
}

/// The resource that a webhook is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
}

/// What is done with an object.
#[derive(Clone)]
pub(crate) enum Work {
    Default(Admit),
    /// With `true`, it only warns: the API server does without when nobody answers.
    Validate(Admit, bool),
    Convert(fn(Value, &str) -> Result<Value, String>),
}

/// The typed function of an operator, made to fit any kind.
type Admit = Arc<dyn Fn(&Admission<'_>) -> Result<Answer, Refusal> + Send + Sync>;

/// What a validation has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// What must not be stored.
    pub errors: Vec<FieldError>,
    /// What people should know; kubectl prints it.
    pub warnings: Vec<String>,
}

/// A field that must not be stored as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The path, as the user writes it: `spec.config.extraArgs`.
    pub field: String,
    /// What is wrong, and what is allowed.
    pub why: String,
}

/// A kind that a webhook can be about.
pub trait Reviewed: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static {}
impl<K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static> Reviewed for K {}

impl Webhook {
    /// Refuses objects of kind `K`. The function is given the object as it is stored, if it is an update, and as it shall
    /// be; the version is that of `K`.
    ///
    /// Ratcheting is the runtime's: an error that the stored object has too is let pass while its field does not change, so
    /// that a rule of a later release never locks up an object that is there. Objects that are being deleted are always
    /// let pass, so that finalizers can be removed.
    pub fn validating<K: Reviewed>(validate: fn(Option<&K>, &K) -> Findings) -> Self {
        let work = move |admission: &Admission<'_>| review::validate(admission, validate);
        Self { target: Target::of::<K>(), work: Work::Validate(Arc::new(work), false) }
    }

    /// Like [`validating`](Self::validating), for a function that only warns: without an answer the API server goes on.
    pub fn warning<K: Reviewed>(validate: fn(Option<&K>, &K) -> Findings) -> Self {
        let work = move |admission: &Admission<'_>| review::validate(admission, validate);
        Self { target: Target::of::<K>(), work: Work::Validate(Arc::new(work), true) }
    }

    /// Fills in what objects of kind `K` leave open and the schema's defaults cannot say.
    pub fn defaulting<K: Reviewed>(default: fn(&mut K)) -> Self {
        let work = move |admission: &Admission<'_>| review::default(admission, default);
        Self { target: Target::of::<K>(), work: Work::Default(Arc::new(work)) }
    }

    /// Converts objects of `K`'s group and kind between versions. The function is given the object, whose `apiVersion`
    /// says what it is, and the wanted version without its group; it must change neither name nor namespace nor uid, and
    /// must not fail for any object that can be stored.
    pub fn converting<K: Reviewed>(convert: fn(Value, &str) -> Result<Value, String>) -> Self {
        Self { target: Target::of::<K>(), work: Work::Convert(convert) }
    }

    /// Where the API server finds it; controller-runtime's paths.
    pub(crate) fn path(&self) -> String {
        let Target { group, version, kind, .. } = &self.target;
        let tail = format!("{}-{version}-{}", group.replace('.', "-"), kind.to_lowercase());
        match self.work {
            Work::Default(_) => format!("/mutate-{tail}"),
            Work::Validate(..) => format!("/validate-{tail}"),
            Work::Convert(_) => CONVERT.to_owned(),
        }
    }

    /// The definition whose objects it converts, by name; `None` when it does something else.
    pub(crate) fn definition(&self) -> Option<String> {
        let Target { group, plural, .. } = &self.target;
        matches!(self.work, Work::Convert(_)).then(|| format!("{plural}.{group}"))
    }

    /// Its name in a configuration: `vmemcached-v1.memcached.cache.example.com`.
    pub(crate) fn name(&self) -> String {
        let Target { group, version, kind, .. } = &self.target;
        let letter = if matches!(self.work, Work::Default(_)) { 'm' } else { 'v' };
        format!("{letter}{}-{version}.{group}", kind.to_lowercase())
    }
}

/// The path of all conversions.
pub(crate) const CONVERT: &str = "/convert";

impl Target {
    fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
        }
    }
}

impl Findings {
    /// Nothing to say.
    pub fn none() -> Self {
        Self::default()
    }

    /// The same findings for a controller: where no webhook runs, or an object is older than its rules, a reconciler stops
    /// here and people are told (`InvalidSpec`).
    pub fn check(self) -> Result<(), Error> {
        let mut errors = self.errors.into_iter();
        let Some(FieldError { field, mut why }) = errors.next() else { return Ok(()) };
        for other in errors {
            why = format!("{why}; also: {}: {}", other.field, other.why);
        }
        Err(Error::Invalid { field, why })
    }

    /// Adds an error.
    pub fn refuse(&mut self, field: impl Into<String>, why: impl Into<String>) {
        self.errors.push(FieldError { field: field.into(), why: why.into() });
    }

    /// Adds a warning.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("path", &self.path()).field("target", &self.target).finish_non_exhaustive()
    }
}
