//! The kinds that operators of the runtime manage: discovered from the API server.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use serde::Deserialize;

use crate::{Session, text::request_error};

/// The category of the kinds. The runtime adds it to each CRD.
pub const CATEGORY: &str = "operator-managed";

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A kind that an operator manages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The resource in the version that the API server prefers.
    pub(crate) resource: ApiResource,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) is_namespaced: bool,
}

/// The kinds in this cluster, in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kinds(Vec<Kind>);

#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    resources: Vec<Discovered>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Discovered {
    resource: String,
    response_kind: ResponseKind,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    singular_resource: String,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
}

#[derive(Deserialize)]
struct ResponseKind {
    group: String,
    version: String,
    kind: String,
}

impl Kinds {
    /// Asks the API server.
    pub(crate) async fn discover(client: &Client) -> Result<Self, String> {
        let request = http::Request::get("/apis").header(http::header::ACCEPT, AGGREGATED).body(Vec::new());
        let request = request.map_err(|error| error.to_string())?;
        let answer = client.request_text(request).await;
        Self::read(&answer.map_err(|error| request_error("cannot read which kinds the cluster has", &error))?)
    }

    /// Reads an `APIGroupDiscoveryList`, which must have a kind of ours: without one, no command can do anything.
    fn read(text: &str) -> Result<Self, String> {
        let groups: Groups = serde_json::from_str(text)
            .map_err(|error| format!("the API server answers discovery in an unknown format: {error}"))?;
        let mut kinds: Vec<Kind> = Vec::new();
        // The versions of a group come in the order of preference.
        for resource in groups.items.into_iter().flat_map(|group| group.versions).flat_map(|version| version.resources)
        {
            let ResponseKind { group, version, kind } = resource.response_kind;
            let is_ours = resource.categories.iter().any(|category| category == CATEGORY);
            let is_known = kinds.iter().any(|it| it.resource.group == group && it.resource.kind == kind);
            if is_ours && !is_known {
                kinds.push(Kind {
                    resource: ApiResource {
                        api_version: format!("{group}/{version}"),
                        group,
                        version,
                        kind,
                        plural: resource.resource,
                    },
                    singular: resource.singular_resource,
                    short_names: resource.short_names,
                    is_namespaced: resource.scope == "Namespaced",
                });
            }
        }
        if kinds.is_empty() {
            return Err(
                "this cluster has no kind of these operators: install them, or choose another --context".to_owned()
            );
        }
        kinds.sort_by(|a, b| (&a.resource.kind, &a.resource.group).cmp(&(&b.resource.kind, &b.resource.group)));
        Ok(Self(kinds))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Kind> {
        self.0.iter()
    }

    /// The kind that the user names as in kubectl: by kind, plural, singular or short name, perhaps with its group.
    pub(crate) fn find(&self, name: &str) -> Result<&Kind, String> {
        let found = self.iter().find(|kind| kind.is_named(name));
        found.ok_or_else(|| {
            let known: Vec<String> = self.iter().map(Kind::with_short_names).collect();
            format!("there is no kind \"{name}\"; the operators of this cluster manage {}", known.join(", "))
        })
    }
}

impl Kind {
    fn is_named(&self, name: &str) -> bool {
        let ApiResource { kind, plural, group, .. } = &self.resource;
        let qualified = format!("{plural}.{group}");
        let mut names = [kind, plural, &self.singular, &qualified].into_iter().chain(&self.short_names);
        names.any(|own| own.eq_ignore_ascii_case(name))
    }

    fn with_short_names(&self) -> String {
        match self.short_names.as_slice() {
            [] => self.resource.kind.clone(),
            names => format!("{} ({})", self.resource.kind, names.join(", ")),
        }
    }

    /// The objects in the namespace of the session, whatever `--all-namespaces` says.
    pub(crate) fn api(&self, session: &Session) -> Api<DynamicObject> {
        if self.is_namespaced {
            Api::namespaced_with(session.client.clone(), &session.namespace, &self.resource)
        } else {
            Api::all_with(session.client.clone(), &self.resource)
        }
    }

    /// The object as commands name it, such as `thing/web`.
    pub(crate) fn named(&self, name: &str) -> String {
        format!("{}/{name}", self.singular)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kinds() -> Kinds {
        let resource = |kind: &str, version: &str, short: &[&str], categories: &[&str]| {
            json!({
                "resource": format!("{}s", kind.to_lowercase()), "singularResource": kind.to_lowercase(),
                "responseKind": {"group": "example.com", "version": version, "kind": kind}, "scope": "Namespaced",
                "shortNames": short, "categories": categories, "verbs": ["get"],
            })
        };
        let ours = &["all", CATEGORY];
        let groups = json!({"kind": "APIGroupDiscoveryList", "items": [
            {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [
                resource("Deployment", "v1", &["deploy"], &["all"]),
            ]}]},
            {"metadata": {"name": "example.com"}, "versions": [
                {"version": "v1", "resources": [
                    resource("Thing", "v1", &["th"], ours), resource("Other", "v1", &[], ours),
                ]},
                {"version": "v1alpha1", "resources": [resource("Thing", "v1alpha1", &["th"], ours)]},
            ]},
        ]});
        Kinds::read(&groups.to_string()).expect("kinds")
    }

    #[test]
    fn only_kinds_of_the_category_are_ours_in_their_preferred_version() {
        let found: Vec<_> =
            kinds().iter().map(|kind| (kind.resource.kind.clone(), kind.resource.version.clone())).collect();
        assert_eq!(found, [("Other".to_owned(), "v1".to_owned()), ("Thing".to_owned(), "v1".to_owned())]);
    }

    /// Otherwise `status` would say that there are no objects.
    #[test]
    fn cluster_without_our_kinds_is_an_error() {
        let error = Kinds::read("{\"items\": []}").expect_err("no kinds");
        assert_eq!(error, "this cluster has no kind of these operators: install them, or choose another --context");
    }

    #[test]
    fn kind_is_found_by_each_of_its_names() {
        let kinds = kinds();
        for name in ["Thing", "thing", "things", "th", "things.example.com"] {
            assert_eq!(kinds.find(name).expect(name).resource.kind, "Thing");
        }
        let error = kinds.find("deployment").expect_err("not ours");
        assert_eq!(error, "there is no kind \"deployment\"; the operators of this cluster manage Other, Thing (th)");
    }
}
