//! Which permissions a release has, and in which namespaces.

use chart::{NAMESPACE, rendered::Rendered};
use manager::namespace_selector_permissions;
use serde_json::{Value, json};

use crate::{
    flag_sets::everything,
    kit::{FlagSet, deep, flags, render},
    notes::notes,
};

/// The first resource of each rule in the cluster roles that the chart binds to its own accounts. Roles for users are not bound.
fn cluster_wide(rendered: &Rendered) -> Vec<String> {
    let bound: Vec<&Value> = rendered.of("ClusterRoleBinding").map(|binding| &binding["roleRef"]["name"]).collect();
    let ours = rendered.of("ClusterRole").filter(|role| bound.contains(&&role["metadata"]["name"]));
    let rules = ours.flat_map(|role| role["rules"].as_array().unwrap());
    let mut about: Vec<_> = rules.map(|rule| rule["resources"][0].as_str().unwrap().to_owned()).collect();
    about.sort();
    about
}

#[test]
fn watch_namespaces_limit_watches_and_permissions() {
    let rendered = render(&json!({"watchNamespaces": ["one", "two"]}));
    assert!(flags(&rendered).contains(&"--watch-namespaces=one,two".to_owned()));
    let left = ["customresourcedefinitions", "subjectaccessreviews", "tokenreviews", "validatingwebhookconfigurations"];
    assert_eq!(cluster_wide(&rendered), left);
    for namespace in ["one", "two"] {
        let roles = rendered.of("Role").filter(|role| role["metadata"]["namespace"] == namespace);
        let names: Vec<_> = roles.map(|role| role["metadata"]["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"operators-memcached"), "{names:?}");
    }
    for webhook in deep(&json!(rendered.of("ValidatingWebhookConfiguration").collect::<Vec<_>>()), "namespaceSelector")
    {
        assert!(webhook.to_string().contains(r#""operator":"In","values":["one","two"]"#), "{webhook}");
    }
    let test = rendered.object("Pod", "operators-smoke-test").unwrap();
    assert!(test["spec"]["containers"][0]["args"].to_string().contains("--namespace=one"));
    let allowed: Vec<_> = rendered.of("Role").filter(|it| it["metadata"]["name"] == "operators-smoke-test").collect();
    assert_eq!((allowed.len(), &allowed[0]["metadata"]["namespace"]), (1, &json!("one")));

    // The remaining cluster-wide rules go with their features.
    let without = |values: Value| {
        let mut values = values;
        values["watchNamespaces"] = json!(["one"]);
        cluster_wide(&render(&values))
    };
    let certificates = ["customresourcedefinitions", "validatingwebhookconfigurations"];
    assert_eq!(without(json!({"metrics": {"proxy": {"kind": "none"}}})), certificates);
    let reviews = ["subjectaccessreviews", "tokenreviews"];
    assert_eq!(without(json!({"webhooks": {"enabled": false}})), reviews);
    assert_eq!(without(json!({"webhooks": {"certManager": {"enabled": true}}})), reviews);
    assert!(without(json!({"webhooks": {"enabled": false}, "metrics": {"enabled": false}})).is_empty());
}

/// The rules about definitions among those of the operator of Memcached.
fn rules_about_definitions(values: &Value) -> Vec<Value> {
    let rendered = render(values);
    let roles = rendered.of("ClusterRole").chain(rendered.of("Role"));
    let ours = roles.filter(|role| role["metadata"]["name"] == "operators-memcached");
    let granted = ours.flat_map(|role| role["rules"].as_array().unwrap());
    granted.filter(|rule| rule["resources"][0] == "customresourcedefinitions").cloned().collect()
}

#[test]
fn operator_may_watch_the_definition_of_its_optional_kind_by_name() {
    let only = json!({
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "resourceNames": ["servicemonitors.monitoring.coreos.com"],
        "verbs": ["watch"],
    });
    let only = [only];
    assert_eq!(rules_about_definitions(&json!({})), only);
    assert_eq!(rules_about_definitions(&json!({"watchNamespaceLabels": {"team": "x"}})), only);
    assert!(rules_about_definitions(&json!({"watchNamespaces": ["one"]})).is_empty(), "a Role cannot grant it");
}

/// The bindings that give the operator of Memcached its permissions, by namespace and name.
fn bindings_of_memcached(values: &Value) -> Vec<(String, String)> {
    let rendered = render(values);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let bindings = rendered.of("ClusterRoleBinding").chain(rendered.of("RoleBinding"));
    let ours = bindings.filter(|it| it["roleRef"]["name"] == "operators-memcached");
    ours.map(|it| (text(&it["metadata"]["namespace"]), text(&it["metadata"]["name"]))).collect()
}

/// A binding that has the same name in two releases is what keeps the second one out.
#[test]
fn bindings_have_one_name_in_all_releases_that_would_run_an_operator_for_the_same_objects() {
    let of =
        |namespace: &str, scope: &str| (namespace.to_owned(), format!("memcached-operator.one-release-per-{scope}"));
    assert_eq!(bindings_of_memcached(&json!({})), [of("", "cluster")]);
    assert_eq!(bindings_of_memcached(&json!({"topology": "separate"})), [of("", "cluster")]);
    let two = json!({"watchNamespaces": ["one", "two"]});
    assert_eq!(bindings_of_memcached(&two), ["one", "two"].map(|namespace| of(namespace, "namespace")));
    let by = |labels: Value| bindings_of_memcached(&json!({"watchNamespaceLabels": labels}));
    let labels = json!({"example.com/team": "x", "env": "test"});
    assert_eq!(by(labels.clone()), by(json!({"env": "test", "example.com/team": "x"})));
    let (namespace, name) = &by(labels.clone())[0];
    assert!(namespace.is_empty() && name.starts_with("memcached-operator.one-release-per-labels-"), "{name}");
    assert!(!name.contains('/'), "the API server refuses it: {name}");
    assert_ne!(by(labels), by(json!({"env": "test"})));
    assert!(bindings_of_memcached(&json!({"rbac": {"create": false}})).is_empty());
}

/// Broken webhooks could otherwise block their own repair.
#[test]
fn webhooks_check_neither_the_namespace_of_the_release_nor_kube_system() {
    let own = json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]});
    let rendered = render(&json!({"webhooks": {"namespaceSelector": own, "failurePolicy": "Ignore"}}));
    let configurations = json!(rendered.of("ValidatingWebhookConfiguration").collect::<Vec<_>>());
    let selectors = deep(&configurations, "namespaceSelector");
    assert!(selectors.len() > 1, "{configurations}");
    let names = json!([NAMESPACE, "kube-system"]);
    let left_out = json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": names});
    for selector in selectors {
        assert_eq!(selector["matchLabels"], own["matchLabels"]);
        assert_eq!(selector["matchExpressions"], json!([own["matchExpressions"][0], left_out]));
    }
    assert!(deep(&configurations, "failurePolicy").into_iter().all(|policy| policy == "Ignore"), "{configurations}");
}

#[test]
fn namespaces_can_be_selected_by_labels() {
    let labels = json!({"team": "x", "env": "test"});
    let rendered = render(&json!({"watchNamespaceLabels": labels}));
    assert!(flags(&rendered).contains(&"--watch-namespace-selector=env=test,team=x".to_owned()));
    let role = rendered.object("ClusterRole", "operators-controller-manager-namespaces").unwrap();
    assert_eq!(role["rules"], json!([{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}]));
    assert_eq!(role["rules"], json!(namespace_selector_permissions()), "the rule of the runtime");
    assert!(rendered.object("ClusterRole", "operators-memcached").is_some(), "permissions in the whole cluster");
    let webhooks = json!(rendered.of("ValidatingWebhookConfiguration").collect::<Vec<_>>());
    for selector in deep(&webhooks, "namespaceSelector") {
        assert_eq!(selector["matchLabels"], labels);
    }
    let test = rendered.object("Pod", "operators-smoke-test").unwrap();
    assert!(test["spec"]["containers"][0]["args"].to_string().contains("--namespace=operators-smoke-test"));
    let scratch = rendered.object("Namespace", "operators-smoke-test").unwrap();
    assert_eq!([&scratch["metadata"]["labels"]["env"], &scratch["metadata"]["labels"]["team"]], ["test", "x"]);
    assert!(render(&json!({})).object("ClusterRole", "operators-controller-manager-namespaces").is_none());
    let said = notes(&json!({"watchNamespaceLabels": labels}), &[]);
    for sentence in
        ["only in namespaces with these labels: env=test,team=x\n", "permissions are those for the whole cluster"]
    {
        assert!(said.contains(sentence), "{said}");
        assert!(!notes(&json!({}), &[]).contains(sentence), "{sentence}");
    }
}

#[test]
fn secret_access_follows_read_secrets_value() {
    let about_secrets = |values: Value| {
        let rendered = render(&values);
        let all =
            json!(rendered.of("ClusterRole").flat_map(|role| role["rules"].as_array().unwrap()).collect::<Vec<_>>());
        let about = |rule: &&Value| rule["resources"].to_string().contains("\"secrets\"");
        all.as_array().unwrap().iter().filter(about).cloned().collect::<Vec<_>>()
    };
    let by_name = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get", "patch"]});
    assert_eq!(about_secrets(json!({})), [by_name]);
    assert!(about_secrets(json!({"operators": {"memcached": {"readSecrets": false}}})).is_empty());
}

#[test]
fn without_rbac_no_object_is_a_role_or_a_binding() {
    let mut values = everything(FlagSet::all().last().unwrap());
    values["rbac"] = json!({"create": false});
    values["watchNamespaces"] = json!(["one"]);
    let rendered = render(&values);
    for object in &rendered.objects {
        assert!(!object["kind"].as_str().unwrap().contains("Role"), "{object}");
        let component = &object["metadata"]["labels"]["app.kubernetes.io/component"];
        assert_ne!(component, "smoke-test", "it needs a role: {object}");
        let namespace = &object["metadata"]["namespace"];
        assert!(namespace.is_null() || namespace == NAMESPACE, "{object}");
    }
    assert!(!notes(&values, &[]).contains("helm test"));
    assert!(notes(&json!({}), &[]).contains("helm test"));
}

#[test]
fn smoke_test_has_permissions_only_in_its_namespace() {
    let rendered = render(&json!({}));
    let about = |object: &&Value| object["metadata"]["labels"]["app.kubernetes.io/component"] == "smoke-test";
    let kinds: Vec<_> = rendered.objects.iter().filter(about).map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Namespace", "ServiceAccount", "Role", "RoleBinding", "Pod"]);
    for object in
        rendered.objects.iter().filter(about).filter(|object| object["kind"].as_str().unwrap().contains("Role"))
    {
        assert_eq!(object["metadata"]["namespace"], "operators-smoke-test");
        assert!(!object.to_string().contains("namespaces\""), "{object}");
    }
}
