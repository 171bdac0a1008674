//! Simulated nodes: kwok reports the nodes and the pods on them as Ready, without running anything.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Begins, Place, Plan, flags};
use crate::spec::Spec;

pub(super) fn kwok(spec: &Spec) -> Result<Plan> {
    let layout = spec.layout();
    Ok(Plan {
        name: "kwok".into(),
        program: spec.tools.binary("kwok")?.into(),
        args: flags([
            ("config", layout.config("stages.yaml").display().to_string()),
            ("kubeconfig", layout.config("admin.kubeconfig").display().to_string()),
            ("manage-all-nodes", "true".into()),
            ("node-lease-duration-seconds", "40".into()),
            ("cidr", "10.200.0.0/16".into()),
            ("node-ip", "10.99.0.2".into()),
        ]),
        begins: Begins::WithApi,
        place: Place::Supervisor,
    })
}

pub(super) fn files() -> Vec<(String, String)> {
    vec![("stages.yaml".into(), include_str!("stages.yaml").into())]
}

/// The name of the nth simulated node.
pub(crate) fn node_name(n: u16) -> String {
    format!("simulated-{n}")
}

/// The nth simulated node. It is large, so that pods never wait for its resources.
pub(crate) fn simulated_node(n: u16) -> Value {
    let name = node_name(n);
    let room = json!({"cpu": "64", "memory": "256Gi", "pods": "1000"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "operators.example.com/simulated": "true",
        }},
        "status": {"allocatable": room.clone(), "capacity": room},
    })
}
