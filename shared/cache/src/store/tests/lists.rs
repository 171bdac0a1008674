//! What a list removes in the end if objects come, go and change their positions while it is read.

use std::collections::HashSet;

use super::*;

/// The keys of what the list of this watch removes in its end.
fn end(store: &Deployments, watch: usize) -> Vec<ObjectKey> {
    sorted(store.end_list(watch).0.into_iter().map(|delta| delta.key).collect())
}

fn sorted(mut keys: Vec<ObjectKey>) -> Vec<ObjectKey> {
    keys.sort_unstable();
    keys
}

/// Another object gets the position of one that the list has contained.
#[test]
fn object_in_the_position_of_a_listed_one_does_not_count_as_listed() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 60, 3));
    store.begin_list(0);
    store.listed_at(0, 100).expect("versions grow");
    store.list(0, &object("a", "1", 60, 3));
    let position = store.read().objects.position(&key("a"));
    delete(&store, "a", "1");
    store.observe(&object("b", "2", 80, 3));
    assert_eq!(store.read().objects.position(&key("b")), position, "it has the free position");
    assert_eq!(end(&store, 0), [key("b")], "it was on no page: another client has deleted it");
}

/// The marked object comes back in another position.
#[test]
fn listed_object_stays_though_it_has_changed_its_position() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 60, 3));
    store.begin_list(0);
    store.listed_at(0, 100).expect("versions grow");
    store.list(0, &object("a", "1", 60, 3));
    let position = store.read().objects.position(&key("a"));
    delete(&store, "a", "1");
    for other in [object("b", "2", 80, 3), object("a", "3", 90, 3)] {
        store.observe(&other);
    }
    assert_ne!(store.read().objects.position(&key("a")), position);
    assert_eq!(end(&store, 0), [key("b")]);
    assert_eq!(replicas(&store, "a"), Some(3));
}

/// A page that has expired ends a list. The next one begins with the first page.
#[test]
fn list_that_begins_again_does_not_count_what_the_unfinished_one_has_contained() {
    let store = Deployments::default();
    deliver(&store, &object("a", "1", 5, 3));
    deliver(&store, &object("b", "2", 6, 3));
    for (version, listed) in [(10, object("a", "1", 5, 3)), (11, object("b", "2", 6, 3))] {
        store.begin_list(0);
        store.listed_at(0, version).expect("versions grow");
        store.list(0, &listed);
    }
    assert_eq!(end(&store, 0), [key("a")]);
}

/// The pages of an initial list, each with more objects than one word has marks.
#[test]
fn all_pages_of_a_list_count() {
    let store = Deployments::default();
    let name = |number: u64| format!("{number:03}");
    for version in [500, 600] {
        store.begin_list(0);
        store.listed_at(0, version).expect("versions grow");
        for number in 0..300 {
            // The second list lacks one object of each page.
            if version == 500 || number % 100 != 64 {
                store.list(0, &object(&name(number), &name(number), number + 1, 3));
            }
        }
        let gone: &[&str] = if version == 500 { &[] } else { &["064", "164", "264"] };
        assert_eq!(end(&store, 0), gone.iter().map(|name| key(name)).collect::<Vec<_>>(), "{version}");
    }
}

/// What a set with the name of each listed object says about the end of a list: the objects that it lacks, and the objects that do not
/// decode and stay.
fn by_names(store: &Deployments, watch: usize, names: &HashSet<ObjectKey>) -> [Vec<ObjectKey>; 2] {
    let state = store.read();
    let progress = &state.watches[watch];
    let is_missing = |key: &&ObjectKey| progress.covers(&key.namespace) && !names.contains(*key);
    let old = state.objects.iter().filter(|slot| slot.meta.version <= progress.listing_version());
    let missing = old.map(|slot| &slot.key).filter(is_missing).cloned().collect();
    let undecodable = state.undecodable.keys().filter(|key| !is_missing(key)).cloned().collect();
    [sorted(missing), sorted(undecodable)]
}

/// Lists of two namespaces, which share the positions, in random histories: objects of both come and go during the lists, by answers,
/// events and lists, do not decode, and come back; lists begin again.
#[test]
fn list_removes_what_a_set_of_the_listed_names_lacks() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut removed, mut reused) = (0, 0);
    let scopes = ["one", "two"];
    for history in 0..600 {
        let store = Deployments::default();
        store.watch(&scopes.map(str::to_owned), Selection::All);
        // The names that the present list of each namespace has contained, and their positions.
        let mut listed: [Option<(HashSet<ObjectKey>, HashSet<u32>)>; 2] = [None, None];
        for version in (10..4_000).step_by(10) {
            let watch = random.usize(0..scopes.len());
            let name = format!("{}", random.u8(0..6));
            let mut changed = object(&name, &format!("{watch}-{name}-{}", random.u8(0..4)), version, random.i64(0..3));
            changed.key = ObjectKey::new(scopes[watch], name.as_str());
            let key = changed.key.clone();
            match random.u8(0..13) {
                0 => {
                    store.begin_list(watch);
                    // Mostly ahead of the answers that come during the list. A list after a restore is behind.
                    store.listed_at(watch, version + random.u64(0..100)).ok();
                    listed[watch] = Some((HashSet::new(), HashSet::new()));
                }
                1..=4 => {
                    if let Some((names, positions)) = &mut listed[watch] {
                        if random.u8(0..5) == 0 {
                            changed.item = Err(Undecodable { uid: "1".into(), error: "three".into() });
                        }
                        store.list(watch, &changed);
                        positions.extend(store.read().objects.position(&key));
                        names.insert(key);
                    }
                }
                5..=7 => drop(store.observe(&changed)),
                8 | 9 => {
                    if let Some(uid) = store.uid(&key) {
                        store.observe_gone(&key, uid, None, Instant::now());
                    }
                }
                10 => drop(store.deliver(watch, &changed)),
                11 => drop(store.deliver_gone(watch, &changed)),
                _ => {
                    let Some((names, positions)) = listed[watch].take() else { continue };
                    let [missing, undecodable] = by_names(&store, watch, &names);
                    let place = |key: &ObjectKey| store.read().objects.position(key);
                    reused += missing.iter().filter_map(place).filter(|place| positions.contains(place)).count();
                    removed += missing.len();
                    assert_eq!(end(&store, watch), missing, "history {history}, version {version}");
                    let left = store.read().undecodable.keys().cloned().collect();
                    assert_eq!(sorted(left), undecodable, "history {history}, version {version}");
                }
            }
        }
    }
    assert!(removed > 100 && reused > 0, "{removed} objects were removed, {reused} of them from marked positions");
}
