//! Rules that every render obeys, checked for every set of enabled operators in both topologies.

use std::{collections::BTreeSet, fs, path::Path};

use chart::{NAMESPACE, rendered::Rendered};
use controller_manager::OPERATORS;
use manager::{
    leader_election_permissions, permissions, shared_certificate_permissions, shared_token_permissions,
    webhook_permissions,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::kit::{FlagSet, deep, for_each, helm, render};

#[test]
fn every_flag_set_renders_and_obeys_rules() {
    let fields = Mutex::new([BTreeSet::new(), BTreeSet::new()]);
    for_each(FlagSet::all(), |set| {
        let rendered = render(&set.values());
        disabled_operators_are_not_named(&set, &rendered);
        permissions_equal_declared_ones(&set, &rendered);
        pods_meet_restricted_standard(&rendered);
        failed_programs_leave_the_end_of_their_logs(&rendered);
        objects_are_unique_and_labelled(&rendered);
        objects_suit_gitops(&rendered);
        deployments_match_topology(&set, &rendered);
        let found = fields_of(&rendered);
        fields.lock()[usize::from(set.is_validated())].extend(found);
    });
    let [others, validated] = fields.into_inner();
    let unknown: Vec<_> = others.difference(&validated).collect();
    assert!(unknown.is_empty(), "no set that the schemas check has these fields: {unknown:?}");
}

/// The names of all fields in the objects, such as `Service.spec.ports.port`. A definition is the same in each render that has it.
fn fields_of(rendered: &Rendered) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for object in rendered.objects.iter().filter(|object| object["kind"] != "CustomResourceDefinition") {
        add_fields(object, object["kind"].as_str().unwrap(), &mut found);
    }
    found
}

fn add_fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                let path = format!("{path}.{name}");
                add_fields(value, &path, found);
                found.insert(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add_fields(item, path, found)),
        _ => {}
    }
}

/// The text of each template in this folder and below.
fn templates(folder: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| match fs::read_to_string(&path) {
        Ok(text) => vec![(path.display().to_string(), text)],
        Err(_) => templates(&path),
    });
    files.collect()
}

/// Argo CD and Flux render without a cluster, and compare the results of two renders.
#[test]
fn no_template_asks_the_cluster_or_draws_a_value() {
    let templates = templates(&chart::folder().join("templates"));
    assert!(templates.iter().any(|(name, _)| name.ends_with("tests/smoke-test.yaml")), "{}", templates.len());
    for (name, text) in &templates {
        let actions = text.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
        for action in actions.filter(|action| !action.trim_start_matches(['-', ' ']).starts_with("/*")) {
            let words = action.split(|letter: char| !letter.is_alphanumeric());
            for word in words {
                let is_known = ["lookup", "getHostByName", "uuidv4", "shuffle"].contains(&word);
                assert!(!is_known && !word.starts_with("rand") && !word.starts_with("gen"), "{name}: {word}");
            }
        }
    }
}

#[test]
fn two_renders_are_byte_identical() {
    let sets = FlagSet::all();
    let some = [sets.len() / 2 - 1, sets.len() - 1].map(|n| sets[n].clone());
    for_each(some.into(), |set| {
        let everything = everything(&set);
        assert_eq!(render(&everything).text, render(&everything).text);
    });
}

/// The values of the set, with all optional features enabled.
pub(crate) fn everything(set: &FlagSet) -> Value {
    let mut values = set.values();
    values["replicas"] = json!(2);
    values["networkPolicy"] = json!({"enabled": true, "metricsFrom": [{"podSelector": {}}]});
    values["metrics"] = json!({
        "serviceMonitor": {"enabled": true, "interval": "30s"}, "prometheusScrapeAnnotations": true,
        "proxy": {"tls": {"secretName": "metrics-certificate"}, "audiences": ["metrics"]},
    });
    values["prometheusRule"] = json!({"enabled": true});
    values["dashboard"] = json!({"enabled": true});
    values["imageRegistry"] = json!("mirror.example.com/hub");
    values["topologySpreadConstraints"] =
        json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}]);
    values["extraObjects"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-extra"}}]);
    values["commonLabels"] = json!({"team": "platform"});
    values["commonAnnotations"] = json!({"contact": "platform@example.com"});
    values["caBundle"] = json!({"configMapName": "authorities"});
    values["priorityClassName"] = json!("system-cluster-critical");
    values
}

fn disabled_operators_are_not_named(set: &FlagSet, rendered: &Rendered) {
    let enabled: BTreeSet<String> = set.operators().iter().flat_map(|operator| words(*operator)).collect();
    for operator in OPERATORS.iter().filter(|operator| !set.enabled.contains(operator.name())) {
        for word in words(*operator).difference(&enabled) {
            let found = rendered.text.lines().find(|line| names(line, word));
            assert_eq!(found, None, "{set:?} names {word}");
        }
    }
}

/// The words that identify an operator: its name, and the kinds, plurals and groups of its definitions.
fn words(operator: &dyn manager::Operator) -> BTreeSet<String> {
    let of_kinds =
        operator.crds().into_iter().flat_map(|crd| [crd.spec.names.kind, crd.spec.names.plural, crd.spec.group]);
    of_kinds.chain([operator.name().to_owned()]).collect()
}

/// Whether the line contains this word, and not only as a part of a longer word.
fn names(line: &str, word: &str) -> bool {
    let is_letter = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    line.match_indices(word)
        .any(|(at, _)| !is_letter(line[..at].chars().next_back()) && !is_letter(line[at + word.len()..].chars().next()))
}

fn permissions_equal_declared_ones(set: &FlagSet, rendered: &Rendered) {
    for operator in set.operators() {
        let role = rendered.object("ClusterRole", &format!("operators-{}", operator.name())).unwrap();
        assert_eq!(role["rules"], json!(permissions(&[operator])), "{set:?}");
    }
    for deployment in managers(rendered) {
        let name = deployment["metadata"]["name"].as_str().unwrap();
        let rules = |kind: &str, suffix: &str| {
            rendered.object(kind, &format!("{name}-{suffix}")).map_or(json!([]), |role| role["rules"].clone())
        };
        // The election needs its own rule for events: with `watchNamespaces` no cluster-wide role permits them.
        let mut election = json!(leader_election_permissions(name));
        election
            .as_array_mut()
            .unwrap()
            .push(json!({"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}));
        assert_eq!(rules("Role", "leader-election"), election);

        let mut provider = shared_token_permissions("operators-booking-token");
        provider.extend(shared_certificate_permissions("operators-booking-certificate").into_iter().skip(1)); // `create`
        let provider = json!(provider);
        let books = is_in(deployment, "flightticket");
        assert_eq!(rules("Role", "provider"), if books { provider } else { json!([]) }, "{set:?}");

        let own: Vec<_> = set.operators().into_iter().filter(|operator| is_in(deployment, operator.name())).collect();
        let secret = format!("{name}-webhook-certificate");
        let (mut cluster, mut namespaced) = (json!([]), json!([]));
        if let Some(allowed) = webhook_permissions(&own, name, &secret) {
            (cluster, namespaced) = (json!(allowed.cluster), json!(allowed.namespaced));
        }
        let sorted = |mut rules: Value| {
            rules.as_array_mut().unwrap().sort_by_key(Value::to_string);
            rules
        };
        assert_eq!(sorted(rules("ClusterRole", "webhooks")), sorted(cluster), "{set:?}");
        assert_eq!(sorted(rules("Role", "webhooks")), sorted(namespaced), "{set:?}");
    }
    for object in &rendered.objects {
        for rule in deep(object, "rules").into_iter().filter(|_| object["kind"].as_str().unwrap().ends_with("Role")) {
            assert!(!rule.to_string().contains("\"*\""), "{}: a wildcard", object["metadata"]["name"]);
        }
    }
    let bound: BTreeSet<_> =
        deep(&json!(rendered.objects), "roleRef").iter().map(|role| role["name"].to_string()).collect();
    for role in bound {
        assert!(role.contains("operators-"), "{role} is not a role of this chart");
    }
    aggregated_roles_write_no_status(set, rendered);
}

fn aggregated_roles_write_no_status(set: &FlagSet, rendered: &Rendered) {
    let aggregated = rendered.of("ClusterRole").filter(|role| {
        let labels = role["metadata"]["labels"].as_object().unwrap();
        labels.keys().any(|label| label.contains("aggregate-to-"))
    });
    let mut number = 0;
    for role in aggregated {
        let rules = role["rules"].to_string();
        assert!(!rules.contains("/status") && !rules.contains("/finalizers"), "{rules}");
        number += 1;
    }
    assert_eq!(number, 3 * set.enabled.len(), "view, edit and admin of each operator");
}

/// The Deployments that run operators.
fn managers(rendered: &Rendered) -> impl Iterator<Item = &Value> {
    let containers = |it: &Value| it["spec"]["template"]["spec"]["containers"][0]["name"].clone();
    rendered.of("Deployment").filter(move |deployment| containers(deployment) == "manager")
}

fn is_in(deployment: &Value, operator: &str) -> bool {
    let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    let operators = arguments.iter().find_map(|argument| argument.as_str()?.strip_prefix("--operators=")).unwrap();
    operators.split(',').any(|name| name == operator)
}

fn pods_meet_restricted_standard(rendered: &Rendered) {
    for (owner, spec) in rendered.pods() {
        let pod = &spec["securityContext"];
        assert_eq!(pod["runAsNonRoot"], true, "{owner}");
        assert_eq!(pod["seccompProfile"]["type"], "RuntimeDefault", "{owner}");
        assert_eq!(pod["runAsUser"], 65532, "{owner}");
        for key in ["hostNetwork", "hostPID", "hostIPC"] {
            assert_eq!(spec[key], Value::Null, "{owner}");
        }
        for container in spec["containers"].as_array().unwrap() {
            let context = &container["securityContext"];
            assert_eq!(context["allowPrivilegeEscalation"], false, "{owner}");
            assert_eq!(context["readOnlyRootFilesystem"], true, "{owner}");
            assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}), "{owner}");
            assert!(container["resources"]["requests"]["memory"].is_string(), "{owner}: resources");
        }
    }
}

fn failed_programs_leave_the_end_of_their_logs(rendered: &Rendered) {
    for (owner, spec) in rendered.pods() {
        for container in spec["containers"].as_array().unwrap() {
            let name = &container["name"];
            assert_eq!(container["terminationMessagePolicy"], "FallbackToLogsOnError", "{owner}: {name}");
        }
    }
}

fn objects_are_unique_and_labelled(rendered: &Rendered) {
    let mut seen = BTreeSet::new();
    for object in &rendered.objects {
        let metadata = &object["metadata"];
        let key = [&object["kind"], &metadata["namespace"], &metadata["name"]].map(Value::to_string);
        for label in ["name", "instance", "version", "part-of", "managed-by"] {
            assert!(
                metadata["labels"][format!("app.kubernetes.io/{label}")].is_string(),
                "{key:?} has no label {label}"
            );
        }
        assert_eq!(metadata["labels"]["helm.sh/chart"], concat!("operators-", env!("CARGO_PKG_VERSION")));
        assert!(seen.insert(key.clone()), "{key:?} appears twice");
    }
}

/// The annotations that keep an object: those of Helm, of Argo CD and of the kustomize-controller of Flux.
pub(crate) const KEPT: [(&str, &str); 4] = [
    ("helm.sh/resource-policy", "keep"),
    ("argocd.argoproj.io/sync-options", "Prune=false,Delete=false"),
    ("argocd.argoproj.io/compare-options", "IgnoreExtraneous"),
    ("kustomize.toolkit.fluxcd.io/prune", "disabled"),
];

fn objects_suit_gitops(rendered: &Rendered) {
    for object in &rendered.objects {
        let hook = &object["metadata"]["annotations"]["helm.sh/hook"];
        assert!(hook.is_null() || hook == "test", "{hook}");
        assert!(deep(object, "caBundle").is_empty(), "only the manager may write caBundle");
        let keep = object["kind"] == "CustomResourceDefinition";
        for (annotation, value) in KEPT {
            assert_eq!(object["metadata"]["annotations"][annotation] == value, keep, "{}", object["metadata"]["name"]);
        }
    }
}

fn deployments_match_topology(set: &FlagSet, rendered: &Rendered) {
    let expected: BTreeSet<String> = match set.topology {
        "combined" => ["operators-controller-manager".to_owned()].into(),
        _ => set.enabled.iter().map(|name| format!("operators-{name}")).collect(),
    };
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(managers(rendered).map(name).collect::<BTreeSet<_>>(), expected);
    for operator in OPERATORS {
        let runs = managers(rendered).filter(|deployment| is_in(deployment, operator.name()));
        assert_eq!(runs.count(), usize::from(set.enabled.contains(operator.name())), "{set:?}");
    }
    for object in rendered.objects.iter().filter(|object| object["metadata"]["namespace"].is_string()) {
        let is_of_test = object["metadata"]["labels"]["app.kubernetes.io/component"] == "smoke-test";
        let namespace = &object["metadata"]["namespace"];
        assert!(namespace == NAMESPACE || is_of_test && namespace == "operators-smoke-test", "{namespace}");
    }
}

#[test]
fn both_majors_of_helm_render_the_same_and_lint() {
    use chart::helm::{Helm, Version, succeeded};

    let values = everything(FlagSet::all().last().unwrap());
    let other = Helm::of(Version::Three).unwrap();
    let objects = |helm: &Helm| {
        let mut objects = helm.template(&values, &[]).unwrap().objects;
        objects.sort_by_key(Value::to_string);
        objects
    };
    assert_eq!(objects(helm()), objects(&other));
    for helm in [helm(), &other] {
        succeeded(helm.command().args(["lint", "--strict"]).arg(chart::folder())).unwrap();
    }
}
