//! Tests of the cache: own writes and their echoes, lists, and indices. Those of restored clusters are in [`restores`], those of what
//! happens during a list in [`lists`].

mod lists;
mod restores;

use serde_json::{Value, json};
use workloads::DeploymentView;

use super::*;
use crate::decode::{Full, Projected};
use k8s_openapi::api::apps::v1::Deployment;
use workloads::Live;

type Deployments = Store<Projected<Deployment>>;

fn object(name: &str, uid: &str, version: u64, replicas: i64) -> Decoded<Live<DeploymentView>> {
    let object = json!({
        "metadata": {
            "namespace": "default", "name": name, "uid": uid, "resourceVersion": version.to_string(),
            "labels": {"app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": name},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Memcached", "name": name, "uid": "owner", "controller": true}],
        },
        "spec": {"replicas": replicas},
    });
    Decoded::read::<Projected<Deployment>>(&object.to_string()).expect("a name")
}

/// A Deployment `b` with this label `app.kubernetes.io/managed-by`.
fn labelled(version: u64, managed_by: &str) -> Decoded<Live<DeploymentView>> {
    let object = json!({
        "metadata": {
            "namespace": "default", "name": "b", "uid": "2", "resourceVersion": version.to_string(),
            "labels": {"app.kubernetes.io/managed-by": managed_by},
        },
        "spec": {"replicas": 3},
    });
    Decoded::read::<Projected<Deployment>>(&object.to_string()).expect("a name")
}

fn deliver(store: &Deployments, object: &Decoded<Live<DeploymentView>>) -> Option<Delta<Live<DeploymentView>>> {
    store.deliver(0, object).expect("versions grow")
}

fn deliver_gone(store: &Deployments, object: &Decoded<Live<DeploymentView>>) -> Option<Delta<Live<DeploymentView>>> {
    store.deliver_gone(0, object).expect("versions grow")
}

/// Takes in that a deletion of ours is complete.
fn delete(store: &Deployments, name: &str, uid: &str) {
    store.observe_gone(&key(name), Uid::of(uid), None, Instant::now());
}

/// Stores a list of one page at this version. Returns the changed objects, and whether the cluster went back in time.
fn list(store: &Deployments, version: u64, objects: &[Decoded<Live<DeploymentView>>]) -> (Vec<ObjectKey>, bool) {
    store.begin_list(0);
    let back = store.listed_at(0, version).is_err();
    let mut deltas: Vec<Delta<Live<DeploymentView>>> =
        objects.iter().filter_map(|object| store.list(0, object)).collect();
    let (gone, rewritten) = store.end_list(0);
    deltas.extend(gone);
    (deltas.into_iter().map(|delta| delta.key).collect(), back || rewritten)
}

/// A Deployment `a` whose number of replicas is a text.
fn undecodable(version: u64, replicas: &str) -> Decoded<Live<DeploymentView>> {
    let object = json!({
        "metadata": {"namespace": "default", "name": "a", "uid": "1", "resourceVersion": version.to_string()},
        "spec": {"replicas": replicas},
    });
    Decoded::read::<Projected<Deployment>>(&object.to_string()).expect("a name")
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn replicas(store: &Deployments, name: &str) -> Option<i32> {
    store.get(&key(name)).map(|live| live.wanted())
}

#[test]
fn irrelevant_event_wakes_no_reconciler() {
    let store = Deployments::default();
    assert!(deliver(&store, &object("a", "1", 5, 3)).is_some());
    assert!(deliver(&store, &object("a", "1", 6, 3)).is_none(), "only the version is new");
    assert!(deliver(&store, &object("a", "1", 7, 4)).is_some());
}

/// Delivers a Deployment `a`, whose JSON the cache keeps, with these annotations and this status. Returns whether it wakes reconcilers.
fn wakes(store: &Store<Full<Deployment>>, version: u64, annotations: &Value, status: &Value) -> bool {
    let version = version.to_string();
    let metadata = json!({"namespace": "default", "name": "a", "uid": "1", "resourceVersion": version, "annotations": annotations});
    let object = json!({"metadata": metadata, "spec": {"replicas": 3}, "status": status});
    let decoded = Decoded::read::<Full<Deployment>>(&object.to_string()).expect("a name");
    store.deliver(0, &decoded).expect("versions grow").is_some()
}

#[test]
fn change_of_a_field_that_the_type_lacks_wakes_no_reconciler() {
    let store = Store::<Full<Deployment>>::default();
    let (bare, note) = (json!({}), json!({"note": "a"}));
    assert!(wakes(&store, 5, &bare, &json!({"replicas": 3})));
    assert!(!wakes(&store, 6, &bare, &json!({"replicas": 3, "theirs": 1})));
    assert!(store.text(&key("a")).is_some_and(|text| text.contains("theirs")), "it is stored all the same");
    assert!(!wakes(&store, 7, &bare, &json!({"replicas": 3, "theirs": 2})));
    assert!(wakes(&store, 8, &bare, &json!({"replicas": 4, "theirs": 2})));
    assert!(wakes(&store, 9, &note, &json!({"replicas": 4, "theirs": 3})));
    assert!(!wakes(&store, 10, &note, &json!({"replicas": 4})));
}

#[test]
fn own_write_is_cached_and_its_event_wakes_no_reconciler() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 5, 3));
    store.observe(&object("a", "1", 8, 5));
    assert_eq!(replicas(&store, "a"), Some(5));
    assert!(deliver(&store, &object("a", "1", 7, 4)).is_none(), "older than what we wrote");
    assert_eq!(replicas(&store, "a"), Some(5), "a stale event does not undo our write");
    assert!(deliver(&store, &object("a", "1", 8, 5)).is_none(), "the echo");
}

#[test]
fn object_with_a_deletion_timestamp_is_deleting() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 5, 3));
    assert!(!store.is_deleting(&key("a")) && !store.is_deleting(&key("b")));
    let deleted = json!({"metadata": {
        "namespace": "default", "name": "a", "uid": "1", "resourceVersion": "6",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }, "spec": {"replicas": 3}});
    deliver(&store, &Decoded::read::<Projected<Deployment>>(&deleted.to_string()).expect("a name"));
    assert!(store.is_deleting(&key("a")));
}

#[test]
fn a_late_answer_does_not_bring_a_deleted_object_back() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 5, 3));
    assert!(deliver_gone(&store, &object("a", "1", 9, 3)).is_some());
    store.observe(&object("a", "1", 8, 5));
    assert_eq!(replicas(&store, "a"), None);
}

#[test]
fn late_events_do_not_restore_an_object_we_deleted() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 5, 3));
    delete(&store, "a", "1");
    assert!(deliver(&store, &object("a", "1", 6, 4)).is_none());
    assert_eq!(replicas(&store, "a"), None);
    store.observe(&object("a", "2", 8, 1));
    assert!(deliver_gone(&store, &object("a", "1", 7, 4)).is_none(), "the successor stays");
    assert_eq!(replicas(&store, "a"), Some(1));
}

#[test]
fn list_removes_missing_objects() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 5, 3));
    deliver(&store, &object("b", "2", 6, 3));
    store.begin_list(0);
    store.listed_at(0, 10).expect("versions grow");
    assert!(store.list(0, &object("a", "1", 5, 3)).is_none());
    store.observe(&object("c", "3", 20, 1));
    let (gone, back) = store.end_list(0);
    assert_eq!((gone.into_iter().map(|delta| delta.key).collect::<Vec<_>>(), back), (vec![key("b")], false));
    assert_eq!(replicas(&store, "c"), Some(1), "we wrote it after the list's version");
}

#[test]
fn list_of_one_namespace_leaves_others_unchanged() {
    let store = Deployments::default();
    store.watch(&["other".to_owned(), "default".to_owned()], Selection::All);
    store.deliver(1, &object("a", "1", 5, 3)).expect("versions grow");
    for (watch, gone) in [(0, vec![]), (1, vec![key("a")])] {
        store.begin_list(watch);
        store.listed_at(watch, 10).expect("versions grow");
        assert_eq!(store.end_list(watch).0.into_iter().map(|delta| delta.key).collect::<Vec<_>>(), gone);
    }
}

#[test]
fn own_create_is_cached_though_another_namespace_is_ahead() {
    let store = Deployments::default();
    store.watch(&["other".to_owned(), "default".to_owned()], Selection::All);
    let mut ahead = object("x", "7", 100, 1);
    ahead.key = ObjectKey::new("other", "x");
    store.deliver(0, &ahead).expect("versions grow");
    store.observe(&object("a", "1", 80, 3));
    assert_eq!(replicas(&store, "a"), Some(3));
}

#[test]
fn own_create_is_cached_during_a_list() {
    let store = Deployments::default();
    deliver(&store, &object("x", "7", 60, 1));
    store.begin_list(0);
    store.listed_at(0, 100).expect("versions grow");
    store.list(0, &object("z", "9", 100, 1));
    store.observe(&object("a", "1", 80, 3));
    assert_eq!(replicas(&store, "a"), Some(3), "it may be on the next page");
    store.end_list(0);
    assert_eq!(replicas(&store, "a"), None, "it was on no page: another client has deleted it");
}

#[test]
fn deletion_is_forgotten_after_a_list_of_its_namespace() {
    let store = Deployments::default();
    store.watch(&["other".to_owned(), "default".to_owned()], Selection::All);
    store.deliver(1, &object("a", "1", 5, 3)).expect("versions grow");
    delete(&store, "a", "1");
    store.begin_list(1);
    store.listed_at(1, 10).expect("versions grow");
    assert!(store.list(1, &object("a", "1", 5, 3)).is_some(), "it exists: a finalizer holds it, or it was restored");
    store.end_list(1);
    assert_eq!(store.read().gone.len(), 0);
}

#[test]
fn object_deleted_during_a_list_is_not_restored_by_it() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 5, 3));
    store.begin_list(0);
    store.listed_at(0, 10).expect("versions grow");
    delete(&store, "a", "1");
    assert!(store.list(0, &object("a", "1", 5, 3)).is_none());
}

#[test]
fn children_are_found_by_owner_and_by_label() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 5, 3));
    let app = |instance: &str| AppKey::new("memcached", key(instance));
    assert_eq!(store.owned(Uid::of("owner")), [key("a")]);
    assert_eq!(store.labelled(&app("a")).len(), 1);
    assert!(store.labelled(&app("b")).is_empty());
    deliver_gone(&store, &object("a", "1", 6, 3));
    assert!(store.owned(Uid::of("owner")).is_empty());
    assert!(store.labelled(&app("a")).is_empty());
}

#[test]
fn undecodable_object_is_set_aside_and_reported_once() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 5, 3));
    let broken = |version| undecodable(version, "three");
    let delta = deliver(&store, &broken(6)).expect("a delta with the error");
    assert!(delta.owners[0].is_some() && delta.apps[0].is_some(), "its owner is woken");
    assert!(delta.undecodable.is_some_and(|undecodable| undecodable.error.contains("three")));
    assert_eq!(replicas(&store, "a"), None);
    assert_eq!(store.counts(), (0, 1));
    assert!(deliver(&store, &broken(7)).is_none(), "the same error again");
    assert!(deliver(&store, &undecodable(7, "four")).is_some(), "another error");
    assert!(deliver(&store, &object("a", "1", 8, 3)).is_some(), "it decodes again");
    assert_eq!(store.counts(), (1, 0));
    deliver(&store, &broken(9));
    deliver_gone(&store, &object("a", "1", 10, 3));
    assert_eq!(store.counts(), (0, 0), "a deleted undecodable object no longer counts");
}

#[test]
fn undecodable_object_counts_as_long_as_lists_contain_it() {
    let store = Deployments::default();
    for (version, objects, count) in
        [(10, vec![undecodable(5, "three")], 1), (11, vec![undecodable(5, "three")], 1), (12, vec![], 0)]
    {
        list(&store, version, &objects);
        assert_eq!(store.counts(), (0, count), "{version}");
    }
}

#[test]
fn undecodable_answer_is_left_to_the_watch() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 5, 3));
    let mut broken = object("a", "1", 6, 3);
    broken.item = Err(Undecodable { uid: "1".into(), error: "three".into() });
    store.observe(&broken);
    assert_eq!(store.counts(), (1, 0));
    assert!(deliver(&store, &broken).is_some_and(|delta| delta.undecodable.is_some()));
}

#[test]
fn verification_is_forgotten_with_its_object() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 5, 3));
    let verified = Verified { live: 1, desired: 2 };
    store.verify(&key("a"), Uid::of("other uid"), verified);
    assert_eq!(store.known(&key("a")).and_then(|known| known.verified), None);
    store.verify(&key("a"), Uid::of("1"), verified);
    assert_eq!(store.known(&key("a")).and_then(|known| known.verified), Some(verified));
    deliver(&store, &object("a", "2", 6, 3));
    assert_eq!(store.known(&key("a")).and_then(|known| known.verified), None);
}

#[test]
fn absence_is_known_up_to_the_delivered_version() {
    let store = Deployments::default();
    assert_eq!(store.absent_at(&key("a")), Some(0));
    deliver(&store, &object("b", "2", 7, 1));
    assert_eq!(store.absent_at(&key("a")), Some(7));
    assert!(store.contains(&key("b")) && !store.contains(&key("a")));
    for present in [object("a", "1", 8, 1), undecodable(9, "three")] {
        deliver(&store, &present);
        assert_eq!(store.absent_at(&key("a")), None);
    }
    store.watch(&["other".to_owned()], Selection::All);
    assert_eq!(store.absent_at(&key("c")), None, "nothing is known of a namespace that no watch covers");
}

#[test]
fn each_object_that_stays_is_visited_once_though_others_come_and_go() {
    let store = Deployments::default();
    for (version, name) in (1..).zip(["a", "b", "c", "d"]) {
        deliver(&store, &object(name, name, version, 3));
    }
    let mut each = store.each();
    assert_eq!(each.next().map(|(key, _)| key), Some(key("a")));
    deliver_gone(&store, &object("b", "b", 5, 3));
    deliver(&store, &object("d", "d", 6, 4));
    let rest: Vec<_> = each.by_ref().map(|(key, live)| (key, live.wanted())).collect();
    assert_eq!(rest, [(key("c"), 3), (key("d"), 4)]);
    assert!(each.next().is_none());
    deliver(&store, &object("e", "e", 7, 3));
    let mut all: Vec<ObjectKey> = store.each().map(|(key, _)| key).collect();
    all.sort_unstable();
    assert_eq!(all, ["a", "c", "d", "e"].map(key));
}

/// An answer of ours can have the version of the deletion, such as that to a patch which removes the last finalizer.
#[test]
fn deletion_at_the_version_of_our_own_answer_removes_the_object() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 5, 3));
    store.observe(&object("a", "1", 9, 3));
    assert!(deliver_gone(&store, &object("a", "1", 9, 3)).is_some());
    assert_eq!(replicas(&store, "a"), None);
}

/// A restored cluster has reached exactly the version that the cache knows, with other content.
#[test]
fn list_at_the_version_of_an_object_replaces_its_content() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 100, 3));
    assert_eq!(list(&store, 100, &[object("a", "1", 100, 4)]), (vec![key("a")], false));
    assert_eq!(replicas(&store, "a"), Some(4));
}

#[test]
fn child_is_found_only_under_its_present_owner_and_label() {
    let child = |name: &str, version: u64, owner: &str| {
        let object = json!({
            "metadata": {
                "namespace": "default", "name": name, "uid": name, "resourceVersion": version.to_string(),
                "labels": {"app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": owner},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Memcached", "name": owner, "uid": owner, "controller": true}],
            },
            "spec": {"replicas": 1},
        });
        Decoded::read::<Projected<Deployment>>(&object.to_string()).expect("a name")
    };
    let store = Deployments::default();
    let found = |owner: &str| {
        let app = AppKey::new("memcached", key(owner));
        let labelled: Vec<ObjectKey> = store.labelled(&app).iter().map(|live| key(&live.name)).collect();
        assert_eq!(labelled, store.owned(Uid::of(owner)));
        labelled
    };
    for (version, name) in [(1, "a"), (2, "b"), (3, "c")] {
        deliver(&store, &child(name, version, "one"));
    }
    deliver(&store, &child("a", 4, "two"));
    assert_eq!((found("one"), found("two")), (vec![key("b"), key("c")], vec![key("a")]));
    deliver_gone(&store, &child("b", 5, "one"));
    assert_eq!((found("one"), found("two")), (vec![key("c")], vec![key("a")]));
    deliver(&store, &child("d", 6, "two"));
    assert_eq!((found("one"), found("two")), (vec![key("c")], vec![key("a"), key("d")]));
}

/// Compares each lookup with a scan of all objects, after each of many random changes.
#[test]
fn an_index_is_exact_after_every_change() {
    let mut random = fastrand::Rng::with_seed(4);
    let store = Deployments::default();
    // No value, or a shared one and one of three; the shared one twice, to test that duplicates are removed.
    let values = |live: &Live<DeploymentView>| match live.wanted() {
        0 => Vec::new(),
        wanted => vec![(wanted % 3).to_string(), "some".to_owned(), "some".to_owned()],
    };
    store.index("thirds", Box::new(values));
    store.index("other", Box::new(|live| vec![live.name.to_string()]));
    store.index_cluster("everywhere", Box::new(values));
    for version in 1..2_000 {
        let name = format!("{}", random.u8(0..12));
        let changed = object(&name, &format!("{name}-{}", random.u8(0..2)), version, random.i64(0..7));
        match random.u8(0..4) {
            0 => drop(deliver_gone(&store, &changed)),
            1 => {
                store.observe(&changed);
                deliver(&store, &changed);
            }
            2 => drop(store.observe_gone(&changed.key, changed.meta.uid, None, Instant::now())),
            _ => drop(deliver(&store, &changed)),
        }
        for value in ["0", "1", "2", "some", "3"] {
            let mut all: Vec<_> = store.keys().iter().filter_map(|key| store.get(key)).collect();
            all.retain(|live| values(live).iter().any(|it| it == value));
            all.sort_by(|a, b| a.name.cmp(&b.name));
            let names =
                |found: Vec<Arc<Live<DeploymentView>>>| found.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
            assert_eq!(names(store.indexed("thirds", "default", value)), names(all.clone()), "{value} at {version}");
            assert!(store.indexed("thirds", "elsewhere", value).is_empty());
            let mut keys = store.indexed_keys("thirds", "default", value);
            keys.sort_unstable();
            assert_eq!(keys, all.iter().map(|live| key(&live.name)).collect::<Vec<_>>());
            assert_eq!(names(store.indexed_cluster("everywhere", value)), names(all));
        }
        assert_eq!(store.indexed("other", "default", &name).len(), usize::from(store.get(&key(&name)).is_some()));
    }
}

#[test]
fn panicking_index_omits_the_object() {
    let store = Deployments::default();
    store.index("fragile", Box::new(|live| if live.wanted() == 3 { panic!("three") } else { vec!["fine".to_owned()] }));
    deliver(&store, &object("a", "1", 5, 3));
    deliver(&store, &object("b", "2", 6, 4));
    assert_eq!(store.indexed("fragile", "default", "fine").len(), 1);
    assert_eq!(replicas(&store, "a"), Some(3));
}
