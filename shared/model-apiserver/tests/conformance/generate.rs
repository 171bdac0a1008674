//! Random requests, the same for the same seed.

use std::fmt;

use fastrand::Rng;
use serde_json::{Map, Value, json};

/// Stand for what each server calls the versions and the uid of the object that a step is about.
pub(crate) const RV_LATEST: &str = "$LATEST";
pub(crate) const RV_FIRST: &str = "$FIRST";
pub(crate) const UID: &str = "$UID";
/// The name of the object that ends a watch.
pub(crate) const LAST: &str = "zzz-last";

const KINDS: [Plural; 10] = [
    Plural::ConfigMap,
    Plural::Deployment,
    Plural::Service,
    Plural::Budget,
    Plural::Lease,
    Plural::Widget,
    Plural::Job,
    Plural::Policy,
    Plural::Event,
    Plural::Secret,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plural {
    ConfigMap,
    Deployment,
    Service,
    Budget,
    Lease,
    Widget,
    Job,
    Policy,
    Event,
    Secret,
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Option<Value>,
    /// Which object it is about.
    pub(crate) object: String,
}

impl Step {
    pub(crate) fn new(method: &'static str, path: &str) -> Self {
        let (query, object) = (String::new(), path.to_owned());
        Self { method, path: path.to_owned(), query, content_type: "application/json", body: None, object }
    }

    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(crate) fn query(mut self, query: impl Into<String>) -> Self {
        self.query = query.into();
        self
    }

    pub(crate) fn content(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }

    pub(crate) fn about(mut self, object: &str) -> Self {
        object.clone_into(&mut self.object);
        self
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}?{} ({})", self.method, self.path, self.query, self.content_type)?;
        match &self.body {
            Some(body) => write!(f, " {body}"),
            None => Ok(()),
        }
    }
}

pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// A random sequence of requests in a namespace.
pub(crate) trait Requests: Send {
    fn step(&mut self) -> Step;
    /// The watches of all that has happened, and of some of it, and the object that ends them.
    fn watches(&mut self) -> Vec<Step>;
}

/// The object from whose version on everything is watched.
pub(crate) fn first(namespace: &str) -> Step {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "start"}});
    Step::new("POST", &format!("/api/v1/namespaces/{namespace}/configmaps"))
        .body(body)
        .about(&format!("first {namespace}"))
}

/// Watches of a collection that end with the object `last`, which has the label `tier: a`.
pub(crate) fn watches(path: &str, namespace: &str, last: Value) -> Vec<Step> {
    let watch = |query: &str| Step::new("GET", path).query(format!("watch=true&timeoutSeconds=20&{query}")).about(LAST);
    vec![
        Step::new("POST", path).body(last).about(LAST),
        watch(&format!("resourceVersion={RV_FIRST}")).about(&format!("first {namespace}")),
        watch(""),
        watch("labelSelector=tier%3Da"),
    ]
}

pub(crate) struct Generator {
    rng: Rng,
    namespace: String,
    group: String,
    /// What the sequence is mostly about, so that requests meet.
    favourites: [Plural; 2],
}

impl Generator {
    pub(crate) fn new(seed: u64, namespace: &str, group: &str) -> Self {
        let mut rng = Rng::with_seed(seed);
        let first = rng.usize(..KINDS.len());
        let favourites = [KINDS[first], KINDS[(first + rng.usize(1..KINDS.len())) % KINDS.len()]];
        Self { rng, namespace: namespace.to_owned(), group: group.to_owned(), favourites }
    }

    fn version(&self, kind: Plural) -> (String, &'static str, &'static str) {
        match kind {
            Plural::ConfigMap => ("v1".to_owned(), "configmaps", "ConfigMap"),
            Plural::Deployment => ("apps/v1".to_owned(), "deployments", "Deployment"),
            Plural::Service => ("v1".to_owned(), "services", "Service"),
            Plural::Budget => ("policy/v1".to_owned(), "poddisruptionbudgets", "PodDisruptionBudget"),
            Plural::Lease => ("coordination.k8s.io/v1".to_owned(), "leases", "Lease"),
            Plural::Widget => (format!("{}/v1", self.group), "widgets", "Widget"),
            Plural::Job => ("batch/v1".to_owned(), "jobs", "Job"),
            Plural::Policy => ("networking.k8s.io/v1".to_owned(), "networkpolicies", "NetworkPolicy"),
            Plural::Event => ("events.k8s.io/v1".to_owned(), "events", "Event"),
            Plural::Secret => ("v1".to_owned(), "secrets", "Secret"),
        }
    }

    fn path(&self, kind: Plural) -> String {
        let (version, plural, _) = self.version(kind);
        let prefix = if version == "v1" { "api" } else { "apis" };
        format!("/{prefix}/{version}/namespaces/{}/{plural}", self.namespace)
    }

    fn random(&mut self) -> Step {
        let kind = if self.rng.u8(..4) > 0 {
            self.favourites[self.rng.usize(..2)]
        } else {
            KINDS[self.rng.usize(..KINDS.len())]
        };
        let name = self.pick(&["a", "b"]);
        let (collection, object) = (self.path(kind), format!("{}/{name}", self.path(kind)));
        let has_status = matches!(kind, Plural::Deployment | Plural::Budget | Plural::Widget);
        let manager = self.pick(&["one", "two"]);
        let mut step = match self.rng.u8(..100) {
            0..14 => {
                let mut body = self.object(kind, name);
                if self.rng.u8(..12) == 0 {
                    body["metadata"]["uid"] = json!("11111111-1111-1111-1111-111111111111");
                }
                let query = if self.rng.u8(..12) == 0 { "&dryRun=All" } else { "" };
                Step::new("POST", &collection).body(body).query(format!("fieldManager={manager}{query}"))
            }
            14..18 => Step::new("GET", &object),
            18..22 => {
                let query = [
                    "",
                    "labelSelector=tier%3Da",
                    "labelSelector=tier+in+(a,b),x",
                    "labelSelector=!tier",
                    "fieldSelector=metadata.name%3Da",
                    "resourceVersion=0",
                    "limit=1",
                ];
                // A controller puts a ConfigMap of its own into every namespace of the real server.
                let count = if kind == Plural::ConfigMap { query.len() - 2 } else { query.len() };
                Step::new("GET", &collection).query(query[self.rng.usize(..count)])
            }
            // A PUT of a Job has to bring the selector that the server has made.
            22..36 if kind != Plural::Job => {
                let mut body = self.object(kind, name);
                self.versioned(&mut body);
                Step::new("PUT", &object).body(body).query(format!("fieldManager={manager}"))
            }
            22..48 => {
                let body = self.merge_patch(kind);
                Step::new("PATCH", &object).body(body).content(MERGE).query(format!("fieldManager={manager}"))
            }
            48..54 => {
                let body = self.json_patch();
                Step::new("PATCH", &object).body(body).content(JSON).query(format!("fieldManager={manager}"))
            }
            54..80 => {
                let mut body = self.object(kind, name);
                match self.rng.u8(..16) {
                    0 => body["metadata"]["resourceVersion"] = json!(RV_LATEST),
                    1 => body["metadata"]["resourceVersion"] = json!(RV_FIRST),
                    2 => body["metadata"]["uid"] = json!(UID),
                    3 => body["metadata"]["uid"] = json!("22222222-2222-2222-2222-222222222222"),
                    _ => {}
                }
                let force = if self.rng.bool() { "&force=true" } else { "" };
                Step::new("PATCH", &object).body(body).content(APPLY).query(format!("fieldManager={manager}{force}"))
            }
            80..92 if has_status => self.status(kind, name, &object, manager),
            _ => {
                let mut options = Map::new();
                match self.rng.u8(..8) {
                    0 => drop(options.insert("preconditions".to_owned(), json!({"uid": UID}))),
                    1 => drop(options.insert("preconditions".to_owned(), json!({"resourceVersion": RV_LATEST}))),
                    2 => drop(options.insert("preconditions".to_owned(), json!({"resourceVersion": RV_FIRST}))),
                    3 => drop(options.insert("preconditions".to_owned(), json!({"uid": "3333"}))),
                    _ => {}
                }
                options.insert("propagationPolicy".to_owned(), json!("Background"));
                Step::new("DELETE", &object).body(Value::Object(options))
            }
        };
        // What a Job has made of its uid is checked against another uid too, in Go's words.
        if let Some(body) = step.body.as_mut().filter(|body| kind == Plural::Job && body["metadata"]["uid"] != UID) {
            body.get_mut("metadata").and_then(Value::as_object_mut).map(|metadata| metadata.remove("uid"));
        }
        step.about(&object)
    }

    fn versioned(&mut self, body: &mut Value) {
        match self.rng.u8(..8) {
            0..4 => body["metadata"]["resourceVersion"] = json!(RV_LATEST),
            4 => body["metadata"]["resourceVersion"] = json!(RV_FIRST),
            5 => body["metadata"]["uid"] = json!(UID),
            6 => body["metadata"]["uid"] = json!("22222222-2222-2222-2222-222222222222"),
            _ => {}
        }
    }

    fn status(&mut self, kind: Plural, name: &str, object: &str, manager: &str) -> Step {
        let (version, _, kind_name) = self.version(kind);
        let count = self.rng.u8(..3);
        let mut status = match kind {
            Plural::Deployment => json!({"replicas": 3, "readyReplicas": count}),
            Plural::Budget => {
                json!({"currentHealthy": count, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 3})
            }
            _ => json!({"phase": self.pick(&["Up", "Down"]), "replicas": count}),
        };
        if self.rng.bool() && kind != Plural::Budget {
            status["conditions"] = json!([{
                "type": self.pick(&["Ready", "Stalled"]), "status": "True", "reason": "Because", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
        }
        let path = format!("{object}/status");
        let query = format!("fieldManager={manager}");
        let mut body = json!({"status": status});
        match self.rng.u8(..3) {
            0 => {
                match self.rng.u8(..9) {
                    0..3 => {
                        let uid = self.pick(&[UID, "22222222-2222-2222-2222-222222222222"]);
                        body["metadata"] = json!({"uid": uid});
                    }
                    3..5 => {
                        body["metadata"] = json!({"labels": {"x": "status"}, "annotations": {"by": "status"}});
                        body["spec"] = json!({"minReadySeconds": 9});
                    }
                    _ => {}
                }
                Step::new("PATCH", &path).body(body).content(MERGE).query(query)
            }
            1 => {
                let mut body = self.object(kind, name);
                body["status"] = status;
                self.versioned(&mut body);
                Step::new("PUT", &path).body(body).query(query)
            }
            _ => {
                let body =
                    json!({"apiVersion": version, "kind": kind_name, "metadata": {"name": name}, "status": status});
                let force = if self.rng.bool() { "&force=true" } else { "" };
                Step::new("PATCH", &path).body(body).content(APPLY).query(format!("{query}{force}"))
            }
        }
    }

    fn merge_patch(&mut self, kind: Plural) -> Value {
        match self.rng.u8(..7) {
            0 => json!({"metadata": {"labels": {"tier": null}}}),
            1 => json!({"metadata": {"labels": {"tier": self.pick(&["a", "b"])}}}),
            2 => json!({"metadata": {"finalizers": ["example.com/hold"]}}),
            3 => json!({"metadata": {"finalizers": null}}),
            4 => json!({"metadata": {"resourceVersion": self.pick(&[RV_LATEST, RV_FIRST]),
                "annotations": {"note": self.word()}}}),
            5 => json!({"metadata": {"uid": self.pick(&[UID, "22222222-2222-2222-2222-222222222222"]),
                "annotations": {"note": self.word()}}}),
            _ => match kind {
                Plural::ConfigMap => json!({"data": {"k1": null, "k2": self.word()}}),
                Plural::Deployment => json!({"spec": {"replicas": self.rng.u8(..3), "paused": null}}),
                Plural::Service => json!({"spec": {"sessionAffinity": "None", "selector": {"app": self.word()}}}),
                Plural::Budget => json!({"spec": {"minAvailable": self.rng.u8(..3)}}),
                Plural::Lease => json!({"spec": {"holderIdentity": self.word(), "leaseTransitions": self.rng.u8(..3)}}),
                Plural::Job => json!({"spec": {"parallelism": self.rng.u8(..3), "suspend": null}}),
                Plural::Policy => {
                    json!({"spec": {"podSelector": {"matchLabels": {"app": self.word()}}, "egress": null}})
                }
                Plural::Event => json!({"note": self.word()}),
                Plural::Secret => json!({"stringData": {"k1": self.word()}, "data": {"k2": null}}),
                Plural::Widget => json!({"spec": {"size": null, "mode": self.pick(&["Fast", "Slow"]),
                    "sidecars": [{"name": "s1", "image": self.word()}]}, "unknown": {"field": 1}}),
            },
        }
    }

    fn json_patch(&mut self) -> Value {
        match self.rng.u8(..4) {
            0 => json!([{"op": "replace", "path": "/metadata/labels/x", "value": self.word()}]),
            1 => json!([{"op": "add", "path": "/metadata/annotations", "value": {"json": self.word()}}]),
            2 => json!([{"op": "test", "path": "/metadata/labels/tier", "value": "a"},
                {"op": "remove", "path": "/metadata/labels/tier"}]),
            _ => {
                json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/hold", "example.com/more"]}])
            }
        }
    }

    fn word(&mut self) -> String {
        self.pick(&["red", "green", "blue"]).to_owned()
    }

    fn pick<'a>(&mut self, options: &[&'a str]) -> &'a str {
        options[self.rng.usize(..options.len())]
    }

    fn maybe(&mut self) -> bool {
        self.rng.bool()
    }

    /// A whole object that the real server takes.
    fn object(&mut self, kind: Plural, name: &str) -> Value {
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

    /// Its template stays: how the real server prints one that has changed is Go's own.
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

impl Requests for Generator {
    fn step(&mut self) -> Step {
        self.random()
    }

    fn watches(&mut self) -> Vec<Step> {
        let mut out = Vec::new();
        // Nobody here watches events, which the real server reads from its store and not from a cache.
        for kind in self.favourites.into_iter().filter(|kind| *kind != Plural::Event) {
            let mut last = self.object(kind, LAST);
            last["metadata"]["labels"] = json!({"tier": "a"});
            out.extend(watches(&self.path(kind), &self.namespace, last));
        }
        out
    }
}
