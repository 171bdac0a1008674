use serde_json::json;
use workloads::DeploymentView;

use super::*;
use crate::wire::Seen;
use k8s_openapi::api::apps::v1::Deployment;
use workloads::Live;

type Deployments = Store<Seen<Deployment>>;

fn object(name: &str, uid: &str, version: u64, replicas: i64) -> Decoded<Live<DeploymentView>> {
    let object = json!({
        "metadata": {
            "namespace": "default", "name": name, "uid": uid, "resourceVersion": version.to_string(),
            "labels": {"app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": name},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Memcached", "name": name, "uid": "owner", "controller": true}],
        },
        "spec": {"replicas": replicas},
    });
    Decoded::read::<Seen<Deployment>>(&object.to_string()).expect("a name")
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn replicas(store: &Deployments, name: &str) -> Option<i32> {
    store.get(&key(name)).map(|live| live.wanted())
}

#[test]
fn an_event_that_changes_nothing_for_reconcilers_wakes_nobody() {
    let store = Deployments::default();
    assert!(store.deliver(&object("a", "1", 5, 3)).is_some());
    assert!(store.deliver(&object("a", "1", 6, 3)).is_none(), "only the version is new");
    assert!(store.deliver(&object("a", "1", 7, 4)).is_some());
}

#[test]
fn a_reconcile_reads_its_own_write_and_its_echo_wakes_nobody() {
    let store = Deployments::default();
    store.deliver(&object("a", "1", 5, 3));
    store.observe(&object("a", "1", 8, 5));
    assert_eq!(replicas(&store, "a"), Some(5));
    assert!(store.deliver(&object("a", "1", 7, 4)).is_none(), "older than what we wrote");
    assert_eq!(replicas(&store, "a"), Some(5), "a stale event does not undo our write");
    assert!(store.deliver(&object("a", "1", 8, 5)).is_none(), "the echo");
}

#[test]
fn a_late_answer_does_not_bring_a_deleted_object_back() {
    let store = Deployments::default();
    store.deliver(&object("a", "1", 5, 3));
    assert!(store.deliver_gone(&object("a", "1", 9, 3)).is_some());
    store.observe(&object("a", "1", 8, 5));
    assert_eq!(replicas(&store, "a"), None);
}

#[test]
fn late_events_do_not_bring_back_what_we_deleted() {
    let store = Deployments::default();
    store.deliver(&object("a", "1", 5, 3));
    store.observe_gone(&key("a"), Uid::of("1"));
    assert!(store.deliver(&object("a", "1", 6, 4)).is_none());
    assert_eq!(replicas(&store, "a"), None);
    store.observe(&object("a", "2", 8, 1));
    assert!(store.deliver_gone(&object("a", "1", 7, 4)).is_none(), "the successor stays");
    assert_eq!(replicas(&store, "a"), Some(1));
}

#[test]
fn a_list_says_what_is_gone() {
    let store = Deployments::default();
    store.deliver(&object("a", "1", 5, 3));
    store.deliver(&object("b", "2", 6, 3));
    store.begin_list("");
    store.deliver(&object("a", "1", 5, 3));
    store.observe(&object("c", "3", 20, 1));
    let gone: Vec<ObjectKey> = store.end_list("").into_iter().map(|delta| delta.key).collect();
    assert_eq!(gone, [key("b")]);
    assert_eq!(replicas(&store, "c"), Some(1), "written while the list was under way");
}

#[test]
fn a_list_of_one_namespace_says_nothing_about_others() {
    let store = Deployments::default();
    store.deliver(&object("a", "1", 5, 3));
    store.begin_list("other");
    store.begin_list("default");
    assert!(store.end_list("other").is_empty());
    assert_eq!(replicas(&store, "a"), Some(3));
    let gone: Vec<ObjectKey> = store.end_list("default").into_iter().map(|delta| delta.key).collect();
    assert_eq!(gone, [key("a")]);
}

#[test]
fn children_are_found_by_owner_and_by_label() {
    let store = Deployments::default();
    store.deliver(&object("a", "1", 5, 3));
    let app = |instance: &str| AppKey::new("memcached", key(instance));
    assert_eq!(store.owned(Uid::of("owner")), [key("a")]);
    assert_eq!(store.labelled(&app("a")).len(), 1);
    assert!(store.labelled(&app("b")).is_empty());
    store.deliver_gone(&object("a", "1", 6, 3));
    assert!(store.owned(Uid::of("owner")).is_empty());
    assert!(store.labelled(&app("a")).is_empty());
}

#[test]
fn an_object_that_does_not_decode_is_set_aside_and_told_once() {
    let store = Deployments::default();
    store.deliver(&object("a", "1", 5, 3));
    let broken = |version: u64| {
        let text = json!({
            "metadata": {"namespace": "default", "name": "a", "uid": "1", "resourceVersion": version.to_string()},
            "spec": {"replicas": "three"},
        });
        Decoded::read::<Seen<Deployment>>(&text.to_string()).expect("a name")
    };
    let delta = store.deliver(&broken(6)).expect("is told");
    assert!(delta.undecodable.is_some_and(|undecodable| undecodable.error.contains("three")));
    assert_eq!(replicas(&store, "a"), None);
    assert_eq!(store.counts(), (0, 1));
    assert!(store.deliver(&broken(7)).is_none(), "the same error again");
    assert!(store.deliver(&object("a", "1", 8, 3)).is_some(), "mended");
    assert_eq!(store.counts(), (1, 0));
}

#[test]
fn agreement_is_forgotten_with_the_object_it_was_about() {
    let store = Deployments::default();
    store.deliver(&object("a", "1", 5, 3));
    let verified = Verified { live: 1, desired: 2 };
    store.verify(&key("a"), Uid::of("other uid"), verified);
    assert_eq!(store.known(&key("a")).and_then(|known| known.verified), None);
    store.verify(&key("a"), Uid::of("1"), verified);
    assert_eq!(store.known(&key("a")).and_then(|known| known.verified), Some(verified));
    store.deliver(&object("a", "2", 6, 3));
    assert_eq!(store.known(&key("a")).and_then(|known| known.verified), None);
}

/// What an index says, against looking at all objects, after each of many random changes.
#[test]
fn an_index_is_exact_after_every_change() {
    let mut random = fastrand::Rng::with_seed(4);
    let store = Deployments::default();
    // Two values or none, and two objects with the same.
    let values = |live: &Live<DeploymentView>| match live.wanted() {
        0 => Vec::new(),
        wanted => vec![(wanted % 3).to_string(), "some".to_owned(), "some".to_owned()],
    };
    store.index("thirds", Box::new(values));
    store.index("other", Box::new(|live| vec![live.name.to_string()]));
    for version in 1..2_000 {
        let name = format!("{}", random.u8(0..12));
        let changed = object(&name, &format!("{name}-{}", random.u8(0..2)), version, random.i64(0..7));
        match random.u8(0..4) {
            0 => drop(store.deliver_gone(&changed)),
            1 => store.observe(&changed),
            2 => store.observe_gone(&changed.key, changed.facts.uid),
            _ => drop(store.deliver(&changed)),
        }
        for value in ["0", "1", "2", "some", "3"] {
            let mut all: Vec<_> = store.keys().iter().filter_map(|key| store.get(key)).collect();
            all.retain(|live| values(live).iter().any(|it| it == value));
            all.sort_by(|a, b| a.name.cmp(&b.name));
            let names =
                |found: Vec<Arc<Live<DeploymentView>>>| found.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
            assert_eq!(names(store.indexed("thirds", "default", value)), names(all), "{value} at {version}");
            assert!(store.indexed("thirds", "elsewhere", value).is_empty());
        }
        assert_eq!(store.indexed("other", "default", &name).len(), usize::from(store.get(&key(&name)).is_some()));
    }
}

#[test]
fn an_index_that_panics_at_an_object_leaves_it_out() {
    let store = Deployments::default();
    store.index("fragile", Box::new(|live| if live.wanted() == 3 { panic!("three") } else { vec!["fine".to_owned()] }));
    store.deliver(&object("a", "1", 5, 3));
    store.deliver(&object("b", "2", 6, 4));
    assert_eq!(store.indexed("fragile", "default", "fine").len(), 1);
    assert_eq!(replicas(&store, "a"), Some(3));
}
