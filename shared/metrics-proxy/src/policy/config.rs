//! Parses the file of `--config-file`. Unknown fields, and settings that would have no effect, are refused at the start.

use std::collections::BTreeSet;

use http::{HeaderName, request::Parts};
use serde::Deserialize;

use super::{
    Attributes, User,
    attributes::{self, Resource, Rewrites},
    rules::{Rule, RuleTarget},
    template::Template,
};

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is not YAML, or has unknown fields.
    #[error("{0}")]
    Syntax(String),
    /// An expression in double braces is not supported.
    #[error("authorization.resourceAttributes: {0}")]
    Template(String),
    /// A template needs a value, but no rewrite provides one.
    #[error("authorization.resourceAttributes has {{{{ .Value }}}}, but there is no authorization.rewrites")]
    NoRewrites,
    /// A rewrite has no name, or there are no resource attributes for its value.
    #[error(
        "authorization.rewrites needs authorization.resourceAttributes, and a name in byQueryParameter or byHttpHeader"
    )]
    NothingToRewrite,
    /// The name of a header is invalid.
    #[error("authorization.rewrites.byHttpHeader.name: {0:?} is not the name of a header")]
    Header(String),
    /// A static rule has neither a path nor a resource, or both.
    #[error(
        "authorization.static[{0}]: either give a path, or resourceRequest: true and parts of a resource, but not both"
    )]
    Static(usize),
    /// The resource is empty, so no user could ever have access.
    #[error("authorization.resourceAttributes.resource must not be empty")]
    NoResource,
}

/// The authorisation settings of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Authorization {
    resource: Option<Resource>,
    rewrites: Option<Rewrites>,
    rules: Vec<Rule>,
}

impl Authorization {
    /// Parses YAML text. Empty text has no settings.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let config: Config = serde_saphyr::from_str(text).map_err(|error| ConfigError::Syntax(error.to_string()))?;
        config.authorization.try_into()
    }

    /// Every access that must be allowed for a request. Empty if the request is malformed.
    pub(crate) fn attributes(&self, request: &Parts) -> BTreeSet<Attributes> {
        attributes::attributes(self.resource.as_ref(), self.rewrites.as_ref(), request)
    }

    /// Whether a static rule allows the access, so that no review is needed.
    pub(crate) fn allows(&self, user: &User, attributes: &Attributes) -> bool {
        self.rules.iter().any(|rule| rule.allows(user, attributes))
    }
}

/// The schema of the file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    #[serde(default)]
    authorization: RawAuthorization,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawAuthorization {
    rewrites: Option<RawRewrites>,
    resource_attributes: Option<RawResource>,
    #[serde(default, rename = "static")]
    rules: Vec<RawRule>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawRewrites {
    by_query_parameter: Option<Named>,
    by_http_header: Option<Named>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[derive(Default)]
struct RawResource {
    namespace: String,
    api_group: String,
    api_version: String,
    resource: String,
    subresource: String,
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawRule {
    user: RawUser,
    verb: String,
    namespace: String,
    api_group: String,
    resource: String,
    subresource: String,
    name: String,
    path: String,
    resource_request: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawUser {
    name: String,
    groups: Vec<String>,
}

impl TryFrom<RawAuthorization> for Authorization {
    type Error = ConfigError;

    fn try_from(raw: RawAuthorization) -> Result<Self, ConfigError> {
        let RawAuthorization { rewrites, resource_attributes, rules } = raw;
        let resource = resource_attributes.map(Resource::try_from).transpose()?;
        let rewrites = rewrites.map(Rewrites::try_from).transpose()?;
        let has_place = resource.iter().flat_map(Resource::parts).any(Template::has_place);
        match (&resource, &rewrites) {
            (_, None) if has_place => return Err(ConfigError::NoRewrites),
            (None, Some(_)) => return Err(ConfigError::NothingToRewrite),
            _ => {}
        }
        let rules = rules.into_iter().enumerate().map(|(n, rule)| rule.read(n)).collect::<Result<_, _>>()?;
        Ok(Self { resource, rewrites, rules })
    }
}

impl TryFrom<RawResource> for Resource {
    type Error = ConfigError;

    fn try_from(raw: RawResource) -> Result<Self, ConfigError> {
        let RawResource { namespace, api_group, api_version, resource, subresource, name } = raw;
        if resource.is_empty() {
            return Err(ConfigError::NoResource);
        }
        let template = |text: String| Template::parse(&text).map_err(ConfigError::Template);
        Ok(Self {
            namespace: template(namespace)?,
            group: template(api_group)?,
            version: template(api_version)?,
            resource: template(resource)?,
            subresource: template(subresource)?,
            name: template(name)?,
        })
    }
}

impl TryFrom<RawRewrites> for Rewrites {
    type Error = ConfigError;

    fn try_from(raw: RawRewrites) -> Result<Self, ConfigError> {
        let name = |it: Option<Named>| it.map(|it| it.name).filter(|name| !name.is_empty());
        let header = |name: String| HeaderName::try_from(&name).map_err(|_| ConfigError::Header(name));
        let (query_parameter, header) =
            (name(raw.by_query_parameter), name(raw.by_http_header).map(header).transpose()?);
        if query_parameter.is_none() && header.is_none() {
            return Err(ConfigError::NothingToRewrite);
        }
        Ok(Self { query_parameter, header })
    }
}

impl RawRule {
    fn read(self, n: usize) -> Result<Rule, ConfigError> {
        let Self { user, verb, namespace, api_group, resource, subresource, name, path, resource_request } = self;
        let parts = [&namespace, &api_group, &resource, &subresource, &name];
        let target = match (resource_request, path.is_empty()) {
            (true, true) => RuleTarget::Resource([namespace, api_group, resource, subresource, name]),
            (false, false) if parts.iter().all(|part| part.is_empty()) => RuleTarget::Path(path),
            _ => return Err(ConfigError::Static(n)),
        };
        Ok(Rule { user: user.name, groups: user.groups, verb, target })
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    /// The file in kube-rbac-proxy's documentation on rewrites, with a static rule.
    const FULL: &str = r#"
authorization:
  rewrites:
    byQueryParameter:
      name: "namespace"
    byHttpHeader:
      name: "X-Namespace"
  resourceAttributes:
    apiVersion: v1beta1
    apiGroup: metrics.k8s.io
    resource: pods
    namespace: "{{ .Value }}"
  static:
    - user:
        name: system:serviceaccount:default:default
      resourceRequest: true
      resource: pods
      namespace: default
      verb: get
"#;

    fn get(uri: &str) -> Parts {
        Request::get(uri).body(()).unwrap().into_parts().0
    }

    #[test]
    fn full_config_file_is_applied() {
        let authorization = Authorization::parse(FULL).unwrap();
        let user = |name: &str| User { name: name.to_owned(), ..User::default() };
        let of_default = authorization.attributes(&get("/metrics?namespace=default"));
        let of_other = authorization.attributes(&get("/metrics?namespace=other"));
        let (of_default, of_other) = (of_default.first().unwrap(), of_other.first().unwrap());
        assert!(authorization.allows(&user("system:serviceaccount:default:default"), of_default));
        assert!(!authorization.allows(&user("system:serviceaccount:default:default"), of_other));
        assert!(!authorization.allows(&user("another-user"), of_default));
        assert!(authorization.attributes(&get("/metrics")).is_empty());
    }

    #[test]
    fn empty_config_file_gives_defaults() {
        for text in ["", "\n", "authorization: {}", "{}", "authorization:\n  static: []\n"] {
            assert_eq!(Authorization::parse(text).unwrap(), Authorization::default(), "{text:?}");
        }
    }

    #[test]
    fn invalid_or_ineffective_config_is_rejected() {
        let resource = "authorization:\n  resourceAttributes:\n    resource: pods\n";
        for (text, because) in [
            ("authorization: [", ""),
            ("- a", ""),
            ("authorisation: {}", "authorisation"),
            ("authorization:\n  resourceAttributes:\n    apigroup: x", "apigroup"),
            ("authorization:\n  resourceAttributes:\n    name: x", "resource must not be empty"),
            (&format!("{resource}    name: '{{{{ .Valu }}}}'"), "only {{ .Value }} is known"),
            (&format!("{resource}    name: '{{{{ .Value }}}}'"), "there is no authorization.rewrites"),
            (&format!("{resource}  rewrites: {{}}"), "needs authorization.resourceAttributes, and a name"),
            (&format!("{resource}  rewrites:\n    byQueryParameter: {{name: ''}}"), "and a name"),
            (
                &format!("{resource}  rewrites:\n    byHttpHeader: {{name: 'a b'}}"),
                "\"a b\" is not the name of a header",
            ),
            ("authorization:\n  rewrites:\n    byQueryParameter: {name: ns}", "needs authorization.resourceAttributes"),
            ("authorization:\n  static:\n  - verb: get", "static[0]: either give a path"),
            ("authorization:\n  static:\n  - path: /a\n  - {path: /a, resourceRequest: true}", "static[1]"),
            ("authorization:\n  static:\n  - {path: /a, resource: pods}", "static[0]"),
        ] {
            let error = Authorization::parse(text).expect_err(text).to_string();
            assert!(error.contains(because), "{text:?}: {error:?} instead of {because:?}");
        }
    }
}
