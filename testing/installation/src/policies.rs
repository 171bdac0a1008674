//! Enforces the `NetworkPolicies` of a cluster of this repository, whose network plugin does not. The rules of the packet filter follow
//! from the pods and the policies, as in a plugin that does.
//!
//! It differs from such plugins in two points, so that a test finds more. The node of a pod counts like any other address to which the
//! pod connects, because the API server is there. A new pod sends nothing until its rules exist.
//!
//! It works on clusters with one node, and supports what the tests use: an error names a part of a policy that it does not know.

use std::{
    borrow::Borrow,
    fs, panic,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use chart::helm::succeeded;
use cluster::{Access, Cluster};
use serde_json::Value;
use tempfile::NamedTempFile;

/// The table of the packet filter with the rules.
const TABLE: &str = "inet policies";

/// How long a change of a pod or of a policy may wait.
const PAUSE: Duration = Duration::from_millis(300);

/// The rule for answers: a policy limits who opens a connection.
const ANSWERS: &str = "ct direction reply accept";
/// The rule for what pods send. The network plugin gives such names to the node's ends of their interfaces.
const FROM_PODS: &str = "iifname \"veth*\" jump leaves";
/// How a pod of an IPv6 network finds its node.
const NEIGHBOURS: &str = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept";
/// The client learns at once that a policy forbids the connection.
const REFUSE: &str = "reject with icmpx admin-prohibited";

/// Does this work while the cluster enforces all its policies, and follows their changes and those of the pods.
///
/// # Errors
///
/// If this repository does not run the cluster, or a policy has a part that is not supported.
///
/// # Panics
///
/// If the work panics.
pub fn enforced<T>(cluster: &Cluster, work: impl FnOnce() -> T) -> Result<T> {
    cluster.require(Access::Machine)?;
    let mut rules = String::new();
    follow(cluster, &mut rules)?;
    let has_ended = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        let watcher = scope.spawn(|| -> Result<()> {
            while !has_ended.load(Ordering::Relaxed) {
                follow(cluster, &mut rules)?;
                thread::sleep(PAUSE);
            }
            Ok(())
        });
        let end = End(&has_ended);
        let done = work();
        drop(end);
        match watcher.join() {
            Ok(followed) => followed.map(|()| done),
            Err(panic) => panic::resume_unwind(panic),
        }
    })?;
    load(cluster, &format!("delete table {TABLE}\n"))?;
    Ok(done)
}

/// Ends the thread that follows the changes, also if the work panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Loads the rules for the present objects, unless they are these.
fn follow(cluster: &Cluster, rules: &mut String) -> Result<()> {
    let kinds = "pods,networkpolicies,namespaces";
    let mut get = cluster.kubectl(["get", kinds, "--all-namespaces", "--output=json"]);
    let list: Value = serde_json::from_str(&succeeded(&mut get)?).context("not JSON")?;
    let present = ruleset(&Objects(list["items"].as_array().context("no list")?))?;
    if present != *rules {
        load(cluster, &present)?;
        *rules = present;
    }
    Ok(())
}

/// Gives the commands to the packet filter of the cluster's network, which carries out all or none of them.
fn load(cluster: &Cluster, commands: &str) -> Result<()> {
    let file = NamedTempFile::new().context("could not make a file")?;
    fs::write(file.path(), commands).context("could not write the rules")?;
    succeeded(cluster.exec("nft").arg("--file").arg(file.path())).with_context(|| commands.to_owned())?;
    Ok(())
}

/// A direction in which a policy limits connections, by the words of a policy and of the packet filter.
struct Direction {
    kind: &'static str,
    rules: &'static str,
    peers: &'static str,
    /// The address of the peer in a packet of the side that opens the connection.
    address: &'static str,
}

const EGRESS: Direction = Direction { kind: "Egress", rules: "egress", peers: "to", address: "daddr" };
const INGRESS: Direction = Direction { kind: "Ingress", rules: "ingress", peers: "from", address: "saddr" };

/// A pod that has addresses of its own.
struct Pod<'a> {
    object: &'a Value,
    addresses: Vec<&'a str>,
}

/// All pods, policies and namespaces.
struct Objects<'a>(&'a [Value]);

impl<'a> Objects<'a> {
    fn of(&self, kind: &'static str) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    /// The pods that run. Another pod may get the address of one that has ended.
    fn pods(&self) -> Vec<Pod<'a>> {
        let running = self.of("Pod").filter(|pod| {
            let has_ended = ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase);
            pod["spec"]["hostNetwork"] != true && !has_ended
        });
        let with_addresses = running.map(|object| {
            let addresses = list(&object["status"]["podIPs"]).filter_map(|it| it["ip"].as_str());
            Pod { object, addresses: addresses.collect() }
        });
        with_addresses.collect()
    }

    /// What the policies of the pod allow in this direction, as rules; `None` if none of them limits it.
    fn allowed(&self, pod: &Value, direction: &Direction) -> Result<Option<Vec<String>>> {
        let (mut is_limited, mut rules) = (false, Vec::new());
        for policy in self.of("NetworkPolicy").filter(|it| namespace_of(it) == namespace_of(pod)) {
            let spec = &policy["spec"];
            let limits = list(&spec["policyTypes"]).any(|kind| kind == direction.kind);
            if !limits || !selects(&spec["podSelector"], pod)? {
                continue;
            }
            is_limited = true;
            for rule in list(&spec[direction.rules]) {
                let peers = any_or(&rule[direction.peers], |peer| self.matches(peer, policy, direction))?;
                let ports = any_or(&rule["ports"], |port| Ok(vec![match_of_port(port)?]))?;
                let pairs = peers.iter().flat_map(|peer| ports.iter().map(move |port| [peer, port]));
                rules.extend(pairs.map(|[peer, port]| format!("{peer}{port}return")));
            }
        }
        Ok(is_limited.then_some(rules))
    }

    /// What matches the addresses of a peer, with a space at the end.
    fn matches(&self, peer: &Value, policy: &Value, direction: &Direction) -> Result<Vec<String>> {
        let address = direction.address;
        if let Some(range) = peer["ipBlock"]["cidr"].as_str() {
            let family = family(range);
            let except: Vec<_> = list(&peer["ipBlock"]["except"]).filter_map(Value::as_str).collect();
            let but = match except.as_slice() {
                [] => String::new(),
                except => format!("{family} {address} != {{ {} }} ", except.join(", ")),
            };
            return Ok(vec![format!("{family} {address} {range} {but}")]);
        }
        let mut matches = Vec::new();
        for pod in self.pods() {
            if self.is_peer(pod.object, peer, policy)? {
                matches.extend(pod.addresses.iter().map(|ip| format!("{} {address} {ip} ", family(ip))));
            }
        }
        Ok(matches)
    }

    fn is_peer(&self, pod: &Value, peer: &Value, policy: &Value) -> Result<bool> {
        let selector = &peer["namespaceSelector"];
        let is_in = if selector.is_null() {
            namespace_of(pod) == namespace_of(policy)
        } else {
            let namespace = self.of("Namespace").find(|it| it["metadata"]["name"] == *namespace_of(pod));
            selects(selector, namespace.context("a pod has no namespace")?)?
        };
        Ok(is_in && selects(&peer["podSelector"], pod)?)
    }
}

/// The commands that replace the table by the rules for these objects.
fn ruleset(objects: &Objects<'_>) -> Result<String> {
    let (mut chains, mut leaves, mut enters) = (Vec::new(), Vec::new(), Vec::new());
    for (n, pod) in objects.pods().iter().enumerate() {
        let egress = objects.allowed(pod.object, &EGRESS)?;
        let ingress = objects.allowed(pod.object, &INGRESS)?;
        for address in &pod.addresses {
            let family = family(address);
            let verdict = if egress.is_some() { format!("goto leaves_{n}") } else { "return".to_owned() };
            leaves.push(format!("{family} saddr {address} {verdict}"));
            if ingress.is_some() {
                enters.push(format!("{family} daddr {address} goto enters_{n}"));
            }
        }
        for (name, allowed) in [("leaves", egress), ("enters", ingress)] {
            if let Some(mut rules) = allowed {
                rules.push(REFUSE.to_owned());
                chains.push(chain(&format!("{name}_{n}"), &rules));
            }
        }
    }
    leaves.push("drop".to_owned()); // from a pod whose address the API server does not know yet
    let base = |hook: &str| format!("type filter hook {hook} priority filter; policy accept;");
    let (forwarded, received) = (base("forward"), base("input"));
    chains.push(chain("leaves", &leaves));
    chains.push(chain("enters", &enters));
    // What pods send to other pods and beyond the node, and what they send to the node. What the node sends is free.
    chains.push(chain("forwarded", &[forwarded.as_str(), ANSWERS, FROM_PODS, "jump enters"]));
    chains.push(chain("received", &[received.as_str(), ANSWERS, NEIGHBOURS, FROM_PODS]));
    Ok(format!("add table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n{}}}\n", chains.concat()))
}

fn chain<R: Borrow<str>>(name: &str, rules: &[R]) -> String {
    format!("  chain {name} {{\n    {}\n  }}\n", rules.join("\n    "))
}

/// What `matches` returns for the elements of a list; or what matches anything, if the list is missing or empty.
fn any_or(elements: &Value, matches: impl Fn(&Value) -> Result<Vec<String>>) -> Result<Vec<String>> {
    if list(elements).next().is_none() {
        return Ok(vec![String::new()]);
    }
    let each: Vec<Vec<String>> = list(elements).map(matches).collect::<Result<_>>()?;
    Ok(each.concat())
}

/// What matches a port of a policy, with a space at the end.
fn match_of_port(port: &Value) -> Result<String> {
    let protocol = port["protocol"].as_str().unwrap_or("TCP").to_lowercase();
    match (&port["port"], &port["endPort"]) {
        (Value::Null, _) => Ok(format!("meta l4proto {protocol} ")),
        (Value::Number(first), Value::Null) => Ok(format!("{protocol} dport {first} ")),
        (Value::Number(first), last) => Ok(format!("{protocol} dport {first}-{last} ")),
        (name, _) => bail!("a port by its name is not supported: {name}"),
    }
}

/// Whether the selector chooses the object by its labels. An empty or missing one chooses all.
fn selects(selector: &Value, object: &Value) -> Result<bool> {
    ensure!(selector["matchExpressions"].is_null(), "a selector with expressions is not supported: {selector}");
    let labels = &object["metadata"]["labels"];
    let wanted = selector["matchLabels"].as_object();
    Ok(wanted.into_iter().flatten().all(|(key, value)| labels[key] == *value))
}

fn namespace_of(object: &Value) -> &Value {
    &object["metadata"]["namespace"]
}

/// The family of an address or of a range, as the packet filter calls it.
fn family(address: &str) -> &'static str {
    if address.contains(':') { "ip6" } else { "ip" }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn namespace(name: &str) -> Value {
        json!({"kind": "Namespace", "metadata": {"name": name, "labels": {"is": name}}})
    }

    fn pod(namespace: &str, app: &str, addresses: &[&str]) -> Value {
        let addresses: Vec<_> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        json!({
            "kind": "Pod", "metadata": {"namespace": namespace, "labels": {"app": app}},
            "status": {"phase": "Running", "podIPs": addresses},
        })
    }

    /// A policy for the pod `a` in the namespace `one`.
    fn policy(spec: &Value) -> Value {
        let mut spec = spec.clone();
        spec["podSelector"] = json!({"matchLabels": {"app": "a"}});
        json!({"kind": "NetworkPolicy", "metadata": {"namespace": "one"}, "spec": spec})
    }

    fn rules(policies: &[Value]) -> Result<String> {
        let mut objects = vec![
            namespace("one"),
            namespace("two"),
            pod("one", "a", &["10.0.0.1", "fd00::1"]),
            pod("one", "b", &["10.0.0.2"]),
            pod("two", "a", &["10.0.0.3"]),
            pod("two", "ended", &["10.0.0.4"]),
            pod("one", "on-node", &["10.9.9.9"]),
        ];
        objects[5]["status"]["phase"] = json!("Succeeded");
        objects[6]["spec"] = json!({"hostNetwork": true});
        objects.extend_from_slice(policies);
        ruleset(&Objects(&objects))
    }

    /// The rules of a chain.
    fn in_chain(rules: &str, name: &str) -> Vec<String> {
        let (_, rest) = rules.split_once(&format!("chain {name} {{\n")).unwrap_or_else(|| panic!("no {name}: {rules}"));
        rest.lines().take_while(|line| *line != "  }").map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn pod_may_do_what_one_of_its_policies_allows() {
        let block = json!({"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.1/32", "192.0.2.2/32"]}});
        let ports = json!([{"port": 443}, {"port": 53, "protocol": "UDP"}]);
        let to_block = policy(&json!({"policyTypes": ["Egress"], "egress": [{"to": [block], "ports": ports}]}));
        let ipv6 = json!({"ipBlock": {"cidr": "2001:db8::/64"}});
        let of_both = policy(&json!({
            "policyTypes": ["Ingress", "Egress"],
            "egress": [{"to": [{"podSelector": {}}, ipv6]}],
            "ingress": [
                {"from": [{"namespaceSelector": {"matchLabels": {"is": "two"}}, "podSelector": {"matchLabels": {"app": "a"}}}]},
                {"ports": [{"port": 8000, "endPort": 8010}, {"protocol": "UDP"}]},
                {"from": [{"podSelector": {"matchLabels": {"app": "missing"}}}]},
            ],
        }));
        let rules = rules(&[to_block, of_both]).unwrap();
        let block = "ip daddr 192.0.2.0/24 ip daddr != { 192.0.2.1/32, 192.0.2.2/32 }";
        let (tcp, udp) = (format!("{block} tcp dport 443 return"), format!("{block} udp dport 53 return"));
        let leaves = [
            tcp.as_str(),
            udp.as_str(),
            "ip daddr 10.0.0.1 return",
            "ip6 daddr fd00::1 return",
            "ip daddr 10.0.0.2 return",
            "ip6 daddr 2001:db8::/64 return",
            REFUSE,
        ];
        assert_eq!(in_chain(&rules, "leaves_0"), leaves);
        let allowed = ["ip saddr 10.0.0.3 return", "tcp dport 8000-8010 return", "meta l4proto udp return", REFUSE];
        assert_eq!(in_chain(&rules, "enters_0"), allowed);
        let leaves = [
            "ip saddr 10.0.0.1 goto leaves_0",
            "ip6 saddr fd00::1 goto leaves_0",
            "ip saddr 10.0.0.2 return",
            "ip saddr 10.0.0.3 return",
            "drop",
        ];
        assert_eq!(in_chain(&rules, "leaves"), leaves);
        let enters = ["ip daddr 10.0.0.1 goto enters_0", "ip6 daddr fd00::1 goto enters_0"];
        assert_eq!(in_chain(&rules, "enters"), enters);
    }

    #[test]
    fn pod_with_a_policy_without_rules_may_do_nothing_in_its_direction() {
        let rules = rules(&[policy(&json!({"policyTypes": ["Egress"]}))]).unwrap();
        assert_eq!(in_chain(&rules, "leaves_0"), [REFUSE]);
        assert!(!rules.contains("enters_0"), "{rules}");
    }

    #[test]
    fn part_of_a_policy_that_is_not_supported_is_an_error() {
        let expression = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
        for (rule, says) in [
            (json!({"ports": [{"port": "https"}]}), "a port by its name is not supported: \"https\""),
            (json!({"to": [{"podSelector": expression}]}), "a selector with expressions is not supported"),
        ] {
            let error = rules(&[policy(&json!({"policyTypes": ["Egress"], "egress": [rule]}))]).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
