//! Which objects a change of a related object wakes: its owners, those that its labels name, those that refer to it, or those that
//! the operator's own function names. Always both from before and from after the change.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use api_errors::panic_message;
use cache::{AppKey, Delta, Full, Informer, ObjectKey, Owner, Subscriber};
use workloads::{Child, Live, Scoped, Viewed};

use super::{Wiring, priority};
use crate::{
    status::Primary,
    wake::{Cause, wake},
};

type DeltaOf<C> = Delta<Live<<C as Viewed>::View>>;

/// Whether the reconcile of `key` by this controller made the change. It has acted on it already.
pub(super) fn is_own_write<I>(delta: &Delta<I>, controller: usize, key: &ObjectKey) -> bool {
    delta.writer.as_ref().is_some_and(|writer| writer.controller == controller && writer.key == *key)
}

/// Returns a subscriber that wakes the objects whose keys `map` returns, but for the one whose reconcile made the change.
pub(super) fn waking<C: Viewed>(
    wiring: &Wiring<'_, impl Primary>,
    map: impl Fn(&DeltaOf<C>) -> Vec<ObjectKey> + Send + Sync + 'static,
) -> Subscriber<Live<C::View>> {
    let (queue, app, controller) = (wiring.queue.clone(), wiring.app.clone(), wiring.memory.controller());
    Box::new(move |delta, origin| {
        let mut keys = map(delta);
        keys.retain(|key| !is_own_write(delta, controller, key));
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let cause = Cause::Related { kind: &C::kind(&()), key: &delta.key, origin };
            wake(&queue, &app, key, priority(origin), &cause);
        }
    })
}

/// The objects that the labels name.
pub(super) fn by_labels<K: Primary, C: Viewed>(
    app: &Arc<str>,
) -> impl Fn(&DeltaOf<C>) -> Vec<ObjectKey> + Send + Sync + use<K, C> {
    let app = app.clone();
    move |delta| {
        let labelled = delta.apps.iter().flatten().filter(|belongs: &&AppKey| belongs.is_of(&app));
        labelled.map(|belongs| in_scope_of::<K>(&belongs.instance.namespace, &belongs.instance.name)).collect()
    }
}

/// The objects that the labels name, and the owners. Records a child that its owner has lost.
pub(super) fn by_labels_and_owner<K: Primary, C: Child>(
    wiring: &Wiring<'_, K>,
) -> impl Fn(&DeltaOf<C>) -> Vec<ObjectKey> + Send + Sync + use<K, C> {
    let (primary, memory, controller) = (wiring.primary.clone(), wiring.memory.clone(), wiring.memory.controller());
    let labelled = by_labels::<K, C>(wiring.app);
    move |delta| {
        let owners = delta.owners.iter().flatten().filter_map(|owner| {
            let key = owner_key(&primary, owner, &delta.key.namespace)?;
            if !is_own_write(delta, controller, &key) {
                memory.record_lost_child(&key, &C::kind(&()), delta);
            }
            Some(key)
        });
        let mut keys = labelled(delta);
        keys.extend(owners);
        keys
    }
}

/// The objects that the operator's function names. All objects, if it panics.
pub(super) fn by_map<K: Primary, C: Viewed, M>(
    primary: &Arc<Informer<Full<K>>>,
    map: M,
) -> impl Fn(&DeltaOf<C>) -> Vec<ObjectKey> + Send + Sync + use<K, C, M>
where
    M: Fn(&Live<C::View>) -> Vec<ObjectKey> + Send + Sync + 'static,
{
    let primary = primary.clone();
    move |delta| {
        let objects = delta.items.iter().flatten();
        let mapped = catch_unwind(AssertUnwindSafe(|| objects.flat_map(|object| map(object)).collect()));
        mapped.unwrap_or_else(|panic| {
            let (kind, panic) = (C::kind(&()), panic_message(&*panic));
            tracing::error!(%kind, object = %delta.key, panic, "The function of `watches` failed; all objects are reconciled");
            primary.store.keys()
        })
    }
}

/// The objects that refer to the changed one.
pub(super) fn by_reference<K: Primary, C: Viewed>(
    primary: &Arc<Informer<Full<K>>>,
    index: &'static str,
) -> impl Fn(&DeltaOf<C>) -> Vec<ObjectKey> + Send + Sync + use<K, C> {
    let primary = primary.clone();
    move |delta| primary.store.indexed_keys(index, &delta.key.namespace, &delta.key.name)
}

/// Returns the key of the object that an owner reference names, if that object is in the cache and has the reference's uid.
fn owner_key<K: Primary>(primary: &Informer<Full<K>>, owner: &Owner, namespace: &Arc<str>) -> Option<ObjectKey> {
    let key = in_scope_of::<K>(namespace, &owner.name);
    primary.store.uid(&key).filter(|uid| *uid == owner.uid).map(|_| key)
}

/// Returns the key of the object that another object in `namespace` names.
fn in_scope_of<K: Scoped>(namespace: &Arc<str>, name: &Arc<str>) -> ObjectKey {
    let namespace = if K::IS_NAMESPACED { namespace.clone() } else { "".into() };
    ObjectKey { namespace, name: name.clone() }
}
