//! Reads objects of the simulated cluster.

use model_apiserver::{Change, Entry};
use serde_json::Value;

use crate::network::OPERATOR;

/// The text of a field; empty if it is absent or no text.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The uid of the first owner.
pub(crate) fn owner(child: &Value) -> String {
    text(&child["metadata"]["ownerReferences"][0]["uid"])
}

/// Whether the change concerns leader election: a Lease, or an Event about one.
pub(crate) fn is_about_leadership(change: &Change) -> bool {
    let tells = |event: &Value| event["regarding"]["kind"] == "Lease";
    change.resource.starts_with("leases") || change.after.as_deref().is_some_and(tells)
}

/// Whether the operator has sent this write for nothing: the API server accepted it, and had nothing to change. A refused write is
/// not one, because the operator may not know that a name is taken. Neither is a dry run, whose answer the operator needs.
pub(crate) fn is_for_nothing(request: &Entry) -> bool {
    let is_accepted = request.code.is_some_and(|code| code < 300);
    let is_work = !["leases", "events"].iter().any(|other| request.resource.starts_with(other));
    request.client.starts_with(OPERATOR)
        && request.verb.writes()
        && is_accepted
        && is_work
        && !request.changed
        && !request.dry_run
}

#[cfg(test)]
mod tests {
    use model_apiserver::Verb;

    use super::*;

    fn is_one(client: &str, verb: Verb, resource: &str, code: u16, changed: bool, dry_run: bool) -> bool {
        is_for_nothing(&Entry {
            client: client.to_owned(),
            verb,
            resource: resource.to_owned(),
            subresource: String::new(),
            namespace: "shop".to_owned(),
            name: "a".to_owned(),
            manager: String::new(),
            user_agent: String::new(),
            content_type: String::new(),
            body: None,
            code: Some(code),
            delivered: true,
            changed,
            dry_run,
        })
    }

    #[test]
    fn accepted_writes_that_change_nothing_are_for_nothing() {
        assert!(is_one("operator-0", Verb::Patch, "deployments.apps", 200, false, false));
        assert!(!is_one("user", Verb::Patch, "deployments.apps", 200, false, false));
        assert!(!is_one("operator-0", Verb::Get, "deployments.apps", 200, false, false));
        assert!(!is_one("operator-0", Verb::Update, "leases.coordination.k8s.io", 200, false, false));
        assert!(!is_one("operator-0", Verb::Create, "deployments.apps", 409, false, false));
        assert!(!is_one("operator-0", Verb::Patch, "deployments.apps", 200, true, false));
        assert!(!is_one("operator-0", Verb::Patch, "deployments.apps", 200, false, true));
    }
}
