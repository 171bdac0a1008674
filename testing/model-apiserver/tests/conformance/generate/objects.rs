//! Makes random objects that the real server accepts.

use serde_json::{Map, Value, json};

use super::{Generator, Plural};
use crate::step::LAST;

impl Generator {
    /// Makes a whole object that the real server accepts.
    pub(super) fn object(&mut self, kind: Plural, name: &str) -> Value {
        let (version, _, kind_name) = self.version(kind);
        let mut metadata = json!({"name": name});
        if self.maybe() {
            metadata["labels"] = json!({"tier": self.pick(&["a", "b"]), "x": self.word()});
        }
        if self.rng.u8(..4) == 0 {
            metadata["annotations"] = json!({"note": self.word()});
        }
        if self.rng.u8(..6) == 0 && name != LAST {
            metadata["finalizers"] = json!([self.pick(&["example.com/hold", "example.com/other"])]);
        }
        let mut object = json!({"apiVersion": version, "kind": kind_name, "metadata": metadata});
        match kind {
            Plural::ConfigMap => {
                let mut data = Map::new();
                for key in ["k1", "k2", "k3"] {
                    if self.maybe() {
                        data.insert(key.to_owned(), json!(self.word()));
                    }
                }
                object["data"] = Value::Object(data);
            }
            Plural::Deployment => object["spec"] = self.deployment(),
            Plural::Service => object["spec"] = self.service(name),
            Plural::Budget => {
                let least = [json!(1), json!(2), json!("50%")][self.rng.usize(..3)].clone();
                object["spec"] = json!({"minAvailable": least, "selector": {"matchLabels": {"app": "x"}}});
            }
            Plural::Lease => {
                let mut spec = json!({"holderIdentity": self.word(), "leaseDurationSeconds": 15});
                if self.maybe() {
                    spec["renewTime"] = json!("2026-01-01T00:00:00.000001Z");
                    spec["leaseTransitions"] = json!(self.rng.u8(..3));
                }
                object["spec"] = spec;
            }
            Plural::Widget => object["spec"] = self.widget(),
            Plural::Job => object["spec"] = self.job(),
            Plural::Policy => object["spec"] = self.policy(),
            Plural::Event => self.event(&mut object),
            Plural::Secret => {
                let texts = if self.maybe() { "stringData" } else { "data" };
                object[texts] = json!({self.pick(&["k1", "k2"]): "eA=="});
            }
        }
        object
    }

    fn deployment(&mut self) -> Value {
        let mut container = json!({"name": "c1", "image": self.pick(&["app:1", "app:2", "app"])});
        if self.maybe() {
            container["args"] = json!(["-v", self.word()]);
        }
        if self.maybe() {
            container["env"] = json!([{"name": "A", "value": self.word()}]);
        }
        if self.maybe() {
            container["env"] = json!([{"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "A", "value": self.word()}]);
        }
        if self.maybe() {
            container["ports"] = json!([{"containerPort": 80, "name": self.pick(&["web", "http"])}]);
        }
        if self.maybe() {
            container["resources"] = json!({"limits": {"memory": self.pick(&["64Mi", "1024Mi"])},
                "requests": {"cpu": self.pick(&["1000m", "0.5"])}});
        }
        if self.rng.u8(..4) == 0 {
            container["readinessProbe"] = json!({"httpGet": {"port": 80}, "periodSeconds": 5});
        }
        let mut containers = vec![container];
        if self.maybe() {
            containers.push(json!({"name": "c2", "image": "side:1"}));
        }
        let mut pod = json!({"containers": containers});
        if self.rng.u8(..3) == 0 {
            pod["nodeSelector"] = json!({"disk": self.word()});
        }
        if self.rng.u8(..3) == 0 {
            pod["tolerations"] = json!([{"key": self.word(), "operator": "Exists"}]);
        }
        if self.rng.u8(..3) == 0 {
            pod["securityContext"] = json!({"runAsNonRoot": true});
        }
        if self.rng.u8(..3) == 0 {
            pod["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "zone",
                "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "x"}}}]);
        }
        let mut spec = json!({"selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": pod}});
        if self.maybe() {
            spec["replicas"] = json!(self.rng.u8(..3));
        }
        if self.rng.u8(..3) == 0 {
            spec["strategy"] = json!({"rollingUpdate": {"maxSurge": self.rng.u8(1..3)}});
        }
        if self.rng.u8(..4) == 0 {
            spec["paused"] = json!(true);
        }
        spec
    }

    /// Makes a Job. Its template never changes, because the real server refuses a changed one with a message in Go's internal
    /// format.
    fn job(&mut self) -> Value {
        let mut spec = json!({"template": {"metadata": {"labels": {"app": "x"}}, "spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "app:1"}]}}});
        if self.maybe() {
            spec["parallelism"] = json!(self.rng.u8(1..3));
            spec["completions"] = json!(1);
        }
        for field in ["backoffLimit", "ttlSecondsAfterFinished"] {
            if self.maybe() {
                spec[field] = json!(self.rng.u8(1..4));
            }
        }
        if self.rng.u8(..3) == 0 {
            spec["suspend"] = json!(true);
        }
        spec
    }

    fn policy(&mut self) -> Value {
        let mut spec = json!({"podSelector": {"matchLabels": {"app": self.word()}}});
        if self.maybe() {
            spec["policyTypes"] = json!(["Ingress"]);
        }
        if self.maybe() {
            let mut rule = json!({"ports": [{"port": 11211}]});
            if self.maybe() {
                rule["ports"] = json!([{"port": "web", "protocol": "TCP"}, {"port": 80}]);
            }
            if self.maybe() {
                rule["from"] = json!([{"podSelector": {"matchLabels": {"app": self.word()}}}, {"namespaceSelector": {}},
                    {"ipBlock": {"cidr": "10.0.0.0/8"}}]);
            }
            spec["ingress"] = json!([rule]);
        }
        if self.rng.u8(..4) == 0 {
            spec["egress"] = json!([{}]);
        }
        spec
    }

    fn event(&mut self, object: &mut Value) {
        let more = json!({
            "eventTime": "2026-01-01T00:00:00.000000Z", "type": self.pick(&["Normal", "Warning"]), "reason": "Created",
            "action": "Reconcile", "note": self.word(), "reportingController": "c", "reportingInstance": "i",
            "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": self.namespace, "uid": "u"},
        });
        object["metadata"]["namespace"] = json!(self.namespace);
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        if self.maybe() {
            let time = "2026-01-01T00:01:00.000000Z";
            object["series"] = json!({"count": self.rng.u8(2..4), "lastObservedTime": time});
        }
    }

    fn service(&mut self, name: &str) -> Value {
        let mut ports = vec![json!({"name": "p1", "port": 80})];
        if self.maybe() {
            ports[0]["targetPort"] = json!("web");
        }
        if self.maybe() {
            ports.push(json!({"name": "p2", "port": 81, "targetPort": 8081}));
        }
        let mut spec = json!({"ports": ports, "selector": {"app": self.word()}});
        if name == "a" {
            spec["clusterIP"] = json!("None");
        }
        if self.rng.u8(..3) == 0 {
            spec["publishNotReadyAddresses"] = json!(true);
        }
        spec
    }

    fn widget(&mut self) -> Value {
        let mut spec = json!({});
        if self.maybe() {
            spec["size"] = json!(self.rng.u8(..4));
        }
        if self.maybe() {
            let mut sidecars = vec![json!({"name": "s1", "image": self.word()})];
            if self.maybe() {
                sidecars.insert(self.rng.usize(..2), json!({"name": "s2", "port": 81}));
            }
            spec["sidecars"] = json!(sidecars);
        }
        if self.maybe() {
            spec["tags"] = json!([self.pick(&["red", "green"]), "blue"]);
        }
        if self.rng.u8(..3) == 0 {
            spec["free"] = json!({"deep": {"a": self.word()}, "list": [self.rng.u8(..3)]});
        }
        if self.rng.u8(..3) == 0 {
            spec["whole"] = json!({"a": self.word(), "b": "1"});
        }
        if self.rng.u8(..3) == 0 {
            spec["words"] = json!([self.word()]);
        }
        if self.rng.u8(..3) == 0 {
            spec["table"] = json!({self.word(): "1"});
        }
        if self.rng.u8(..3) == 0 {
            spec["inner"] = json!({"flag": self.maybe()});
        }
        if self.rng.u8(..6) == 0 {
            spec["typo"] = json!(true);
        }
        spec
    }
}
