//! What a `CustomResourceDefinition` says about its versions. Pure.

use std::time::Duration;

use jiff::Timestamp;
use kube::api::ApiResource;
use serde_json::Value;

/// For so long after a change of a definition, an API server of the cluster may still store objects in the former version.
const SETTLED_AFTER: Duration = Duration::from_secs(10);

/// The part of a definition that matters here. Its schemas are far larger, so nothing decodes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// The resource, in a served version: the storage version if it is served.
    pub(crate) resource: ApiResource,
    pub(crate) storage_version: String,
    /// `status.storedVersions`: the versions in which objects may be stored.
    pub(crate) stored_versions: Vec<String>,
    /// When `spec` or `metadata` last changed, as far as `managedFields` tell.
    pub(crate) changed: Option<Timestamp>,
}

impl Definition {
    /// Reads a definition.
    ///
    /// # Errors
    ///
    /// Says why objects of this definition cannot be rewritten now.
    pub(crate) fn read(object: &Value) -> Result<Self, String> {
        let text = |pointer: &str| {
            let found = object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            found.ok_or_else(|| format!("the definition has no {}", pointer.trim_start_matches('/').replace('/', ".")))
        };
        if object.pointer("/metadata/deletionTimestamp").is_some() {
            return Err("the definition is being deleted, and with it all objects of the kind".to_owned());
        }
        let versions = || object.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
        let name = |version: &Value| version["name"].as_str().unwrap_or_default().to_owned();
        let storage_version = versions().find(|version| version["storage"] == true).map(name);
        let storage_version = storage_version.ok_or("the definition has no storage version")?;
        let is_served = |version: &&Value| version["served"] == true;
        let served = versions().filter(is_served).map(name).max_by_key(|name| *name == storage_version);
        let version = served.ok_or("the definition serves no version, so that no client can write its objects")?;
        let stored = object.pointer("/status/storedVersions").and_then(Value::as_array).into_iter().flatten();
        let group = text("/spec/group")?;
        Ok(Self {
            uid: text("/metadata/uid")?,
            resource_version: text("/metadata/resourceVersion")?,
            resource: ApiResource {
                api_version: format!("{group}/{version}"),
                group,
                version,
                kind: text("/spec/names/kind")?,
                plural: text("/spec/names/plural")?,
            },
            storage_version,
            stored_versions: stored.filter_map(Value::as_str).map(str::to_owned).collect(),
            changed: changed(object),
        })
    }

    /// Whether all objects are stored in the storage version, as far as the API server knows.
    pub(crate) fn is_up_to_date(&self) -> bool {
        self.stored_versions == [self.storage_version.as_str()]
    }

    /// How long to wait until every API server of the cluster knows the storage version. At most ten seconds, whatever the clocks
    /// say.
    pub(crate) fn settles_in(&self, now: Timestamp) -> Duration {
        let Some(changed) = self.changed else { return Duration::ZERO };
        let passed = Duration::try_from(now.duration_since(changed)).unwrap_or_default();
        SETTLED_AFTER.saturating_sub(passed)
    }

    /// Says what changed since `before` so that objects may be stored in yet another version.
    ///
    /// # Errors
    ///
    /// Such a change.
    pub(crate) fn check_against(&self, before: &Self) -> Result<(), String> {
        if self.uid != before.uid {
            return Err("the definition was deleted and created again in the meantime".to_owned());
        }
        if self.storage_version != before.storage_version {
            return Err(format!(
                "the storage version changed from {} to {} in the meantime",
                before.storage_version, self.storage_version
            ));
        }
        match self.stored_versions.iter().find(|version| !before.stored_versions.contains(version)) {
            Some(version) => Err(format!("objects may have been stored as {version} in the meantime")),
            None => Ok(()),
        }
    }
}

fn changed(object: &Value) -> Option<Timestamp> {
    let entries = object.pointer("/metadata/managedFields")?.as_array()?.iter();
    let entries = entries.filter(|entry| entry["subresource"].as_str().unwrap_or_default().is_empty());
    entries.filter_map(|entry| entry["time"].as_str()?.parse().ok()).max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({
            "metadata": {
                "name": "things.example.com", "uid": "u", "resourceVersion": "7",
                "managedFields": [
                    {"time": "2026-01-01T00:00:00Z"},
                    {"time": "2026-01-01T00:00:30Z", "subresource": "status"},
                    {"time": "2026-01-01T00:00:05Z"},
                ],
            },
            "spec": {
                "group": "example.com", "names": {"kind": "Thing", "plural": "things"},
                "versions": [
                    {"name": "v1alpha1", "served": true, "storage": false}, {"name": "v1", "served": true, "storage": true},
                    {"name": "v2", "served": true, "storage": false},
                ],
            },
            "status": {"storedVersions": ["v1alpha1", "v1"]},
        })
    }

    #[test]
    fn storage_version_and_stored_versions_are_read() {
        let read = Definition::read(&object()).expect("a definition");
        assert_eq!((read.storage_version.as_str(), read.resource.api_version.as_str()), ("v1", "example.com/v1"));
        assert_eq!(read.stored_versions, ["v1alpha1", "v1"]);
        assert!(!read.is_up_to_date());
        let mut unserved = object();
        unserved["spec"]["versions"][1]["served"] = json!(false);
        unserved["status"]["storedVersions"] = json!(["v1"]);
        let read = Definition::read(&unserved).expect("a definition");
        assert_ne!(read.resource.version, "v1", "a served version is used");
        assert!(read.is_up_to_date());
    }

    #[test]
    fn unusable_definition_is_an_error() {
        let mut deleted = object();
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let mut unserved = object();
        unserved["spec"]["versions"] = json!([{"name": "v1", "served": false, "storage": true}]);
        for (object, why) in [(deleted, "is being deleted"), (unserved, "serves no version"), (json!({}), "no storage")]
        {
            let error = Definition::read(&object).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn definition_settles_ten_seconds_after_its_last_change() {
        let read = Definition::read(&object()).expect("a definition");
        let at = |text: &str| read.settles_in(text.parse().expect("a time"));
        assert_eq!(at("2026-01-01T00:00:06Z"), Duration::from_secs(9));
        assert_eq!(at("2026-01-01T00:00:15Z"), Duration::ZERO);
        assert_eq!(at("2025-01-01T00:00:00Z"), Duration::from_secs(10), "a clock that is behind");
    }

    #[test]
    fn changes_of_the_storage_version_are_noticed() {
        let before = Definition::read(&object()).expect("a definition");
        assert_eq!(before.check_against(&before), Ok(()));
        let after = |change: fn(&mut Definition)| {
            let mut after = before.clone();
            change(&mut after);
            after.check_against(&before).expect_err("a change")
        };
        assert!(after(|it| it.uid = "w".to_owned()).contains("created again"));
        assert!(after(|it| it.storage_version = "v2".to_owned()).contains("from v1 to v2"));
        assert!(after(|it| it.stored_versions.push("v2".to_owned())).contains("stored as v2"));
    }
}
