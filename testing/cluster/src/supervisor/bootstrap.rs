//! Brings the started processes to a usable cluster: waits for each part and allows the next ones to start.

use std::net::{Ipv4Addr, TcpStream};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;

use super::Event;
use crate::api::Api;
use crate::parts::{self, Begins};
use crate::pki::Authority;
use crate::protocol::Phase;
use crate::spec::{Nodes, Spec};

/// The time limit for the start. A slow machine needs a quarter of it.
const PATIENCE: Duration = Duration::from_mins(2);

/// Watches the start of the cluster in its own thread, and reports the phases to the supervisor.
pub(super) fn begin(spec: &Spec, authority: &Authority, events: Sender<Event>) -> Result<()> {
    let api = Api::new(spec.ports.api, authority)?;
    let spec = spec.clone();
    thread::spawn(move || {
        let phase = match bring_up(&spec, &api, &events) {
            Ok(()) => Phase::Ready,
            Err(error) => Phase::Failed(format!("{error:#}")),
        };
        let _ = events.send(Event::Reached(phase));
    });
    Ok(())
}

fn bring_up(spec: &Spec, api: &Api, events: &Sender<Event>) -> Result<()> {
    let begun = Instant::now();
    let wait_for = |what: &str, is_there: &dyn Fn() -> bool| {
        events.send(Event::Reached(Phase::Starting(what.to_owned())))?;
        while !is_there() {
            if begun.elapsed() > PATIENCE {
                bail!("waited {} s for {what}", PATIENCE.as_secs());
            }
            thread::sleep(Duration::from_millis(25));
        }
        Ok(())
    };
    wait_for("etcd", &|| TcpStream::connect((Ipv4Addr::LOCALHOST, spec.ports.etcd)).is_ok())?;
    events.send(Event::MayBegin(Begins::WithEtcd))?;
    wait_for("the API server", &|| api.is_ready())?;
    events.send(Event::MayBegin(Begins::WithApi))?;

    let nodes: Vec<_> = match spec.nodes {
        Nodes::None => Vec::new(),
        Nodes::Real => spec.real_nodes().map(|node| node.to_string()).collect(),
        Nodes::Simulated => (1..=spec.simulated).map(parts::node_name).collect(),
    };
    if spec.nodes == Nodes::Simulated {
        for n in 1..=spec.simulated {
            api.create("/api/v1/nodes", &parts::simulated_node(n))?;
        }
    }
    for node in &nodes {
        wait_for(&format!("node {node}"), &|| node_is_ready(api, node))?;
    }
    wait_for("the first service account", &|| {
        api.get("/api/v1/namespaces/default/serviceaccounts/default").is_ok_and(|answer| answer.code == 200)
    })
}

fn node_is_ready(api: &Api, name: &str) -> bool {
    let answer = api.get(&format!("/api/v1/nodes/{name}"));
    answer.is_ok_and(|answer| answer.code == 200 && is_ready(&answer.json()))
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
