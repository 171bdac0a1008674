//! Whether the kinds still accept what those of the last release accepted, as `docs/versions.md` promises.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, bail};
use chart::CHART;
use semver::Version;
use serde_json::Value;

use crate::{Plan, Ready, git};

/// Keywords whose number may only rise, and those whose number may only fall.
const UPPER: [&str; 4] = ["maximum", "maxItems", "maxLength", "maxProperties"];
const LOWER: [&str; 4] = ["minimum", "minItems", "minLength", "minProperties"];
/// Conditions that may go, but not change: whether another one accepts more is not computed.
const CONDITIONS: [&str; 2] = ["pattern", "multipleOf"];
const KEEPS_UNKNOWN: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const LIST_TYPE: &str = "x-kubernetes-list-type";
const LIST_KEYS: &str = "x-kubernetes-list-map-keys";

/// The definitions of the kinds at one commit, by name.
type Definitions = BTreeMap<String, Value>;

/// What new definitions refuse although the old ones accept it, one line each.
#[derive(Debug, Default, PartialEq)]
struct Differences {
    /// What no release may do: a served version of a kind accepts what it has accepted, whatever the number of the release is.
    never: Vec<String>,
    /// What a major version may do.
    major: Vec<String>,
}

/// Compares the definitions with those of the last release before this version. Returns a sentence about the result. Rules in CEL
/// are not compared.
///
/// # Errors
///
/// If a definition refuses what the last release accepted, and the version is none that may do so. Also if this clone lacks the tag
/// of the last release, or the commits since.
pub fn compatible(plan: &Plan, ready: &Ready) -> Result<String> {
    let changelog = fs::read_to_string(plan.checkout.join("CHANGELOG.md")).context("could not read CHANGELOG.md")?;
    let headings = changelog.lines().filter_map(|line| line.strip_prefix("## [")?.split(']').next());
    let tags = git::text(&plan.checkout, &["tag", "--list", "v[0-9]*", "--merged", &ready.commit])?;
    let tagged = tags.lines().filter_map(|tag| tag.trim().strip_prefix('v'));
    let last = last_before(&plan.version, tagged);
    if let Some(released) = last_before(&plan.version, headings)
        && (last.is_none() || git::text(&plan.checkout, &["tag", "--list", &format!("v{released}")])?.is_empty())
    {
        bail!(
            "CHANGELOG.md has the release {released}, but this clone has no tag v{released} to compare the kinds with, or not \
             the commits since: git fetch --tags, with --unshallow in a shallow clone"
        );
    }
    let Some(last) = last else {
        return Ok("those of a first release".to_owned());
    };
    let (old, new) = (definitions(plan, &format!("v{last}"))?, definitions(plan, &ready.commit)?);
    let Differences { never, major } = differences(&old, &new, !is_patch(&last, &plan.version));
    // Before 1.0.0, a minor version may change what a major one may change afterwards.
    let is_major = last.major != plan.version.major || (last.major == 0 && last.minor != plan.version.minor);
    let (refused, listed) = if is_major { (never, major) } else { ([never, major].concat(), Vec::new()) };
    if !refused.is_empty() {
        let refused = refused.join("\n- ");
        bail!("{} may not refuse what {last} accepts, see docs/versions.md:\n- {refused}", plan.version);
    }
    if listed.is_empty() {
        return Ok(format!("accept what those of {last} accept"));
    }
    let listed = listed.join("\n- ");
    Ok(format!("refuse what those of {last} accept; does the changelog say so?\n- {listed}"))
}

/// The highest of these versions that is lower than `version`. A pre-release promises nothing.
fn last_before<'a>(version: &Version, others: impl Iterator<Item = &'a str>) -> Option<Version> {
    let others = others.filter_map(|other| Version::parse(other).ok());
    others.filter(|other| other < version && other.pre.is_empty()).max()
}

/// Whether the versions differ in nothing more than the patch.
fn is_patch(last: &Version, version: &Version) -> bool {
    (last.major, last.minor) == (version.major, version.minor)
}

/// The definitions in the chart at this commit.
fn definitions(plan: &Plan, commit: &str) -> Result<Definitions> {
    let folder = format!("{CHART}/files");
    let files = git::text(&plan.checkout, &["ls-tree", "-r", "--name-only", commit, &folder])?;
    let mut definitions = Definitions::new();
    for file in files.lines().filter(|file| file.rsplit('/').next().is_some_and(|name| name.starts_with("crd-"))) {
        let text = git::text(&plan.checkout, &["show", &format!("{commit}:{file}")])?;
        let definition: Value = serde_saphyr::from_str(&text).with_context(|| format!("{file} of {commit}"))?;
        let name =
            definition["metadata"]["name"].as_str().with_context(|| format!("{file} of {commit} has no name"))?;
        definitions.insert(name.to_owned(), definition);
    }
    Ok(definitions)
}

/// Compares two sets of definitions. `alpha_may_change` is whether the schemas of alpha versions may differ.
fn differences(old: &Definitions, new: &Definitions, alpha_may_change: bool) -> Differences {
    let mut found = Differences::default();
    for (name, old) in old {
        let Some(new) = new.get(name) else {
            let was_deprecated = served(old).all(|(_, version)| version["deprecated"] == true);
            found.removed(was_deprecated, format!("{name} is gone"));
            continue;
        };
        if old["spec"]["scope"] != new["spec"]["scope"] {
            found.never.push(format!("{name} has another scope"));
        }
        for (version, old) in served(old) {
            let place = format!("{name} {version}");
            match served(new).find(|(other, _)| *other == version) {
                Some(_) if alpha_may_change && version.contains("alpha") => {}
                Some((_, new)) => narrowed(schema(old), schema(new), &place, &mut found.never),
                None => found.removed(old["deprecated"] == true, format!("{place} is not served")),
            }
        }
    }
    found
}

impl Differences {
    /// Adds a removal. Users must have had a release that told them about it.
    fn removed(&mut self, was_deprecated: bool, line: String) {
        if was_deprecated {
            self.major.push(line);
        } else {
            self.never.push(format!("{line}, and was not deprecated before"));
        }
    }
}

/// The served versions of a definition, by name.
fn served(definition: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    versions
        .filter(|version| version["served"] == true)
        .filter_map(|version| Some((version["name"].as_str()?, version)))
}

fn schema(version: &Value) -> &Value {
    &version["schema"]["openAPIV3Schema"]
}

/// Adds a line for whatever `new` refuses although `old` accepts it. `path` leads to both.
fn narrowed(old: &Value, new: &Value, path: &str, found: &mut Vec<String>) {
    if !has_types_of(old, new) {
        found.push(format!("{path} has another type"));
        return;
    }
    for name in list(new, "required").filter(|name| !list(old, "required").any(|it| it == *name)) {
        found.push(format!("{path} requires {name}"));
    }
    let is_kept = |value: &Value| list(new, "enum").any(|it| it == value);
    if !new["enum"].is_null() && (old["enum"].is_null() || !list(old, "enum").all(is_kept)) {
        found.push(format!("{path} accepts fewer values"));
    }
    let bound = |schema: &Value, name: &str| schema[name].as_f64();
    let is_lower = |name: &str| bound(new, name).is_some_and(|new| bound(old, name).is_none_or(|old| new < old));
    let is_higher = |name: &str| bound(new, name).is_some_and(|new| bound(old, name).is_none_or(|old| new > old));
    let bounds =
        UPPER.into_iter().filter(|name| is_lower(name)).chain(LOWER.into_iter().filter(|name| is_higher(name)));
    found.extend(bounds.map(|name| format!("{path} has a narrower {name}")));
    // The formats `int64` and `double` refuse nothing, and the API server ignores other formats of numbers.
    let is_narrow = new["type"] == "string" || new["format"] == "int32" || new["format"] == "float";
    let conditions = CONDITIONS.into_iter().chain(is_narrow.then_some("format"));
    let is_other = |name: &&str| !new[name].is_null() && new[name] != old[name];
    found.extend(conditions.filter(is_other).map(|name| format!("{path} has another {name}")));
    if !has_elements_of(old, new) {
        found.push(format!("{path} refuses some equal elements"));
    }
    if old["nullable"] == true && new["nullable"] != true {
        found.push(format!("{path} refuses null"));
    }
    for (name, old) in old["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match &new["properties"][name] {
            Value::Null if new[KEEPS_UNKNOWN] == true => {}
            Value::Null => found.push(format!("{path} is gone")),
            new => narrowed(old, new, &path, found),
        }
    }
    for (keyword, part) in [("items", "[]"), ("additionalProperties", ".*")] {
        if old[keyword].is_object() && new[keyword].is_object() {
            narrowed(&old[keyword], &new[keyword], &format!("{path}{part}"), found);
        }
    }
    // The API server drops each field that the schema does not name.
    let keeps_others = |schema: &Value| {
        schema[KEEPS_UNKNOWN] == true
            || schema["additionalProperties"] == true
            || schema["additionalProperties"].is_object()
    };
    if keeps_others(old) && !keeps_others(new) {
        found.push(format!("{path}.* is gone"));
    }
}

/// Whether each value that has a type of `old` also has one of `new`.
fn has_types_of(old: &Value, new: &Value) -> bool {
    if new[INT_OR_STRING] == true {
        return old[INT_OR_STRING] == true || old["type"] == "integer" || old["type"] == "string";
    }
    let is_wider = old["type"] == "integer" && new["type"] == "number";
    new["type"].is_null() || (new["type"] == old["type"] && old[INT_OR_STRING] != true) || is_wider
}

/// Whether a list may have each pair of elements that it may have in `old`. A set refuses equal elements, and a map those with equal
/// keys.
fn has_elements_of(old: &Value, new: &Value) -> bool {
    match (old[LIST_TYPE].as_str(), new[LIST_TYPE].as_str()) {
        (Some("set"), Some("set")) => true,
        (Some("map"), Some("map")) => list(old, LIST_KEYS).all(|key| list(new, LIST_KEYS).any(|it| it == key)),
        (_, new) => !matches!(new, Some("set" | "map")),
    }
}

fn list<'a>(schema: &'a Value, keyword: &str) -> impl Iterator<Item = &'a Value> {
    schema[keyword].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(version: &str, schema: &Value) -> Definitions {
        let version = json!({"name": version, "served": true, "schema": {"openAPIV3Schema": schema}});
        Definitions::from([("gadgets.example.com".to_owned(), json!({"spec": {"versions": [version]}}))])
    }

    /// The differences between the schemas of a field `a`.
    fn of(old: &Value, new: &Value) -> Vec<String> {
        let all = |schema: &Value| definition("v1", &json!({"type": "object", "properties": {"a": schema}}));
        differences(&all(old), &all(new), true).never
    }

    fn never(line: &str) -> Differences {
        Differences { never: vec![line.to_owned()], ..Differences::default() }
    }

    #[test]
    fn whatever_is_narrower_is_found() {
        let string = |more: Value| {
            let mut schema = json!({"type": "string"});
            schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            schema
        };
        let object = |more: Value| json!({"type": "object", "properties": more});
        let list = |kind: &str, keys: Value| json!({"type": "array", LIST_TYPE: kind, LIST_KEYS: keys});
        for (old, new, expected) in [
            (string(json!({})), json!({"type": "integer"}), ".a has another type"),
            (string(json!({"enum": ["x", "y"]})), string(json!({"enum": ["x"]})), ".a accepts fewer values"),
            (string(json!({})), string(json!({"enum": ["x"]})), ".a accepts fewer values"),
            (string(json!({})), string(json!({"maxLength": 9})), ".a has a narrower maxLength"),
            (string(json!({"minLength": 1})), string(json!({"minLength": 2})), ".a has a narrower minLength"),
            (string(json!({"pattern": "x"})), string(json!({"pattern": "y"})), ".a has another pattern"),
            (string(json!({})), string(json!({"format": "ipv4"})), ".a has another format"),
            (
                json!({"type": "integer", "format": "int64"}),
                json!({"type": "integer", "format": "int32"}),
                ".a has another format",
            ),
            (json!({"type": "integer"}), json!({"type": "integer", "multipleOf": 2}), ".a has another multipleOf"),
            (json!({INT_OR_STRING: true}), string(json!({})), ".a has another type"),
            (list("atomic", json!(null)), list("set", json!(null)), ".a refuses some equal elements"),
            (list("map", json!(["b", "c"])), list("map", json!(["b"])), ".a refuses some equal elements"),
            (json!({"additionalProperties": {"type": "string"}}), json!({}), ".a.* is gone"),
            (json!({KEEPS_UNKNOWN: true}), json!({}), ".a.* is gone"),
            (string(json!({"nullable": true})), string(json!({})), ".a refuses null"),
            (object(json!({"b": {}})), object(json!({})), ".a.b is gone"),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                json!({"type": "array", "items": {"type": "integer"}}),
                ".a[] has another type",
            ),
            (
                json!({"type": "object", "additionalProperties": {"maximum": 5}}),
                json!({"type": "object", "additionalProperties": {"maximum": 4}}),
                ".a.* has a narrower maximum",
            ),
            (json!({"type": "object"}), json!({"type": "object", "required": ["b"]}), ".a requires \"b\""),
        ] {
            assert_eq!(of(&old, &new), [format!("gadgets.example.com v1{expected}")], "{old} {new}");
            assert_eq!(of(&old, &old), Vec::<String>::new());
            assert_eq!(of(&new, &new), Vec::<String>::new());
        }
    }

    #[test]
    fn whatever_is_wider_is_no_difference() {
        for (old, new) in [
            (json!({"type": "string", "maxLength": 1}), json!({"type": "string", "maxLength": 2})),
            (json!({"type": "string", "maxLength": 1, "pattern": "x"}), json!({"type": "string"})),
            (json!({"enum": ["x"]}), json!({"enum": ["y", "x"]})),
            (json!({"required": ["b"]}), json!({})),
            (json!({"properties": {"b": {}}}), json!({"properties": {"b": {}, "c": {}}})),
            (json!({"properties": {"b": {}}}), json!({KEEPS_UNKNOWN: true})),
            (json!({"additionalProperties": {"type": "string"}}), json!({KEEPS_UNKNOWN: true})),
            (json!({"type": "integer", "format": "int32"}), json!({"type": "integer", "format": "int64"})),
            (json!({"type": "integer"}), json!({INT_OR_STRING: true})),
            (json!({"type": "integer"}), json!({"type": "number"})),
            (json!({LIST_TYPE: "set"}), json!({LIST_TYPE: "atomic"})),
            (json!({LIST_TYPE: "map", LIST_KEYS: ["b"]}), json!({LIST_TYPE: "map", LIST_KEYS: ["b", "c"]})),
        ] {
            assert_eq!(of(&old, &new), Vec::<String>::new(), "{old} {new}");
        }
    }

    #[test]
    fn kinds_and_their_served_versions_stay_until_they_are_deprecated() {
        let (old, renamed) = (definition("v1", &json!({})), definition("v2", &json!({})));
        let mut deprecated = old.clone();
        for definition in deprecated.values_mut() {
            definition["spec"]["versions"][0]["deprecated"] = json!(true);
        }
        for (new, line) in
            [(Definitions::new(), "gadgets.example.com is gone"), (renamed, "gadgets.example.com v1 is not served")]
        {
            assert_eq!(differences(&old, &new, true), never(&format!("{line}, and was not deprecated before")));
            let told = Differences { major: vec![line.to_owned()], ..Differences::default() };
            assert_eq!(differences(&deprecated, &new, true), told);
        }
        let mut moved = old.clone();
        for definition in moved.values_mut() {
            definition["spec"]["scope"] = json!("Cluster");
        }
        assert_eq!(differences(&old, &moved, true), never("gadgets.example.com has another scope"));
    }

    #[test]
    fn alpha_version_changes_only_with_a_minor_version() {
        let [old, new] = ["string", "integer"].map(|kind| definition("v1alpha1", &json!({"type": kind})));
        assert_eq!(differences(&old, &new, true), Differences::default());
        assert_eq!(differences(&old, &new, false), never("gadgets.example.com v1alpha1 has another type"));
        let version = |text: &str| Version::parse(text).unwrap();
        let is_patch_of = |other: &str| is_patch(&version("1.3.0"), &version(other));
        assert_eq!(["1.3.1", "1.4.0", "2.3.0"].map(is_patch_of), [true, false, false]);
    }

    #[test]
    fn last_release_is_the_highest_lower_one() {
        let last = |version: &str| {
            let others = ["0.9.0", "1.2.10", "1.2.9", "1.3.0-rc.1", "2.0.0", "what"];
            last_before(&Version::parse(version).unwrap(), others.into_iter()).map(|last| last.to_string())
        };
        assert_eq!(last("1.3.0").as_deref(), Some("1.2.10"));
        assert_eq!(last("1.2.10").as_deref(), Some("1.2.9"), "not the version itself, whose tag may exist");
        assert_eq!(last("0.9.0"), None);
    }
}
