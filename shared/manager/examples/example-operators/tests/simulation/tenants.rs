//! What a Tenant requires of the cluster. It has no namespace, and its children are a namespace and an object in that namespace.

use example_operators::tenants::Tenants;
use fastrand::Rng;
use manager::Operator;
use model_apiserver::Model;
use serde_json::{Value, json};
use simulation::{
    Subject,
    oracle::{Wanted, contains, labels, owner, say},
};

pub(crate) struct Tenant;

const ROLES: &str = "roles.rbac.authorization.k8s.io";
const BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
/// The children in each namespace but the binding, and that they are wanted.
const FURNITURE: &[(&str, bool)] = &[("resourcequotas", true), ("serviceaccounts", true), (ROLES, true)];

impl Subject for Tenant {
    fn operator(&self) -> &'static dyn Operator {
        &Tenants
    }

    fn kind(&self) -> (&'static str, &'static str) {
        ("examples.example.com/v1", "Tenant")
    }

    fn resource(&self) -> &'static str {
        "tenants.examples.example.com"
    }

    fn children(&self) -> &'static [&'static str] {
        &["namespaces", "resourcequotas", "serviceaccounts", ROLES, BINDINGS]
    }

    fn spec(&self, _: &str, rng: &mut Rng) -> Value {
        json!({"pods": rng.u8(..9)})
    }

    fn damage(&self, resource: &str, rng: &mut Rng) -> Option<Value> {
        match resource {
            "resourcequotas" => Some(json!({"spec": {"hard": {"pods": (10 + rng.u8(..9)).to_string()}}})),
            ROLES => {
                let resource = format!("kind-{}", rng.u8(..9));
                Some(json!({"rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]}))
            }
            BINDINGS => {
                let name = format!("user-{}", rng.u8(..9));
                let user = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
                Some(json!({"subjects": [user]}))
            }
            _ => None, // the operator sets nothing in a namespace or an account
        }
    }

    fn input(&self, rng: &mut Rng) -> Option<Value> {
        let labels = json!({"examples.example.com/tenant": rng.char('a'..='d')});
        let name = format!("team-{}", rng.u8(..2));
        Some(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}))
    }

    fn judge(&self, object: &Value, cluster: &Model) -> Result<(), String> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let is_ours = |namespace: &Value| {
            let metadata = &namespace["metadata"];
            metadata["labels"]["examples.example.com/tenant"] == name && metadata["deletionTimestamp"].is_null()
        };
        let mut namespaces: Vec<Value> = cluster.objects("namespaces");
        namespaces.retain(is_ours);
        let mut namespaces: Vec<Value> = namespaces.iter().map(|it| it["metadata"]["name"].clone()).collect();
        namespaces.push(name.into());
        let wanted = |name, children| Wanted { name, adopts: true, app: "tenant", children, fits: |_, _| true };
        if !wanted(name, &[("namespaces", true)]).are_there_in("", object, cluster)? {
            return Ok(());
        }
        for resource in &self.children()[1..] {
            for child in cluster.objects(resource) {
                let metadata = &child["metadata"];
                let is_ours = metadata["ownerReferences"][0]["uid"] == object["metadata"]["uid"];
                if is_ours && !namespaces.contains(&metadata["namespace"]) {
                    return Err(format!("the child in {} is not wanted any more: {resource}", metadata["namespace"]));
                }
            }
        }
        let ours = json!({"labels": labels("tenant", name), "ownerReferences": [owner(object)]});
        let namespace = cluster.object("namespaces", "", name).unwrap_or_default();
        contains(&namespace, &json!({"metadata": ours}), "Namespace")?;
        let hard = json!({"pods": object["spec"]["pods"].to_string()});
        for namespace in namespaces.iter().filter_map(Value::as_str) {
            // There is no binding to a role of another owner.
            if !wanted(name, FURNITURE).are_there_in(namespace, object, cluster)?
                || !wanted(name, &[(BINDINGS, true)]).are_there_in(namespace, object, cluster)?
            {
                return Ok(());
            }
            let live = |resource: &str| cluster.object(resource, namespace, name).unwrap_or_default();
            contains(&live("resourcequotas"), &json!({"metadata": ours, "spec": {"hard": hard}}), namespace)?;
            contains(&live("serviceaccounts"), &json!({"metadata": ours}), namespace)?;
            let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]);
            contains(&live(ROLES), &json!({"metadata": ours, "rules": rules}), namespace)?;
            let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
            contains(&live(BINDINGS), &json!({"metadata": ours, "subjects": subjects}), namespace)?;
        }
        say(&object["status"], &[("Ready", ("True", "Ready")), ("Degraded", ("False", "AsExpected"))])
    }
}
