//! Tests of snapshots of a cluster's store, and of their restore.
#![expect(clippy::unwrap_used, reason = "in a test, that is the message")]

use std::process::Command;
use std::time::Duration;

use cluster::{Cluster, Nodes, PartState, Restore, Unsupported, or_skip, progress};

#[test]
fn restore_brings_back_snapshot_state() {
    let Some(cluster) = or_skip(Cluster::fresh(Nodes::None)) else { return };
    kubectl(&cluster, "create configmap changed --from-literal=is=old");
    kubectl(&cluster, "create configmap deleted");
    let before = cluster.snapshot("before").unwrap();
    kubectl(&cluster, "delete configmap deleted");
    kubectl(&cluster, "create configmap made");
    kubectl(&cluster, r#"patch configmap changed --patch {"data":{"is":"new"}}"#);
    // These are more changes than an API server makes at its start, so that the restored resource version is certainly lower.
    for number in 0..40 {
        kubectl(&cluster, &format!("annotate configmap changed number={number} --overwrite"));
    }

    let restored = cluster.restore(&before).unwrap();
    assert!(restored.after < restored.before.unwrap(), "{restored:?}");
    assert!(restored.after >= before.resource_version().unwrap(), "{restored:?}");
    let value = |name: &str| kubectl(&cluster, &format!("get configmap {name} -o jsonpath={{.data.is}}"));
    assert_eq!(value("changed"), "old");
    assert_eq!(kubectl(&cluster, "get configmap deleted made --ignore-not-found -o name"), "configmap/deleted");
    for part in cluster.status().unwrap().parts {
        assert_eq!((part.state, part.restarts), (PartState::Running, 0), "{}", part.name);
    }

    // The restored cluster works like any other: later snapshots, a second restore of the first one, and garbage collection.
    kubectl(&cluster, "create namespace later");
    let later = cluster.snapshot("later").unwrap();
    let names: Vec<_> = cluster.snapshots().unwrap().iter().map(|it| it.name().to_owned()).collect();
    assert_eq!(names, ["before", "later"]);
    cluster.restore(&before).unwrap();
    assert_eq!(kubectl(&cluster, "get namespace later --ignore-not-found -o name"), "");
    cluster.restore(&later).unwrap();
    kubectl(&cluster, "delete namespace later --wait --timeout=30s");
}

#[test]
fn restore_with_raised_revision_expires_old_watches() {
    let Some(cluster) = or_skip(Cluster::fresh(Nodes::None)) else { return };
    kubectl(&cluster, "create configmap kept");
    let before = cluster.snapshot("before").unwrap();
    kubectl(&cluster, "create configmap made");
    let how = Restore { bump_revision: Some(1_000_000) };
    let restored = cluster.restore_with(&before, &how, &progress::to_stderr).unwrap();
    let old = restored.before.unwrap();
    assert!(restored.after > old + 500_000, "{restored:?}");
    assert_eq!(kubectl(&cluster, "get configmap kept made --ignore-not-found -o name"), "configmap/kept");
    let watch = format!("/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=5&resourceVersion={old}");
    let told = kubectl(&cluster, &format!("get --raw {watch}"));
    assert!(told.contains(r#""reason":"Expired","code":410"#), "{told}");
}

#[test]
fn compaction_expires_watches_at_the_last_version_too() {
    let Some(cluster) = or_skip(Cluster::fresh(Nodes::None)) else { return };
    kubectl(&cluster, "create configmap kept");
    let version = kubectl(&cluster, "get configmap kept -o jsonpath={.metadata.resourceVersion}");
    let version = version.parse::<u64>().unwrap();
    let compacted = cluster.compact().unwrap();
    assert!(compacted > version, "{compacted} {version}");
    assert_eq!(kubectl(&cluster, "get configmap kept -o name"), "configmap/kept");
    let watch = |version: u64| {
        let path = "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=5";
        kubectl(&cluster, &format!("get --raw {path}&resourceVersion={version}"))
    };
    for version in [version, compacted - 1] {
        let told = watch(version);
        assert!(told.contains(r#""reason":"Expired","code":410"#), "{version}: {told}");
    }
}

#[test]
fn restore_restarts_etcd_but_no_other_stopped_part() {
    let Some(cluster) = or_skip(Cluster::fresh(Nodes::None)) else { return };
    let state = |name: &str| cluster.status().unwrap().parts.into_iter().find(|part| part.name == name).unwrap().state;
    cluster.stop_part("kube-controller-manager").unwrap();
    cluster.stop_part("etcd").unwrap();
    let before = cluster.snapshot("before").unwrap();
    assert_eq!(before.resource_version(), None);
    assert_eq!(state("etcd"), PartState::Stopped);
    assert_eq!(cluster.restore(&before).unwrap().before, None);
    assert_eq!(state("etcd"), PartState::Running);
    assert_eq!(state("kube-controller-manager"), PartState::Stopped);
    cluster.wait_until_ready(Duration::ZERO).unwrap();
}

#[test]
fn snapshot_name_is_unique_and_bound_to_its_cluster() {
    let Some(cluster) = or_skip(Cluster::fresh(Nodes::None)) else { return };
    let first = cluster.snapshot("first").unwrap();
    assert!(cluster.snapshot("first").unwrap_err().to_string().contains("another name"));
    assert!(cluster.snapshot("../first").unwrap_err().to_string().contains("cannot name a snapshot"));

    let Some(other) = or_skip(Cluster::fresh(Nodes::None)) else { return };
    assert!(other.restore(&first).unwrap_err().to_string().contains("not of the cluster"));
    let theirs = Cluster::existing(Some(&cluster.kubeconfig())).unwrap();
    assert!(theirs.snapshot("second").unwrap_err().is::<Unsupported>());
    assert!(theirs.restore(&first).unwrap_err().is::<Unsupported>());
    theirs.forget().unwrap();
}

#[test]
fn paused_part_can_be_terminated() {
    let Some(cluster) = or_skip(Cluster::fresh(Nodes::None)) else { return };
    let state = |name: &str| cluster.status().unwrap().parts.into_iter().find(|part| part.name == name).unwrap().state;
    cluster.pause_part("etcd").unwrap();
    cluster.pause_part("etcd").unwrap();
    assert!(cluster.terminate_part("etcd", Duration::from_secs(30)).unwrap(), "SIGTERM also ends a paused part");
    assert_eq!(state("etcd"), PartState::Stopped);
    assert!(cluster.terminate_part("etcd", Duration::ZERO).unwrap(), "the part has already ended");
    cluster.start_part("etcd").unwrap();
    cluster.wait_until_ready(Duration::from_secs(30)).unwrap();
}

#[track_caller]
fn kubectl(cluster: &Cluster, args: &str) -> String {
    output(&mut cluster.kubectl(args.split(' ')))
}

#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
