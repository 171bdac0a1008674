//! An informer of a kind that the cluster lacks and that no controller requires. A watch of the definition shows when it appears.

use serde_json::Value;
use workloads::ServiceMonitor;

use super::*;

type Monitors = Arc<Informer<Projected<ServiceMonitor>>>;

const MONITORS: &str = "servicemonitors.monitoring.coreos.com";

/// A running informer of a kind that `model` lacks.
fn inform_of_monitors(model: &Model, namespaces: Namespaces) -> (Monitors, JoinHandle<()>) {
    let informer = Arc::new(Informer::<Projected<ServiceMonitor>>::new(namespaces, Arc::default()));
    let running = informer.clone().run(model.client(), Rng::new(), Selection::All, CancellationToken::new());
    (informer, tokio::spawn(running))
}

/// The definition of a kind in this version, with these conditions; without any, the model adds those of a served kind.
fn definition(kind: &str, version: &str, conditions: &Value) -> Value {
    let (plural, schema) = (format!("{}s", kind.to_lowercase()), json!({"openAPIV3Schema": {"type": "object"}}));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": version, "served": true, "storage": true, "schema": schema}],
        },
        "status": {"conditions": conditions},
    })
}

fn monitors() -> Value {
    definition("ServiceMonitor", "v1", &json!([]))
}

/// How many lists, watches of definitions, and other requests arrived since the last call.
fn arrived(model: &Model) -> (usize, usize, usize) {
    let requests = model.requests();
    model.clear_requests();
    let count = |is: fn(&&Entry) -> bool| requests.iter().filter(is).count();
    let lists = count(|it| it.verb == Verb::List);
    let watches = count(|it| it.verb == Verb::Watch && it.resource == "customresourcedefinitions.apiextensions.k8s.io");
    (lists, watches, requests.len() - lists - watches)
}

#[tokio::test(start_paused = true)]
async fn kind_that_appears_is_noticed_without_a_list_before() {
    let model = faulty("");
    let (informer, _running) = inform_of_monitors(&model, Namespaces::All);
    for round in ["at the start", "after it was uninstalled"] {
        sleep(seconds(300)).await;
        assert!(informer.is_missing("") && informer.health.phase() == Phase::NotInstalled, "{round}");
        arrived(&model);
        sleep(seconds(600)).await;
        let (lists, watches, others) = arrived(&model);
        assert_eq!((lists, others), (0, 0), "{round}");
        assert!((2..=3).contains(&watches), "{round}: {watches}, as the API server ends each after 230 s");
        model.install(&definition("PodMonitor", "v1", &json!([])));
        sleep(seconds(100)).await;
        assert_eq!(arrived(&model).0, 0, "{round}: another definition");

        model.install(&monitors());
        sleep(seconds(1)).await;
        assert_eq!((informer.health.phase(), arrived(&model)), (Phase::Synced, (1, 0, 1)), "{round}");
        model.uninstall(MONITORS);
    }
}

#[tokio::test(start_paused = true)]
async fn kind_is_not_listed_before_its_version_is_served() {
    let model = faulty("");
    let (informer, _running) = inform_of_monitors(&model, Namespaces::All);
    sleep(seconds(60)).await;
    arrived(&model);
    let begun = json!([{"type": "Established", "status": "False"}]);
    for unserved in [definition("ServiceMonitor", "v1", &begun), definition("ServiceMonitor", "v2", &json!([]))] {
        model.install(&unserved);
        sleep(seconds(60)).await;
        assert_eq!(arrived(&model).0, 0);
    }
    model.install(&monitors());
    sleep(seconds(1)).await;
    assert_eq!(informer.health.phase(), Phase::Synced);
}

/// One API server already has the definition, another one does not serve the kind yet.
#[tokio::test(start_paused = true)]
async fn definition_that_no_list_confirms_causes_few_lists() {
    let model = faulty(&format!("before list {MONITORS} -> answer 404"));
    model.install(&monitors());
    let (informer, _running) = inform_of_monitors(&model, Namespaces::All);
    sleep(seconds(600)).await;
    let (lists, watches, _) = arrived(&model);
    assert!((5..=8).contains(&lists) && watches <= lists, "{lists} lists, {watches} watches");
    model.set_faults(NoFaults);
    sleep(seconds(600)).await;
    assert_eq!(informer.health.phase(), Phase::Synced);
}

/// The right to watch the definition is missing, or something ends each watch at once.
#[tokio::test(start_paused = true)]
async fn kind_whose_definition_cannot_be_watched_is_noticed_by_lists() {
    for plan in [
        "before watch customresourcedefinitions.* -> answer 403",
        "before watch customresourcedefinitions.* -> drop",
        "before watch customresourcedefinitions.* -> answer 200 empty",
    ] {
        let model = faulty(plan);
        let (informer, _running) = inform_of_monitors(&model, Namespaces::All);
        sleep(seconds(600)).await;
        assert_eq!(informer.health.phase(), Phase::NotInstalled, "{plan}");
        let first = arrived(&model).0;
        sleep(seconds(3600)).await;
        let later = arrived(&model).0;
        assert!((5..=8).contains(&first) && (6..=13).contains(&later), "{plan}: {first} lists, then {later}");
        model.install(&monitors());
        sleep(seconds(600)).await;
        assert_eq!(informer.health.phase(), Phase::Synced, "{plan}");
    }
}

#[tokio::test(start_paused = true)]
async fn list_after_a_refused_watch_of_the_definition_waits_for_retry_after() {
    for code in [429, 503] {
        let plan = format!("before watch customresourcedefinitions.* #1 -> answer {code} Retry-After=\"42\"");
        let model = faulty(&plan);
        let (_informer, _running) = inform_of_monitors(&model, Namespaces::All);
        sleep(seconds(41)).await;
        assert_eq!(arrived(&model), (1, 1, 0), "{code}");
        sleep(seconds(4)).await;
        assert_eq!(arrived(&model), (1, 1, 0), "{code}");
    }
}

/// The definition does not pass a proxy, or the API server cannot encode it.
#[tokio::test(start_paused = true)]
async fn kind_is_noticed_although_its_definition_ends_each_watch() {
    for plan in [
        "after watch customresourcedefinitions.* -> cut",
        "frame ADDED customresourcedefinitions.* -> truncate 20",
        "frame ADDED customresourcedefinitions.* -> gone",
    ] {
        let model = faulty(plan);
        let (informer, _running) = inform_of_monitors(&model, Namespaces::All);
        sleep(seconds(60)).await;
        arrived(&model);
        sleep(seconds(600)).await;
        assert_eq!(arrived(&model).0, 0, "{plan}");
        model.install(&monitors());
        sleep(seconds(1)).await;
        assert_eq!(informer.health.phase(), Phase::Synced, "{plan}");
    }
}

/// Roles cannot grant the watch of a definition. Each refused watch would count as forbidden, and the alert `OperatorForbidden` would
/// fire for ever.
#[tokio::test(start_paused = true)]
async fn kind_that_appears_is_noticed_by_lists_in_each_named_namespace() {
    let model = faulty("");
    let named = Namespaces::Named(["a", "b"].map(str::to_owned).into());
    let (informer, _running) = inform_of_monitors(&model, named);
    sleep(seconds(600)).await;
    arrived(&model);
    sleep(seconds(3600)).await;
    let (lists, watches, others) = arrived(&model);
    assert!((12..=26).contains(&lists), "{lists} lists");
    assert_eq!((watches, others), (0, 0));
    model.install(&monitors());
    sleep(seconds(610)).await;
    assert_eq!((informer.is_synced("a"), informer.is_synced("b")), (true, true));
    assert_eq!(arrived(&model).1, 0);
}

/// A process that selects namespaces by their labels has its permissions in the whole cluster.
#[tokio::test(start_paused = true)]
async fn kind_that_appears_is_noticed_at_once_where_namespaces_are_selected() {
    let (model, selected) = (faulty(""), Arc::new(SelectedNamespaces::default()));
    select(&selected, &["a", "b"]);
    let (informer, _running) = inform_of_monitors(&model, Namespaces::Selected(selected));
    sleep(seconds(600)).await;
    arrived(&model);
    model.install(&monitors());
    sleep(seconds(1)).await;
    assert_eq!((informer.is_synced("a"), arrived(&model).0), (true, 1));
}

#[tokio::test(start_paused = true)]
async fn definition_of_a_required_kind_is_not_watched() {
    let model = faulty("");
    let (informer, _running) = inform_of_monitors(&model, Namespaces::All);
    informer.health.require();
    sleep(seconds(60)).await;
    let (lists, watches, _) = arrived(&model);
    assert!(lists > 10 && watches == 0, "{lists} lists, {watches} watches");
    assert!(matches!(informer.health.phase(), Phase::NotInstalled));
}

/// A watch shows only the definition. Until the objects are listed, the cache must not count as synced.
#[tokio::test(start_paused = true)]
async fn watch_of_the_definition_says_nothing_about_the_objects() {
    let model = faulty("");
    let (informer, _running) = inform_of_monitors(&model, Namespaces::All);
    for _ in 0..100 {
        sleep(Duration::from_millis(20)).await;
        assert!(!informer.is_synced("") && !informer.is_installed(""));
    }
    assert_eq!(arrived(&model).1, 1);
}
