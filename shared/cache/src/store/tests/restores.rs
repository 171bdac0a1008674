//! A cluster that was restored to an earlier state, and how the store notices it.

use super::*;

/// What the informer of Memcached's children watches.
fn of_memcached() -> Selection {
    Selection::ManagedBy(["memcached-operator".to_owned()].into())
}

fn bookmark(store: &Deployments, version: u64) -> Result<bool, WentBack> {
    store.deliver_bookmark(0, version, Instant::now())
}

/// The list has lower versions than the cache, as after a restore of etcd from a backup.
#[test]
fn restored_cluster_with_lower_versions_is_followed() {
    let store = Deployments::default();
    let names = ["untouched", "changed", "deleted", "created"];
    for (version, name) in (1..).zip(names) {
        deliver(&store, &object(name, name, version, 3));
    }
    store.observe(&object("changed", "changed", 101, 5));
    deliver(&store, &object("changed", "changed", 101, 5));
    delete(&store, "deleted", "deleted");
    deliver(&store, &object("created", "created anew", 103, 3));
    let restored = names.map(|name| object(name, name, 1, 3));
    let (woken, back) = list(&store, 60, &restored);
    assert!(back);
    assert_eq!(woken, [key("changed"), key("deleted"), key("created")], "the other objects have not changed");
    for name in names {
        assert_eq!((name, replicas(&store, name)), (name, Some(3)));
    }
    // Changes in the new history repeat versions of the old one.
    assert!(deliver(&store, &object("untouched", "untouched", 61, 4)).is_some());
    assert!(deliver(&store, &object("changed", "changed", 62, 4)).is_some());
    store.observe(&object("created", "created", 63, 4));
    assert_eq!(replicas(&store, "created"), Some(4));
}

/// The list has a higher version, but an older version of an object, as after a restore that the informer notices late.
#[test]
fn restored_cluster_with_higher_versions_is_followed() {
    let store = Deployments::default();
    deliver(&store, &object("changed", "1", 101, 5));
    deliver(&store, &object("created", "2", 102, 5));
    let (woken, back) = list(&store, 1_000_000, &[object("changed", "1", 50, 3)]);
    assert_eq!((woken, back), (vec![key("changed"), key("created")], true));
    assert_eq!(replicas(&store, "changed"), Some(3));
    let (woken, back) = list(&store, 1_000_001, &[object("changed", "1", 50, 3)]);
    assert_eq!((woken, back), (vec![], false));
}

/// The second page of the list fails, so the informer lists again.
#[test]
fn restore_that_an_unfinished_list_has_shown_is_not_forgotten() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 100, 3));
    let older = object("a", "1", 50, 2);
    store.begin_list(0);
    store.listed_at(0, 200).expect("the list itself is newer");
    assert!(store.list(0, &older).is_some());
    assert!(list(&store, 210, &[older]).1);
    assert!(!list(&store, 220, &[object("a", "1", 50, 2)]).1, "it is reported once");
}

/// A restored cluster reaches a known version again, with other content.
#[test]
fn other_content_under_the_same_version_is_accepted() {
    for by in ["list", "event", "answer"] {
        let store = Deployments::default();
        deliver(&store, &object("a", "1", 100, 3));
        let other = object("a", "1", 100, 4);
        match by {
            "list" => assert_eq!(list(&store, 200, &[other]).0, [key("a")]),
            "event" => assert!(deliver(&store, &other).is_some()),
            _ => {
                assert_eq!(
                    store.observe(&object("a", "1", 100, 3)).0,
                    Observation { is_known: true, contradicts: false }
                );
                assert_eq!(store.observe(&other).0, Observation { is_known: true, contradicts: true });
            }
        }
        assert_eq!(replicas(&store, "a"), Some(4), "{by}");
    }
}

#[test]
fn older_event_reveals_a_restored_cluster() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 100, 3));
    assert_eq!(bookmark(&store, 100), Ok(false));
    assert_eq!(bookmark(&store, 60), Err(WentBack::Versions { known: 100, now: 60 }));
    assert!(store.deliver(0, &object("a", "1", 99, 3)).is_err());
    assert!(store.deliver_gone(0, &object("a", "1", 99, 3)).is_err());
    assert!(store.deliver(0, &object("a", "1", 100, 3)).is_ok_and(|delta| delta.is_none()), "the same version again");
}

/// The cluster was restored to the version that the watch has delivered, after it had answered a write. So the watch goes on, and
/// nothing it delivers is older than what the cache knows.
#[test]
fn write_that_a_watch_passes_without_delivering_it_reveals_a_restored_cluster() {
    type Step = fn(&Deployments) -> Result<(), WentBack>;
    let steps: [(&str, Step, u64); 4] = [
        ("a bookmark", |store| bookmark(store, 7).map(drop), 7),
        ("an event of another object", |store| store.deliver(0, &object("b", "2", 6, 1)).map(drop), 6),
        ("a later event of the same object", |store| store.deliver(0, &object("a", "1", 7, 4)).map(drop), 7),
        ("a deletion", |store| store.deliver_gone(0, &object("a", "1", 8, 3)).map(drop), 8),
    ];
    for (by, step, now) in steps {
        let store = Deployments::default();
        deliver(&store, &object("a", "1", 5, 3));
        store.observe(&object("a", "1", 6, 5));
        assert_eq!(step(&store), Err(WentBack::Write { lost: 6, now }), "{by}");
        let (woken, back) = list(&store, now, &[object("a", "1", 5, 3)]);
        assert_eq!((woken, back), (vec![key("a")], true), "{by}: the list reports the loss and shows the object");
        assert_eq!(replicas(&store, "a"), Some(3), "{by}");
        assert_eq!(bookmark(&store, now + 1), Ok(false), "{by}: it is reported once");
    }
}

#[test]
fn delivered_write_reveals_no_restored_cluster() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 5, 3));
    store.observe(&object("a", "1", 7, 5));
    deliver(&store, &object("b", "2", 6, 1));
    deliver(&store, &object("a", "1", 7, 5));
    assert_eq!(bookmark(&store, 7), Ok(false));
    store.observe(&object("a", "1", 6, 4));
    assert_eq!(bookmark(&store, 8), Ok(false), "a late answer, which the watch had delivered");
    store.observe(&object("a", "1", 9, 6));
    assert_eq!(list(&store, 10, &[object("a", "1", 9, 6), object("b", "2", 6, 1)]), (vec![], false));
    assert_eq!(bookmark(&store, 10), Ok(false), "the list has shown it");
    store.observe(&object("a", "1", 11, 7));
    assert_eq!(bookmark(&store, 11), Ok(false), "a bookmark may be faster than the event of its version");
    store.pass(0, &object("a", "1", 11, 7)).expect("its namespace has left");
    assert_eq!(bookmark(&store, 12), Ok(false));
}

/// Nothing arrives of an object without the label that the watch selects, such as that of a Helm release, which a reconciler has
/// read.
#[test]
fn object_that_the_watch_does_not_select_is_not_expected() {
    let lost = Err(WentBack::Write { lost: 6, now: 7 });
    for (selection, managed_by, expected) in [
        (of_memcached(), "Helm", Ok(false)),
        (of_memcached(), "memcached-operator", lost),
        (Selection::All, "Helm", lost),
        (Selection::Labels("a=b".to_owned()), "Helm", Ok(false)),
    ] {
        let text = format!("{selection:?} {managed_by}");
        let store = Deployments::default();
        store.watch(&[String::new()], selection);
        deliver(&store, &object("a", "1", 5, 3));
        store.observe(&labelled(6, managed_by));
        assert_eq!(bookmark(&store, 7), expected, "{text}");
        let now = Instant::now();
        store.observe_gone(&key("b"), Uid::of("2"), None, now);
        let is_overdue = store.deliver_bookmark(0, 0, now + Duration::from_mins(1));
        assert_eq!(is_overdue, Ok(expected.is_err()), "{text}");
    }
}

/// A finalizer keeps an object that we deleted, and a restore takes even the time of its deletion away. Nothing arrives of an
/// object without the label that the watch selects.
#[test]
fn deletion_of_an_object_that_a_finalizer_keeps_is_expected() {
    let lost = Err(WentBack::Write { lost: 6, now: 7 });
    for (managed_by, is_delivered, expected) in
        [("memcached-operator", false, lost), ("memcached-operator", true, Ok(false)), ("Helm", false, Ok(false))]
    {
        let store = Deployments::default();
        store.watch(&[String::new()], of_memcached());
        let before = labelled(5, "memcached-operator");
        deliver(&store, &before);
        let kept = labelled(6, managed_by);
        store.observe_gone(&key("b"), Uid::of("2"), Some(&kept.meta), Instant::now());
        if is_delivered {
            deliver(&store, &kept);
        }
        assert_eq!(bookmark(&store, 7), expected, "{managed_by}, delivered: {is_delivered}");
        assert_eq!(list(&store, 7, &[before]), (vec![key("b")], expected.is_err()), "it exists");
    }
}

/// The API server refuses the watch, and answers writes.
#[test]
fn only_the_newest_writes_are_expected() {
    let store = Deployments::default();
    for version in 1..=1_500 {
        store.observe(&object("a", "1", version, 3));
    }
    assert_eq!(bookmark(&store, 2_000), Err(WentBack::Write { lost: 501, now: 2_000 }));
}

#[test]
fn deletion_that_a_watch_does_not_deliver_is_overdue() {
    let (now, minute) = (Instant::now(), Duration::from_mins(1));
    let kept = object("a", "1", 6, 3);
    for (answer, expected) in [(None, true), (Some(&kept.meta), false)] {
        let store = Deployments::default();
        deliver(&store, &object("a", "1", 5, 3));
        store.observe_gone(&key("a"), Uid::of("1"), answer, now);
        deliver(&store, &kept);
        assert_eq!(store.deliver_bookmark(0, 9, now + minute / 2), Ok(false), "it may still arrive");
        assert_eq!(store.deliver_bookmark(0, 9, now + minute), Ok(expected));
        assert_eq!(list(&store, 9, &[object("a", "1", 5, 3)]).0, [key("a")], "it exists");
        assert_eq!(store.deliver_bookmark(0, 9, now + minute), Ok(false), "the list has answered");
    }
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 5, 3));
    store.observe_gone(&key("a"), Uid::of("1"), None, now);
    deliver_gone(&store, &object("a", "1", 6, 3));
    assert_eq!(store.deliver_bookmark(0, 9, now + minute), Ok(false), "it was delivered");
}
