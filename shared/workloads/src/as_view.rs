//! Caches kinds of other crates. No crate but `workloads` can implement [`Viewed`] for them.

use std::{borrow::Cow, fmt::Debug, marker::PhantomData, ops::Deref};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

use crate::{Child, Scoped, Viewed};

/// The kind `K` of another crate, cached as the view `V` that an operator defines.
///
/// ```
/// use k8s_openapi::api::apps::v1::StatefulSet;
/// use serde::Deserialize;
/// use workloads::{As, ViewOf};
///
/// #[derive(Debug, PartialEq, Deserialize)]
/// struct Readiness {
///     status: Status,
/// }
/// # #[derive(Debug, PartialEq, Deserialize)]
/// # struct Status {}
/// impl ViewOf<StatefulSet> for Readiness {}
///
/// let child: As<StatefulSet, Readiness> = StatefulSet::default().into();
/// ```
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct As<K, V> {
    object: K,
    #[serde(skip)]
    view: PhantomData<fn() -> V>,
}

/// The kind `K` of another crate, cached whole. It needs no code, but more memory than a view: a typed Deployment takes 12
/// to 20 KB. Define a view of your own for a kind with many objects, see [`As`].
pub type Whole<K> = As<K, WholeView<K>>;

/// A view of the kind `K`, see [`Viewed::View`].
///
/// The runtime does not know the defaults of such a kind. This costs one request for each create. Only defaults in the elements of
/// lists without keys, such as `volumeClaimTemplates`, cost more: a read and a dry run in each process.
pub trait ViewOf<K>: DeserializeOwned + Debug + PartialEq + Send + Sync + 'static {}

/// A whole object of the kind `K`, without `managedFields` and the resource version. It derefs to the object.
#[derive(Debug, Clone, PartialEq)]
pub struct WholeView<K>(K);

impl<K, V> From<K> for As<K, V> {
    fn from(object: K) -> Self {
        Self { object, view: PhantomData }
    }
}

impl<K: Resource, V> Resource for As<K, V> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(kind: &K::DynamicType) -> Cow<'_, str> {
        K::kind(kind)
    }

    fn group(kind: &K::DynamicType) -> Cow<'_, str> {
        K::group(kind)
    }

    fn version(kind: &K::DynamicType) -> Cow<'_, str> {
        K::version(kind)
    }

    fn plural(kind: &K::DynamicType) -> Cow<'_, str> {
        K::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        self.object.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.object.meta_mut()
    }
}

impl<K, V> Viewed for As<K, V>
where
    K: Scoped + Debug + Send + Sync + 'static,
    V: ViewOf<K>,
{
    type View = V;
}

impl<K, V> Child for As<K, V>
where
    K: Scoped + Serialize + Debug + Send + Sync + 'static,
    V: ViewOf<K>,
{
    const KNOWS_DEFAULTS: bool = false;
}

impl<K> ViewOf<K> for WholeView<K> where K: Resource + DeserializeOwned + Debug + PartialEq + Send + Sync + 'static {}

impl<K> Deref for WholeView<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<'de, K: Resource + Deserialize<'de>> Deserialize<'de> for WholeView<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = K::deserialize(deserializer)?;
        // These change with each write, whatever it changes.
        object.meta_mut().managed_fields = None;
        object.meta_mut().resource_version = None;
        Ok(Self(object))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::{Value, json};

    use super::*;

    fn view(object: &Value) -> WholeView<Secret> {
        serde_json::from_value(object.clone()).expect("a Secret")
    }

    #[test]
    fn whole_view_ignores_bookkeeping_metadata() {
        let mut object = json!({
            "metadata": {"name": "a", "resourceVersion": "1", "managedFields": [{"manager": "kubectl"}]},
            "data": {"password": "aHVudGVyMg=="},
        });
        let before = view(&object);
        assert_eq!(before.data.as_ref().map(|data| data["password"].0.as_slice()), Some(b"hunter2".as_slice()));
        object["metadata"] = json!({"name": "a", "resourceVersion": "2"});
        assert_eq!(view(&object), before);
        object["metadata"]["annotations"] = json!({"a": "b"});
        assert_ne!(view(&object), before);
    }

    #[test]
    fn wrapped_child_is_sent_as_the_object_itself() {
        let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "a"}})).expect("a Secret");
        let child = Whole::from(secret.clone());
        assert_eq!(serde_json::to_value(&child).expect("JSON"), serde_json::to_value(&secret).expect("JSON"));
        assert_eq!((Whole::<Secret>::kind(&()), Whole::<Secret>::plural(&())), ("Secret".into(), "secrets".into()));
    }
}
