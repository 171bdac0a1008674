//! What the world must know of an operator.

use fastrand::Rng;
use manager::Operator;
use model_apiserver::Model;
use serde_json::Value;

/// An operator as its specification describes it. An implementation uses nothing of the operator's code but the operator itself:
/// who asks `desired()` what is right agrees with it, also where it is wrong.
pub trait Subject: Send + Sync {
    /// The operator.
    fn operator(&self) -> &'static dyn Operator;

    /// Flags of its process, beside those that the world gives.
    fn flags(&self) -> &'static [&'static str] {
        &[]
    }

    /// `apiVersion` and `kind` of its objects.
    fn kind(&self) -> (&'static str, &'static str);

    /// The resource of its objects, such as `memcacheds.memcached.cache.example.com`.
    fn resource(&self) -> &'static str;

    /// The resources of the children, such as `deployments.apps`.
    fn children(&self) -> &'static [&'static str];

    /// A valid spec for the object of this name. Each optional field is absent in some; what cannot be changed is always the same.
    fn spec(&self, name: &str, rng: &mut Rng) -> Value;

    /// A merge patch of a child of this resource that changes what the operator decides; `None` if its kind cannot be changed.
    fn damage(&self, resource: &str, rng: &mut Rng) -> Option<Value>;

    /// Whether the cluster is as the specification says for this object, which is neither paused nor being deleted, when all has
    /// come to rest; or what is wrong.
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    fn judge(&self, object: &Value, cluster: &Model) -> Result<(), String>;
}
