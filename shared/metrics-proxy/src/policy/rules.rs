//! Static rules: what the file allows without a review by the API server.

use super::{Attributes, Target, User};

/// An access that is allowed without a review. An empty field matches anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) user: String,
    /// The user must have all of them.
    pub(crate) groups: Vec<String>,
    pub(crate) verb: String,
    pub(crate) target: RuleTarget,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RuleTarget {
    Path(String),
    /// Namespace, group, resource, subresource and name.
    Resource([String; 5]),
}

impl Rule {
    pub(crate) fn allows(&self, user: &User, attributes: &Attributes) -> bool {
        let fits = |rule: &str, value: &str| rule.is_empty() || rule == value;
        let target = match (&self.target, &attributes.target) {
            (RuleTarget::Path(rule), Target::Path(path)) => rule == path,
            (
                RuleTarget::Resource(rule),
                Target::Resource { namespace, group, version: _, resource, subresource, name },
            ) => {
                rule.iter().zip([namespace, group, resource, subresource, name]).all(|(rule, value)| fits(rule, value))
            }
            _ => false,
        };
        target
            && fits(&self.user, &user.name)
            && fits(&self.verb, attributes.verb)
            && self.groups.iter().all(|group| user.groups.contains(group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, groups: &[&str]) -> User {
        User { name: name.to_owned(), groups: groups.iter().map(ToString::to_string).collect(), ..User::default() }
    }

    fn path(path: &str) -> Attributes {
        Attributes { verb: "get", target: Target::Path(path.to_owned()) }
    }

    fn resource(namespace: &str, resource: &str) -> Attributes {
        let [group, version, subresource, name] = ["", "v1", "metrics", ""].map(str::to_owned);
        let (namespace, resource) = (namespace.to_owned(), resource.to_owned());
        Attributes { verb: "get", target: Target::Resource { namespace, group, version, resource, subresource, name } }
    }

    fn on_path(it: &str) -> Rule {
        Rule {
            user: "ann".to_owned(),
            groups: Vec::new(),
            verb: "get".to_owned(),
            target: RuleTarget::Path(it.to_owned()),
        }
    }

    fn on_resource(namespace: &str) -> Rule {
        let target = RuleTarget::Resource([namespace, "", "services", "", ""].map(str::to_owned));
        Rule { target, ..on_path("") }
    }

    #[test]
    fn rule_allows_only_requests_matching_all_fields() {
        for (rule, attributes, expected) in [
            (on_path("/metrics"), path("/metrics"), true),
            (on_path("/metrics"), path("/metrics/x"), false),
            (on_path("/metrics"), resource("a", "services"), false),
            (on_resource("a"), resource("a", "services"), true),
            (on_resource("a"), resource("b", "services"), false),
            (on_resource(""), resource("b", "services"), true),
            (on_resource("a"), resource("a", "pods"), false),
            (on_resource("a"), path("/metrics"), false),
            (Rule { verb: "create".to_owned(), ..on_path("/metrics") }, path("/metrics"), false),
            (Rule { verb: String::new(), ..on_path("/metrics") }, path("/metrics"), true),
        ] {
            assert_eq!(rule.allows(&user("ann", &[]), &attributes), expected, "{rule:?} {attributes:?}");
            assert!(!rule.allows(&user("bob", &[]), &attributes), "{rule:?} is for ann");
        }
    }

    #[test]
    fn rule_requires_all_its_groups() {
        let groups = ["a", "b"].map(str::to_owned).to_vec();
        let rule = Rule { user: String::new(), groups, ..on_path("/metrics") };
        assert!(rule.allows(&user("bob", &["b", "c", "a"]), &path("/metrics")));
        assert!(!rule.allows(&user("bob", &["a"]), &path("/metrics")));
    }
}
