//! Admission and conversion webhooks: validation, defaulting, and conversion between versions.
//!
//! An operator declares them as pure functions:
//!
//! ```ignore
//! vec![
//!     Webhook::validating(validation::review),     // (Option<&Kind>, &Kind) -> ValidationResult
//!     Webhook::converting::<Kind>(&["v1", "v2"], convert::convert), // (Value, &str) -> Result<Value, String>
//!     Webhook::reviewing(protect).on(&[Operation::Delete]), // (&Review<Kind>) -> ValidationResult
//! ]
//! ```
//!
//! This crate does the rest. `review` answers every request by calling these functions. `configuration` builds the webhook
//! configurations for the API server from the same declarations. The crate `certificates` shares the certificates with other
//! replicas through a Secret, and `trust` writes the `caBundle` for the API server. `server` serves, on standbys too.
#![deny(missing_docs)]

use std::{any::TypeId, sync::Arc};

use kube::{Resource, core::ClusterResourceScope};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

mod answer;
mod brief;
mod configuration;
mod conversion;
#[cfg(test)]
mod fuzzing;
mod memory;
mod object;
mod observer;
mod review;
mod reviewed;
mod selfcheck;
mod server;
mod setup;
mod trust;
mod weight;

#[doc(hidden)]
pub use answer::{Reply, answer};
pub use configuration::{Endpoint, configurations, resources};
pub use observer::{Conversion, Observer};
pub use reviewed::{Operation, Review, User};
pub use server::{WebhookHealth, WebhookServer};
pub use setup::{Plan, assert_paths_differ, prepare};

use review::{Admission, Answer, Refusal};

/// One webhook of one kind and version.
#[derive(Clone)]
pub struct Webhook {
    pub(crate) target: Target,
    pub(crate) work: Work,
}

/// The resource that a webhook handles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) is_namespaced: bool,
    /// The operations that the API server asks about.
    pub(crate) operations: Vec<Operation>,
    /// Conditions under which the API server asks: name and CEL expression.
    pub(crate) conditions: Vec<(String, String)>,
}

/// What a webhook does with an object.
#[derive(Clone)]
pub(crate) enum Work {
    Default(Admit),
    /// `true` if it only warns: its failure policy is `Ignore`, so the API server continues without an answer.
    Validate(Admit, bool),
    /// Sees the whole request.
    Review(Admit),
    /// The versions, and the function that converts between them.
    Convert(&'static [&'static str], fn(Value, &str) -> Result<Value, String>),
}

/// An operator's typed function, wrapped so that its kind does not show.
type Admit = Arc<dyn Fn(&Admission<'_>) -> Result<Answer, Refusal> + Send + Sync>;

/// The result of a validation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValidationResult {
    /// Errors; any of them refuses the object.
    pub errors: Vec<FieldError>,
    /// Warnings for the user; kubectl prints them.
    pub warnings: Vec<String>,
}

/// An invalid field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct FieldError {
    /// The path of the field, such as `spec.config.extraArgs`.
    pub field: String,
    /// What is wrong, and what is allowed.
    pub why: String,
}

/// A kind that webhooks can handle. Every custom resource type implements it.
pub trait Reviewed: Resource<DynamicType = (), Scope: 'static> + Serialize + DeserializeOwned + 'static {}
impl<K: Resource<DynamicType = (), Scope: 'static> + Serialize + DeserializeOwned + 'static> Reviewed for K {}

impl Webhook {
    /// A validating webhook for kind `K`, in the version of `K`. The function gets the stored object (on an update) and the new
    /// one.
    ///
    /// The runtime adds ratcheting: it ignores an error that the stored object has too, as long as the field does not change.
    /// So a rule of a later release never blocks updates of an existing object. The runtime also admits every object that is
    /// being deleted, so that finalizers can be removed.
    pub fn validating<K: Reviewed>(validate: fn(Option<&K>, &K) -> ValidationResult) -> Self {
        let work = move |admission: &Admission<'_>| review::validate(admission, &validate);
        Self { target: Target::of::<K>(), work: Work::Validate(Arc::new(work), false) }
    }

    /// Like [`validating`](Self::validating), for a function that only warns: the API server continues without an answer.
    pub fn warning<K: Reviewed>(validate: impl Fn(Option<&K>, &K) -> ValidationResult + Send + Sync + 'static) -> Self {
        let work = move |admission: &Admission<'_>| review::validate(admission, &validate);
        Self { target: Target::of::<K>(), work: Work::Validate(Arc::new(work), true) }
    }

    /// A validating webhook for kind `K` that sees the whole request: also deletions, the user, and whether it is a dry run. By default
    /// it is called for creations and updates, see [`on`](Self::on). Without ratcheting.
    ///
    /// The function should depend on the request alone, because the API server may call it several times, and for requests that are
    /// refused later. It may read a cache, which is a moment old. An update of an object that is being deleted is always admitted, so
    /// that finalizers can be removed.
    pub fn reviewing<K: Reviewed>(review: impl Fn(&Review<K>) -> ValidationResult + Send + Sync + 'static) -> Self {
        let work = move |admission: &Admission<'_>| review::review(admission, &review);
        Self { target: Target::of::<K>(), work: Work::Review(Arc::new(work)) }
    }

    /// Sets the operations for which the API server calls the webhook.
    ///
    /// # Panics
    ///
    /// When `operations` is empty, or when the webhook converts. Also when `operations` has [`Operation::Delete`] and the webhook is not
    /// one of [`reviewing`](Self::reviewing): all others get the object that will be stored, and a deletion stores none.
    #[must_use]
    pub fn on(mut self, operations: &[Operation]) -> Self {
        self.assert_is_of_requests("on");
        let kind = &self.target.kind;
        assert!(!operations.is_empty(), "a webhook of {kind} declares .on(&[]): name an operation, or leave it out");
        assert!(
            matches!(self.work, Work::Review(_)) || !operations.contains(&Operation::Delete),
            "a webhook of {kind} declares .on(…) with Delete, but gets only objects that will be stored: use \
             Webhook::reviewing"
        );
        self.target.operations = operations.to_vec();
        self
    }

    /// Adds a condition in CEL, such as `request.userInfo.username != 'admin'`: the API server calls the webhook only if it is true.
    /// `name` describes it, such as `not-the-admin`.
    ///
    /// # Panics
    ///
    /// For a conversion.
    #[must_use]
    pub fn only_if(mut self, name: &str, condition: &str) -> Self {
        self.assert_is_of_requests("only_if");
        self.target.conditions.push((name.to_owned(), condition.to_owned()));
        self
    }

    fn assert_is_of_requests(&self, method: &str) {
        let is_conversion = matches!(self.work, Work::Convert(..));
        let kind = &self.target.kind;
        assert!(
            !is_conversion,
            "the conversion of {kind} declares .{method}(…): the API server asks for all conversions"
        );
    }

    /// A mutating webhook that sets defaults in objects of kind `K`, for defaults that a schema cannot express.
    pub fn defaulting<K: Reviewed>(default: fn(&mut K)) -> Self {
        let work = move |admission: &Admission<'_>| review::default(admission, default);
        Self { target: Target::of::<K>(), work: Work::Default(Arc::new(work)) }
    }

    /// A conversion webhook for objects of `K`'s group and kind between these `versions`. The function gets the object, with its
    /// current `apiVersion`, and the target version without the group; both are among `versions`. It must not change name,
    /// namespace or uid, and must not fail for any object that can be stored.
    pub fn converting<K: Reviewed>(
        versions: &'static [&'static str],
        convert: fn(Value, &str) -> Result<Value, String>,
    ) -> Self {
        Self { target: Target::of::<K>(), work: Work::Convert(versions, convert) }
    }

    /// The URL path, the same as in controller-runtime.
    pub fn path(&self) -> String {
        let Target { group, version, kind, .. } = &self.target;
        let tail = format!("{}-{version}-{}", group.replace('.', "-"), kind.to_lowercase());
        match self.work {
            Work::Default(_) => format!("/mutate-{tail}"),
            Work::Validate(..) => format!("/validate-{tail}"),
            Work::Review(_) => format!("/review-{tail}"),
            Work::Convert(..) => CONVERT.to_owned(),
        }
    }

    /// The name of the CRD whose objects it converts; `None` for an admission webhook.
    pub fn definition(&self) -> Option<String> {
        let Target { group, plural, .. } = &self.target;
        matches!(self.work, Work::Convert(..)).then(|| format!("{plural}.{group}"))
    }

    /// The name in a webhook configuration, such as `vmemcached-v1.memcached.cache.example.com`.
    pub(crate) fn name(&self) -> String {
        let Target { group, version, kind, .. } = &self.target;
        let letter = match self.work {
            Work::Default(_) => 'm',
            Work::Review(_) => 'r',
            Work::Validate(..) | Work::Convert(..) => 'v',
        };
        format!("{letter}{}-{version}.{group}", kind.to_lowercase())
    }
}

/// The path of all conversions.
pub const CONVERT: &str = "/convert";

impl Target {
    fn of<K: Reviewed>() -> Self {
        Self {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
            is_namespaced: TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>(),
            operations: vec![Operation::Create, Operation::Update],
            conditions: Vec::new(),
        }
    }
}

impl ValidationResult {
    /// No errors and no warnings.
    pub fn none() -> Self {
        Self::default()
    }

    /// Checks the result in a reconciler, for objects that no webhook has validated or that are older than the rule.
    ///
    /// # Errors
    ///
    /// The first error; its message names the others too.
    pub fn check(self) -> Result<(), FieldError> {
        let mut errors = self.errors.into_iter();
        let Some(mut first) = errors.next() else { return Ok(()) };
        for FieldError { field, why } in errors {
            first.why = format!("{}; also: {field}: {why}", first.why);
        }
        Err(first)
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

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
