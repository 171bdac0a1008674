//! Which objects besides its own a controller watches, and which of its objects their changes wake.

use std::sync::Arc;

use cache::{InformerHealth, ObjectKey, resource_name};
use kube::{Resource, core::NamespaceResourceScope};
use workloads::{Child, Live, MayOwn, Viewed};

use super::{
    ControllerBuilder,
    related::{by_labels, by_labels_and_owner, by_map, by_reference, waking},
};
use crate::{
    context::{Caches, Shared},
    rbac::Permission,
    status::Primary,
};

impl<K: Primary, S: Shared> ControllerBuilder<K, S> {
    /// Declares that objects of kind `C` are children: their changes wake their owner, and the Context may write them.
    ///
    /// The watch selects by the label `app.kubernetes.io/managed-by`, so objects that are not ours cost nothing. Use
    /// [`Whole`](workloads::Whole) for a kind of another crate.
    ///
    /// For a Role or a `ClusterRole`, the derived permissions are not enough: the API server refuses one that grants what the
    /// operator itself may not do. So the operator also needs all that its roles grant, or the verb `escalate` on roles, and for
    /// bindings `bind` ([`permits`](Self::permits)).
    pub fn owns<C: Child>(mut self) -> Self
    where
        K::Scope: MayOwn<C::Scope>,
    {
        self.options.needs.push(resource_name::<C>());
        self.source_of_children::<C>(|_, health| health.require())
    }

    /// Like [`owns`](Self::owns), for a kind that not every cluster has, such as `ServiceMonitor`. While its definition is not
    /// installed, such children are left out: [`Context::apply`](crate::Context::apply) does nothing. Once it is installed, all
    /// objects are reconciled again.
    ///
    /// The derived permissions include the watch of that definition, by its name, which shows at once that it is installed. With
    /// `--watch-namespaces`, Roles are enough, and these cannot grant it. Then, and where the API server refuses the watch, a list that is
    /// repeated at least every ten minutes shows it.
    ///
    /// Only a kind that a `CustomResourceDefinition` defines is noticed when it appears. One that an aggregated API server serves is
    /// used if it is there when the operator starts, and otherwise after the next start at the latest.
    pub fn owns_if_installed<C: Child>(mut self) -> Self
    where
        K::Scope: MayOwn<C::Scope>,
    {
        self.options.capabilities.optional.insert(resource_name::<C>());
        self.rules.push(Permission::watch_of_definition::<C>());
        self.source_of_children::<C>(|caches, health| caches.optional.push(health.clone()))
    }

    fn source_of_children<C: Child>(mut self, note: fn(&mut Caches, &Arc<InformerHealth>)) -> Self {
        // Clusters that enforce owner references (OpenShift does) require `delete` of a client that changes those of an object, as
        // an adoption does, also if the operator deletes no such child.
        self.rules.push(Permission::on::<C>(&["get", "list", "watch", "create", "patch", "delete"]));
        // They require this permission for `blockOwnerDeletion`.
        self.rules.push(Permission::on::<K>(&["update"]).subresource("finalizers"));
        self.children.push(C::kind(&()).into_owned());
        self.sources.push(Box::new(move |wiring| {
            let informer = wiring.informers.projected::<C>(wiring.app);
            informer.subscribe(waking::<C>(wiring, by_labels_and_owner::<K, C>(wiring)));
            note(wiring.caches, &informer.health);
            wiring.caches.insert(informer);
        }));
        self
    }

    /// Declares that the reconciler reads objects of kind `C` that carry the labels of the reconciled object, and that their
    /// changes wake it: for pods that a child's own controller creates.
    ///
    /// The watch selects by the label `app.kubernetes.io/managed-by`, as that of [`owns`](Self::owns).
    pub fn watches_labelled<C: Viewed>(mut self) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        // This wakes through the same `waking` as `watches`, but is not defined by it. `watches` reads and keeps all objects of the kind,
        // with an index of the keys that its function returns, and the function could read only labels that the view keeps in memory.
        // Here the API server selects the objects, and the cache takes the key from the labels when it makes the view.
        self.watch::<C>();
        self.sources.push(Box::new(|wiring| {
            let informer = wiring.informers.projected::<C>(wiring.app);
            informer.health.require();
            informer.subscribe(waking::<C>(wiring, by_labels::<K, C>(wiring.app)));
            wiring.caches.insert(informer);
        }));
        self
    }

    /// Declares that the reconciler reads objects of kind `C`, its own or not, and that a change of one wakes the objects whose
    /// keys `map` returns. `map` is called with the object as it was and as it is. It must depend on the object alone.
    /// [`Context::watched`](crate::Context::watched) returns the objects whose `map` names the reconciled object.
    ///
    /// The watch has no selector: the cache holds the view of every object of the kind that the process may read. If `map`
    /// panics, the change wakes all objects.
    ///
    /// # Panics
    ///
    /// When the controller has declared this for the kind before.
    pub fn watches<C: Viewed>(
        mut self,
        map: impl Fn(&Live<C::View>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        let name = index_of_watched::<K, C>();
        assert!(
            self.options.capabilities.watched.insert(name),
            "{}'s controller declares .watches::<{}>() twice: one function has to return all keys",
            K::kind(&()),
            C::kind(&())
        );
        self.watch::<C>();
        self.sources.push(Box::new(move |wiring| {
            let (informer, map) = (wiring.informers.projected_whole::<C>(), Arc::new(map));
            let index = map.clone();
            let values = move |object: &_| index(object).iter().map(ObjectKey::to_string).collect();
            informer.store.index_cluster(name, Box::new(values));
            informer.health.require();
            informer.subscribe(waking::<C>(wiring, by_map::<K, C, _>(wiring.primary, move |object: &_| map(object))));
            wiring.caches.insert_of_all_namespaces(informer);
        }));
        self
    }

    /// Like [`watches`](Self::watches), for objects that the reconciled object names: a change of one wakes the objects in the same
    /// namespace whose `references` contain its name.
    ///
    /// `references` must depend on the object alone. A reference takes as much memory as a value of an [`index`](Self::index).
    /// If this is declared several times for a kind, the references of all count.
    pub fn watches_referenced<C>(mut self, references: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Self
    where
        C: Viewed + Resource<Scope = K::Scope>,
    {
        let index = std::any::type_name::<C>();
        if let Some((_, values)) = self.indices.iter_mut().find(|(name, _)| *name == index) {
            let earlier = std::mem::replace(values, Box::new(|_| Vec::new()));
            *values = Box::new(move |object| [earlier(object), references(object)].concat());
            return self;
        }
        self.watch::<C>();
        self.indices.push((index, Box::new(references)));
        self.sources.push(Box::new(move |wiring| {
            let informer = wiring.informers.projected_whole::<C>();
            informer.health.require();
            informer.subscribe(waking::<C>(wiring, by_reference::<K, C>(wiring.primary, index)));
            wiring.caches.insert(informer);
        }));
        self
    }

    fn watch<C: Viewed>(&mut self) {
        self.rules.push(Permission::on::<C>(&["list", "watch"]));
        self.options.needs.push(resource_name::<C>());
    }
}

/// The name of the index by which a controller of `K` finds the objects of kind `C` that name an object of its own.
pub(crate) fn index_of_watched<K, C>() -> &'static str {
    std::any::type_name::<(K, C)>()
}
