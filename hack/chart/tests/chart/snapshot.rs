//! The snapshots in the repository are what the chart renders now.

use chart::snapshots::{Snapshot, UPDATE};

use crate::kit::helm;

/// Compares the snapshot with its file, or writes the file if the variable of [`UPDATE`] is set.
fn is_stored(snapshot: &Snapshot) {
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        snapshot.write().unwrap();
    }
    let (stored, text) = (snapshot.stored().unwrap(), &snapshot.text);
    let (old, new): (Vec<&str>, Vec<&str>) = (stored.lines().collect(), text.lines().collect());
    let line = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    assert!(
        stored == *text,
        "{} has changed from line {} on:\n- {}\n+ {}\nIf this is meant: {UPDATE}",
        snapshot.path(),
        line + 1,
        old.get(line).unwrap_or(&"(the end)"),
        new.get(line).unwrap_or(&"(the end)"),
    );
}

#[test]
fn default_render_is_the_one_in_the_repository() {
    is_stored(&Snapshot::of_objects(helm()).unwrap());
}

#[test]
fn default_notes_are_those_in_the_repository() {
    is_stored(&Snapshot::of_notes(helm()).unwrap());
}
