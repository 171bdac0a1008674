//! The operators that run together in each process of a world: usually one, sometimes several, as in the shipped program.

use std::sync::Arc;

use model_apiserver::Model;
use serde_json::Value;

use crate::{
    subject::{ExternalService, Note, Subject},
    users::NAMESPACES,
};

/// The operators of a test. It is made from a reference to one [`Subject`], or from an array of such references. Of several, each
/// [`Plan`](crate::Plan) chooses those that run together in each process.
#[derive(Clone)]
pub struct Subjects(Arc<[&'static dyn Subject]>);

impl<S: Subject + 'static> From<&'static S> for Subjects {
    fn from(subject: &'static S) -> Self {
        Self([subject as &'static dyn Subject].into())
    }
}

impl From<&'static dyn Subject> for Subjects {
    fn from(subject: &'static dyn Subject) -> Self {
        Self([subject].into())
    }
}

impl<const N: usize> From<[&'static dyn Subject; N]> for Subjects {
    fn from(subjects: [&'static dyn Subject; N]) -> Self {
        const { assert!(N > 0, "a world needs an operator") };
        Self(subjects.into())
    }
}

impl Subjects {
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static dyn Subject> {
        self.0.iter().copied()
    }

    /// The operators of these names, in this order. Without names, all.
    ///
    /// # Panics
    ///
    /// When there is no operator of a name.
    pub(crate) fn chosen(&self, names: &[String]) -> Self {
        if names.is_empty() {
            return self.clone();
        }
        let found = |name: &String| {
            let subject = self.all().find(|subject| subject.operator().name() == name);
            subject.unwrap_or_else(|| panic!("the world needs the operator {name}, and the test has {}", self.name()))
        };
        Self(names.iter().map(found).collect())
    }

    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.all().map(|subject| subject.operator().name()).collect()
    }

    /// The names of the operators, such as `a` or `a+b`.
    pub(crate) fn name(&self) -> String {
        self.names().join("+")
    }
}

/// The operators of one world.
#[derive(Clone)]
pub(crate) struct Cast(Arc<[Role]>);

/// One of the operators of one world.
pub(crate) struct Role {
    pub(crate) subject: &'static dyn Subject,
    /// What lies outside the cluster, if the operator works with it.
    pub(crate) outside: Option<Arc<dyn ExternalService>>,
}

impl Cast {
    pub(crate) fn new(subjects: &Subjects, seed: u64, note: &Note) -> Self {
        let role = |subject: &'static dyn Subject| Role { subject, outside: subject.outside(seed, note.clone()) };
        Self(subjects.all().map(role).collect())
    }

    pub(crate) fn all(&self) -> &[Role] {
        &self.0
    }

    /// The number of the operator to which the object with this number belongs: the objects of the operators take turns.
    pub(crate) fn number_of(&self, object: usize) -> usize {
        object % self.0.len()
    }

    /// The operator to which the object with this number belongs.
    pub(crate) fn of(&self, object: usize) -> &Role {
        &self.0[self.number_of(object)]
    }

    /// The operator whose objects are of this resource.
    pub(crate) fn of_resource(&self, resource: &str) -> Option<&Role> {
        self.0.iter().find(|role| role.subject.resource() == resource)
    }

    /// The name and the namespace of the object with this number. No two operators have objects of one name, because both may
    /// want a child of this name. Each name of a namespaced object exists in every namespace. The namespace of a cluster-scoped
    /// object is empty.
    pub(crate) fn place(&self, object: usize, is_cluster_scoped: bool) -> (String, &'static str) {
        let turn = object / self.0.len();
        let (name, namespace) =
            if is_cluster_scoped { (turn, "") } else { (turn / NAMESPACES.len(), NAMESPACES[turn % NAMESPACES.len()]) };
        let letter = name * self.0.len() + self.number_of(object);
        (char::from(b'a' + u8::try_from(letter).unwrap_or_default()).to_string(), namespace)
    }

    /// The resources of all children, each once.
    pub(crate) fn children(&self) -> Vec<&'static str> {
        let mut all = Vec::new();
        for &resource in self.0.iter().flat_map(|role| role.subject.children()) {
            if !all.contains(&resource) {
                all.push(resource);
            }
        }
        all
    }

    /// The resources of all objects that the operators make, and have to own.
    pub(crate) fn owned(&self) -> Vec<&'static str> {
        let mut all = self.children();
        all.extend(self.0.iter().flat_map(|role| role.subject.makes()));
        all
    }

    /// Whether one of the operators may change objects of users of this resource.
    pub(crate) fn may_change(&self, resource: &str) -> bool {
        self.0.iter().any(|role| role.subject.changes().contains(&resource))
    }

    /// The resources of all primaries.
    pub(crate) fn primaries(&self) -> Vec<&'static str> {
        self.0.iter().map(|role| role.subject.resource()).collect()
    }

    /// The stored primaries, each with its operator.
    pub(crate) fn objects(&self, model: &Model) -> Vec<(&Role, Value)> {
        let mut all = Vec::new();
        for role in self.all() {
            all.extend(model.objects(role.subject.resource()).into_iter().map(|object| (role, object)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy;

    #[test]
    fn operators_of_one_process_share_namespaces_and_kinds_of_children_and_no_names() {
        let (alone, two) = (toy::cast(false), toy::cast(true));
        let places = |cast: &Cast, objects| {
            let place = |object| {
                let (name, namespace) = cast.place(object, false);
                format!("{} {namespace}/{name}", cast.of(object).subject.resource())
            };
            (0..objects).map(place).collect::<Vec<_>>()
        };
        assert_eq!(places(&alone, 3), ["jobs.batch shop/a", "jobs.batch depot/a", "jobs.batch shop/b"]);
        let expected = [
            "jobs.batch shop/a",
            "cronjobs.batch shop/b",
            "jobs.batch depot/a",
            "cronjobs.batch depot/b",
            "jobs.batch shop/c",
            "cronjobs.batch shop/d",
        ];
        assert_eq!(places(&two, 6), expected);
        assert_eq!([0, 1, 2].map(|object| two.place(object, true).0), ["a", "b", "c"]);
        assert_eq!(two.children(), ["deployments.apps"]);
    }
}
