//! The parts of the control plane: etcd, the API server, the controller-manager and the scheduler.

use anyhow::Result;

use super::{Begins, Place, Plan, etcd_member, flags};
use crate::network::{Family, Node};
use crate::spec::{Controllers, Nodes, Spec};

/// The controllers that run without nodes. They collect garbage, empty deleted namespaces, create service accounts, and aggregate
/// the roles `view`, `edit` and `admin`. None of them writes to objects of a test.
const REDUCED: &str = "garbage-collector-controller,namespace-controller,serviceaccount-controller,\
                       serviceaccount-token-controller,root-ca-certificate-publisher-controller,\
                       clusterrole-aggregation-controller";

pub(super) fn etcd(spec: &Spec) -> Result<Plan> {
    let (client, peer) = (local(spec.ports.etcd), local(spec.ports.etcd_peer));
    Ok(Plan {
        name: "etcd".into(),
        program: spec.tools.binary("etcd")?.into(),
        args: [
            flags(etcd_member(spec)),
            flags([
                ("data-dir", spec.layout().data("etcd").display().to_string()),
                ("listen-client-urls", client.clone()),
                ("advertise-client-urls", client),
                ("listen-peer-urls", peer),
                ("log-level", "warn".into()),
                // Bytes. The default of 2 GiB is too little for 100,000 objects with children and the history of five minutes.
                ("quota-backend-bytes", (8_u64 << 30).to_string()),
            ]),
            vec!["--unsafe-no-fsync".into()], // faster; no cluster has to survive a crash of the machine
        ]
        .concat(),
        begins: Begins::AtOnce,
        place: Place::Supervisor,
    })
}

pub(super) fn api_server(spec: &Spec) -> Result<Plan> {
    let pki = |file: &str| spec.layout().pki(file).display().to_string();
    let mut args = flags([
        ("etcd-servers", local(spec.ports.etcd)),
        ("secure-port", spec.ports.api.to_string()),
        ("advertise-address", spec.ip_family.first().address(Node::FIRST).to_string()),
        ("service-cluster-ip-range", spec.ip_family.join(Family::services)),
        ("authorization-mode", "Node,RBAC".into()),
        ("enable-admission-plugins", "NodeRestriction".into()),
        ("client-ca-file", pki("ca.crt")),
        ("tls-cert-file", pki("apiserver.crt")),
        ("tls-private-key-file", pki("apiserver.key")),
        ("kubelet-certificate-authority", pki("ca.crt")),
        ("kubelet-client-certificate", pki("apiserver-kubelet-client.crt")),
        ("kubelet-client-key", pki("apiserver-kubelet-client.key")),
        ("kubelet-preferred-address-types", "InternalIP".into()),
        ("requestheader-client-ca-file", pki("front-proxy-ca.crt")),
        ("requestheader-allowed-names", "front-proxy-client".into()),
        ("requestheader-username-headers", "X-Remote-User".into()),
        ("requestheader-group-headers", "X-Remote-Group".into()),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-".into()),
        ("proxy-client-cert-file", pki("front-proxy-client.crt")),
        ("proxy-client-key-file", pki("front-proxy-client.key")),
        ("service-account-issuer", "https://kubernetes.default.svc.cluster.local".into()),
        ("service-account-key-file", pki("sa.pub")),
        ("service-account-signing-key-file", pki("sa.key")),
        ("audit-policy-file", spec.layout().config("audit-policy.yaml").display().to_string()),
        ("audit-log-path", spec.layout().audit_log().display().to_string()),
        ("audit-log-maxsize", "20000".into()), // megabytes; tests count requests, so the log must not rotate
    ]);
    if let Some(patience) = spec.node_patience {
        let seconds = patience.as_secs().to_string();
        let names = ["default-not-ready-toleration-seconds", "default-unreachable-toleration-seconds"];
        args.extend(flags(names.map(|name| (name, seconds.clone()))));
    }
    if spec.nodes == Nodes::Real {
        args.extend(flags([("bind-address", spec.ip_family.first().any().into())]));
    } else {
        // Without a node, no client can use the Service `kubernetes`, and the advertised address does not exist.
        args.extend(flags([("bind-address", "127.0.0.1".into()), ("endpoint-reconciler-type", "none".into())]));
    }
    Ok(Plan {
        name: "kube-apiserver".into(),
        program: spec.tools.binary("kube-apiserver")?.into(),
        args,
        begins: Begins::WithEtcd,
        place: Place::Supervisor,
    })
}

pub(super) fn controller_manager(spec: &Spec) -> Result<Plan> {
    let pki = |file: &str| spec.layout().pki(file).display().to_string();
    let mut args = component(spec, "controller-manager");
    args.push("--use-service-account-credentials".into());
    args.extend(flags([
        ("service-account-private-key-file", pki("sa.key")),
        ("root-ca-file", pki("ca.crt")),
        ("cluster-signing-cert-file", pki("ca.crt")),
        ("cluster-signing-key-file", pki("ca.key")),
        ("flex-volume-plugin-dir", spec.layout().data("flex").display().to_string()), // the default is below /usr
    ]));
    if spec.nodes == Nodes::Real {
        // The configuration of CNI assigns addresses to the nodes, not the controller-manager.
        args.extend(flags([("service-cluster-ip-range", spec.ip_family.join(Family::services))]));
    }
    if let Some(patience) = spec.node_patience {
        let patience = format!("{}s", patience.as_secs());
        args.extend(flags([("node-monitor-grace-period", patience), ("node-monitor-period", "1s".into())]));
    }
    if spec.nodes == Nodes::None && spec.controllers == Controllers::Reduced {
        args.extend(flags([("controllers", REDUCED.into())]));
    }
    let program = spec.tools.binary("kube-controller-manager")?.into();
    Ok(Plan {
        name: "kube-controller-manager".into(),
        program,
        args,
        begins: Begins::WithApi,
        place: Place::Supervisor,
    })
}

pub(super) fn scheduler(spec: &Spec) -> Result<Plan> {
    let program = spec.tools.binary("kube-scheduler")?.into();
    let args = component(spec, "scheduler");
    Ok(Plan { name: "kube-scheduler".into(), program, args, begins: Begins::WithApi, place: Place::Supervisor })
}

pub(super) fn files() -> Vec<(String, String)> {
    // The stage RequestReceived must be in the log: the API server writes its line before it handles the request. It writes the
    // last line only after the answer, so a test that observes the effect of a request may not find that line yet.
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
    vec![("audit-policy.yaml".into(), policy.into())]
}

/// The flags that the controller-manager and the scheduler have in common.
fn component(spec: &Spec, name: &str) -> Vec<String> {
    let kubeconfig = spec.layout().config(&format!("{name}.kubeconfig")).display().to_string();
    let mut args = flags([
        ("kubeconfig", kubeconfig.clone()),
        ("authentication-kubeconfig", kubeconfig.clone()),
        ("authorization-kubeconfig", kubeconfig),
        ("bind-address", "127.0.0.1".into()),
        ("leader-elect", "false".into()),
        // The default of 20 requests a second delays the first service account, and so the first pod, by seconds.
        ("kube-api-qps", "500".into()),
        ("kube-api-burst", "1000".into()),
    ]);
    if spec.nodes != Nodes::Real {
        args.push("--secure-port=0".into()); // one port less that may be in use; no client reads their metrics
    }
    args
}

pub(super) fn local(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}
