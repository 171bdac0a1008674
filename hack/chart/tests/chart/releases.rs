//! What happens to users' objects when Helm rolls a release back or gives it another name, what a disabled operator leaves, and which
//! releases may exist beside each other. On a real API server without nodes.

use std::{
    fs,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::Result;
use chart::{
    NAMESPACE,
    helm::{Helm, Version, succeeded},
};
use cluster::{Cluster, Nodes, or_skip};
use controller_manager::OPERATORS;
use installation::{EARLIER, earlier_chart};
use serde_json::{Value, json};

const OBJECT: &str = "memcached/users";
const DEFINITION: &str = "memcacheds.memcached.cache.example.com";

/// A cluster, a version of Helm, and the values of all releases there. No pod runs, so that no webhook answers.
struct World {
    cluster: Cluster,
    helm: Helm,
    values: tempfile::NamedTempFile,
}

impl World {
    fn new(version: Version) -> Option<Self> {
        let cluster = or_skip(Cluster::fresh(Nodes::None))?;
        succeeded(&mut cluster.kubectl(["create", "namespace", NAMESPACE])).unwrap();
        let helm = Helm::of(version).unwrap();
        let values = helm.values_file(&json!({"webhooks": {"enabled": false}})).unwrap();
        Some(Self { cluster, helm, values })
    }

    fn helm(&self, arguments: &[&str]) -> Result<String> {
        succeeded(self.helm.on(&self.cluster).args(arguments).args(["--namespace", NAMESPACE]))
    }

    /// Installs the chart in this folder as this release, or upgrades to it.
    fn release(&self, name: &str, chart: &Path, more: &[&str]) -> Result<String> {
        let (chart, values) = (chart.to_str().unwrap(), self.values.path().to_str().unwrap());
        self.helm(&[&["upgrade", "--install", name, chart, "--values", values], more].concat())
    }

    fn get(&self, object: &[&str]) -> Value {
        let get = [&["get", "--output=json"], object].concat();
        serde_json::from_str(&succeeded(&mut self.cluster.kubectl(get)).unwrap()).unwrap()
    }

    fn create_object(&self) {
        let object = json!({
            "apiVersion": "memcached.cache.example.com/v1", "kind": "Memcached",
            "metadata": {"name": "users", "namespace": "default"}, "spec": {"size": 1, "metrics": {"port": 9200}},
        });
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), object.to_string()).unwrap();
        succeeded(&mut self.cluster.kubectl(["wait", "--for=condition=Established", "crd", DEFINITION])).unwrap();
        succeeded(self.cluster.kubectl(["create", "--filename"]).arg(file.path())).unwrap();
    }

    /// Writes to the object, as the operators write its status, and returns its spec.
    fn spec_after_a_write(&self, mark: &str) -> Value {
        let mark = format!("mark={mark}");
        succeeded(&mut self.cluster.kubectl(["annotate", "--overwrite", OBJECT, &mark])).unwrap();
        self.get(&[OBJECT])["spec"].clone()
    }

    fn knows_metrics(&self) -> bool {
        let definition = self.get(&["crd", DEFINITION]);
        !definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["metrics"]
            .is_null()
    }
}

#[test]
fn going_back_by_an_upgrade_keeps_fields_that_a_rollback_drops() {
    for version in Version::ALL {
        let Some(world) = World::new(version) else { return };
        let folder = tempfile::tempdir().unwrap();
        let former = earlier_chart(folder.path(), "files/memcached/crd-memcacheds.yaml", "metrics").unwrap();
        world.release("operators", &former, &[]).unwrap();
        assert!(!world.knows_metrics());
        world.release("operators", &chart::folder(), &[]).unwrap();
        assert!(world.knows_metrics(), "{version:?}: the upgrade left the former definition");
        world.create_object();

        // As the README of the chart says.
        let reuse = "--reset-then-reuse-values";
        let back = ["upgrade", "operators", former.to_str().unwrap(), reuse, "--set", "crds.enabled=false"];
        world.helm(&back).unwrap();
        assert!(world.helm(&["list"]).unwrap().contains(&format!("operators-{EARLIER}")));
        assert!(world.knows_metrics());
        assert!(world.spec_after_a_write("upgraded")["metrics"].is_object(), "{version:?}");

        // Forward again, and back by a rollback, which restores the former definitions.
        world.release("operators", &chart::folder(), &[]).unwrap();
        world.helm(&["rollback", "operators", "1"]).unwrap();
        assert!(!world.knows_metrics());
        assert_eq!(world.spec_after_a_write("rolled-back")["metrics"], Value::Null, "{version:?}");
    }
}

#[test]
fn release_gets_another_name_without_a_loss_of_objects() {
    for version in Version::ALL {
        let Some(world) = World::new(version) else { return };
        world.release("operators", &chart::folder(), &[]).unwrap();
        world.create_object();
        let before = world.get(&[OBJECT]);
        world.helm(&["uninstall", "operators"]).unwrap();

        let names = ["--set", "fullnameOverride=operators"];
        let refused = world.release("renamed", &chart::folder(), &names).unwrap_err().to_string();
        assert!(refused.contains("CustomResourceDefinition") && refused.contains("\"renamed\""), "{refused}");
        world.release("renamed", &chart::folder(), &[&names[..], &["--take-ownership"]].concat()).unwrap();
        let owner = "meta.helm.sh/release-name";
        assert_eq!(world.get(&["crd", DEFINITION])["metadata"]["annotations"][owner], "renamed");
        let deployment = world.get(&["deployment", "operators-controller-manager", "--namespace", NAMESPACE]);
        assert!(deployment.to_string().contains("--leader-election-id=operators-controller-manager"));
        world.release("renamed", &chart::folder(), &names).expect("later upgrades need no flag");
        let after = world.get(&[OBJECT]);
        assert_eq!((&after["metadata"]["uid"], &after["spec"]), (&before["metadata"]["uid"], &before["spec"]));
    }
}

/// What Helm says about a second release, in the page about releases: what follows the name of the operator, which Helm chooses.
fn documented_refusal(test: &str) -> &'static str {
    let page = include_str!("../../../../docs/book/src/how-to/releases.md");
    let mark = format!("releases.rs {test} -->\n```text\n");
    let block = page.split_once(&mark).unwrap().1.split_once("\n```").unwrap().0;
    block.split_once("memcached").unwrap().1
}

/// The second release is refused, because of an object of the release `one`.
fn is_refused(result: Result<String>, test: &str) {
    let error = result.unwrap_err().to_string();
    let names = [documented_refusal(test), "current value is \"one\""];
    assert!(names.iter().all(|name| error.contains(name)), "{error}");
}

#[test]
fn second_release_for_a_watched_namespace_is_refused() {
    const TEST: &str = "second_release_for_a_watched_namespace_is_refused";
    for version in Version::ALL {
        let Some(world) = World::new(version) else { return };
        for namespace in ["team-a", "team-b"] {
            succeeded(&mut world.cluster.kubectl(["create", "namespace", namespace])).unwrap();
        }
        world.release("one", &chart::folder(), &["--set", "watchNamespaces={team-a}"]).unwrap();
        let of_one = ["rolebindings", "--namespace", "team-a", "--selector=app.kubernetes.io/instance=one"];
        let bindings = || world.get(&of_one)["items"].as_array().unwrap().clone();
        let before = bindings();
        assert!(!before.is_empty());
        let second = |namespaces: &str, more: &[&str]| {
            let namespaces = format!("watchNamespaces={{{namespaces}}}");
            let watched = ["--set", namespaces.as_str(), "--set", "crds.enabled=false"];
            world.release("two", &chart::folder(), &[&watched[..], more].concat())
        };
        is_refused(second("team-b,team-a", &[]), TEST);
        let deployments = world.get(&["deployments", "--namespace", NAMESPACE]).to_string();
        assert!(!deployments.contains("two-operators"), "{version:?}: a part of it is installed: {deployments}");

        second("team-b", &[]).expect("no other release watches this namespace");
        is_refused(second("team-b,team-a", &[]), TEST);
        assert_eq!(bindings(), before, "{version:?}: the second release has changed objects of the first");

        let all_but_foo = OPERATORS.iter().map(|it| it.name()).filter(|name| *name != "foo");
        let disabled = all_but_foo.map(|name| format!("operators.{name}.enabled=false")).collect::<Vec<_>>().join(",");
        let only_foo = ["--set", "operators.foo.enabled=true", "--set", disabled.as_str()];
        second("team-b,team-a", &only_foo).expect("the first release does not run this operator");

        world.helm(&["uninstall", "one"]).unwrap();
        second("team-a", &[]).expect("the namespace is free");
    }
}

/// Waits until `condition` is true. The API server learns of changed permissions by a watch of its own, so shortly after the change.
fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        sleep(Duration::from_millis(100));
    }
}

/// Whether the operators of the release `name` may list all objects of a kind.
fn may_list(world: &World, name: &str) -> bool {
    let user = format!("--as=system:serviceaccount:{NAMESPACE}:{name}-operators-controller-manager");
    let ask = ["auth", "can-i", "list", DEFINITION, "--all-namespaces", user.as_str()];
    world.cluster.kubectl(ask).output().unwrap().status.success()
}

#[test]
fn second_release_for_the_whole_cluster_is_refused() {
    const TEST: &str = "second_release_for_the_whole_cluster_is_refused";
    for version in Version::ALL {
        let Some(world) = World::new(version) else { return };
        let install = |name: &str, more: &[&str]| {
            world.release(name, &chart::folder(), &[&["--set", "crds.enabled=false"], more].concat())
        };
        world.release("one", &chart::folder(), &[]).unwrap();
        is_refused(install("two", &[]), TEST);
        let accounts = world.get(&["serviceaccounts", "--namespace", NAMESPACE]).to_string();
        assert!(!accounts.contains("two-operators"), "{version:?}: a part of it is installed: {accounts}");

        // Kubectl does not look at whose an object is. So the release exists, but its operators have no permissions.
        let mut template = world.helm.command();
        template.args(["template", "two"]).arg(chart::folder()).args(["--namespace", NAMESPACE, "--skip-tests"]);
        template.args(["--set", "crds.enabled=false", "--values"]).arg(world.values.path());
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), succeeded(&mut template).unwrap()).unwrap();
        for how in [&[][..], &["--server-side", "--force-conflicts"]] {
            let mut apply = world.cluster.kubectl(["apply", "--namespace", NAMESPACE]);
            let error = succeeded(apply.args(how).arg("--filename").arg(file.path())).unwrap_err().to_string();
            assert!(error.contains("cannot change roleRef"), "{version:?} {how:?}: {error}");
        }
        let accounts = world.get(&["serviceaccounts", "--namespace", NAMESPACE]).to_string();
        assert!(accounts.contains("two-operators"), "{version:?}: {accounts}");
        assert_eq!(["one", "two"].map(|name| may_list(&world, name)), [true, false], "{version:?}");

        // As the book says: a client that deletes by name takes the permissions from the first release, until its next upgrade.
        let mut delete = world.cluster.kubectl([
            "delete",
            "--namespace",
            NAMESPACE,
            "--wait=false",
            "--ignore-not-found",
            "--filename",
        ]);
        succeeded(delete.arg(file.path())).unwrap();
        until("the permissions are gone", || !may_list(&world, "one"));
        world.release("one", &chart::folder(), &[]).unwrap();
        until("the permissions are back", || may_list(&world, "one"));

        // Releases that select namespaces by other labels are none of these.
        install("three", &["--set", "watchNamespaceLabels.team=a"]).unwrap();
        install("four", &["--set", "watchNamespaceLabels.team=b"]).expect("other labels");
        let error = install("five", &["--set", "watchNamespaceLabels.team=a"]).unwrap_err().to_string();
        // As the table of the book says.
        for part in ["ClusterRoleBinding", "exists and cannot be imported", "current value is \"three\""] {
            assert!(error.contains(part), "{version:?}: no {part}: {error}");
        }

        // As the README of the chart says.
        let error = install("four", &["--set", "watchNamespaceLabels.team=b,fullnameOverride=x"]).unwrap_err();
        assert!(error.to_string().contains("cannot change roleRef"), "{version:?}: {error}");
    }
}

/// What cert-manager's injector does: it writes `caBundle` into each entry of this configuration.
fn inject(world: &World, configuration: &str) {
    let stored = world.get(&["validatingwebhookconfiguration", configuration]);
    let entries = stored["webhooks"].as_array().unwrap();
    let bundles = entries.iter().map(|entry| json!({"name": entry["name"], "clientConfig": {"caBundle": "Cg=="}}));
    let patch = json!({
        "apiVersion": stored["apiVersion"], "kind": stored["kind"], "metadata": {"name": configuration},
        "webhooks": bundles.collect::<Vec<_>>(),
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), patch.to_string()).unwrap();
    let apply = ["apply", "--server-side", "--field-manager=cert-manager-cainjector", "--filename"];
    succeeded(world.cluster.kubectl(apply).arg(file.path())).unwrap();
}

#[test]
fn disabled_operator_leaves_no_webhook_although_cert_manager_owns_a_field_of_it() {
    for version in Version::ALL {
        let Some(world) = World::new(version) else { return };
        let file = tempfile::NamedTempFile::new().unwrap();
        for kind in ["Certificate", "Issuer"] {
            fs::write(file.path(), definition_of_cert_manager(kind).to_string()).unwrap();
            succeeded(world.cluster.kubectl(["create", "--filename"]).arg(file.path())).unwrap();
        }
        let all = ["crd", "certificates.cert-manager.io", "issuers.cert-manager.io"];
        succeeded(&mut world.cluster.kubectl([&["wait", "--for=condition=Established"], &all[..]].concat())).unwrap();

        let managed = ["--set", "webhooks.enabled=true,webhooks.certManager.enabled=true"];
        world.release("operators", &chart::folder(), &managed).unwrap();
        let configurations = || {
            let names = ["get", "validatingwebhookconfiguration", "--output=jsonpath={.items[*].metadata.name}"];
            let names = succeeded(&mut world.cluster.kubectl(names)).unwrap();
            names.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let before = configurations();
        assert!(before.iter().any(|name| name.contains("crontab")), "{before:?}");
        for name in &before {
            inject(&world, name);
        }

        let fewer = [&managed[..], &["--set", "operators.crontab.enabled=false"]].concat();
        world.release("operators", &chart::folder(), &fewer).unwrap();
        let after = configurations();
        assert_eq!(after.len(), before.len() - 1, "{version:?}: {after:?}");
        for name in &after {
            let stored = world.get(&["validatingwebhookconfiguration", name.as_str()]);
            assert!(!stored["webhooks"].to_string().contains("crontab"), "{version:?}: {stored}");
            assert_eq!(stored["webhooks"][0]["clientConfig"]["caBundle"], "Cg==", "{version:?}: {stored}");
        }
    }
}

/// A definition of a kind of cert-manager, which accepts any object.
fn definition_of_cert_manager(kind: &str) -> Value {
    let (group, singular) = ("cert-manager.io", kind.to_lowercase());
    let plural = format!("{singular}s");
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "versions": versions,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "singular": singular, "plural": plural},
        },
    })
}
