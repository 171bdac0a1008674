//! The Deployment that runs the pods.

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{
            Affinity, Container, ContainerPort, Lifecycle, LifecycleHandler, PodAffinityTerm, PodAntiAffinity, PodSpec,
            PodTemplateSpec, Probe, ResourceRequirements, SecurityContext, SleepAction, TCPSocketAction,
            WeightedPodAffinityTerm,
        },
    },
    apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString},
};
use kube::{ResourceExt, core::ObjectMeta};
use workloads::{App, ImagePullPolicy, RolloutStrategy, SecurityProfile, normalize, quantity};

use super::exporter::exporter;
use crate::{
    api::{
        Memcached,
        v1::{AntiAffinity, CacheConfig, MemcachedSpec, RolloutSettings},
    },
    command_line,
    config::Config,
    secrets,
};

/// The name of the container that runs memcached.
pub const CONTAINER: &str = "memcached";

/// Seconds without progress after which the Deployment reports a rollout as stalled.
pub const PROGRESS_DEADLINE_SECONDS: i32 = 600;

/// The name of the port, in the pod and in the Service.
pub(super) const PORT: &str = "memcached";

/// The id of memcached's user in the official image.
const USER: i64 = 11211;

/// A pod continues to serve for this time after its deletion, so that clients stop using its address before it ends.
const LINGER_SECONDS: i64 = 5;

/// Returns the Deployment that runs `size` pods. All inputs but `size` and `rollout` restart the pods when they change, including
/// the hash of the Secrets.
pub fn deployment(memcached: &Memcached, config: &Config, secret_hash: Option<&str>) -> Deployment {
    let spec = &memcached.spec;
    let app = App::of(memcached);
    let RolloutSettings { max_surge, max_unavailable, min_ready_seconds } = spec.rollout();
    let pace = RolloutStrategy {
        max_surge,
        max_unavailable,
        min_ready_seconds,
        progress_deadline_seconds: PROGRESS_DEADLINE_SECONDS,
    };
    let template = PodTemplateSpec {
        metadata: Some(pod_metadata(spec, &app, secret_hash)),
        spec: Some(pod(memcached, &app, config)),
    };
    workloads::deployment(memcached.name_any(), &app, spec.size, pace, template)
}

fn pod_metadata(spec: &MemcachedSpec, app: &App, secret_hash: Option<&str>) -> ObjectMeta {
    let mut metadata = app.pod_metadata(&spec.pod_labels, &spec.pod_annotations);
    let component = ("app.kubernetes.io/component".to_owned(), "cache".to_owned());
    metadata.labels.get_or_insert_default().extend([component]);
    if let Some(hash) = secret_hash {
        metadata.annotations.get_or_insert_default().insert(secrets::HASH.to_owned(), hash.to_owned());
    }
    metadata
}

fn pod(memcached: &Memcached, app: &App, config: &Config) -> PodSpec {
    let spec = &memcached.spec;
    PodSpec {
        containers: std::iter::once(memcached_container(memcached, config))
            .chain(exporter(memcached, config))
            .collect(),
        affinity: affinity(spec.anti_affinity(), app),
        image_pull_secrets: normalize::list(&spec.image_pull_secrets),
        node_selector: normalize::map(&spec.node_selector),
        priority_class_name: spec.priority_class_name.clone(),
        termination_grace_period_seconds: Some(spec.termination_grace_period_seconds()),
        tolerations: normalize::list(&spec.tolerations),
        topology_spread_constraints: app.spread(&spec.topology_spread_constraints),
        volumes: Some(secrets::volumes(memcached)).filter(|it| !it.is_empty()),
        ..SecurityProfile::Restricted.pod()
    }
}

fn memcached_container(memcached: &Memcached, config: &Config) -> Container {
    let spec = &memcached.spec;
    let cache = spec.config();
    Container {
        name: CONTAINER.to_owned(),
        image: Some(spec.image.clone().unwrap_or_else(|| config.default_image())),
        image_pull_policy: spec.image_pull_policy.map(ImagePullPolicy::name),
        args: Some(command_line::args(spec)),
        ports: Some(vec![ContainerPort {
            name: Some(PORT.to_owned()),
            container_port: spec.port(),
            protocol: Some("TCP".to_owned()),
            ..Default::default()
        }]),
        readiness_probe: Some(Probe { period_seconds: Some(5), failure_threshold: Some(3), ..probe() }),
        liveness_probe: Some(Probe {
            period_seconds: Some(10),
            failure_threshold: Some(6),
            initial_delay_seconds: Some(10),
            ..probe()
        }),
        // A sleep action needs no shell in the image.
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler {
                sleep: Some(SleepAction { seconds: LINGER_SECONDS }),
                ..Default::default()
            }),
            ..Default::default()
        }),
        resources: match &spec.resources {
            Some(resources) => normalize::resources(resources),
            None => Some(default_resources(&cache)),
        },
        volume_mounts: Some(secrets::mounts(memcached)).filter(|it| !it.is_empty()),
        security_context: Some(SecurityContext {
            run_as_user: config.fixed(USER),
            run_as_group: config.fixed(USER),
            read_only_root_filesystem: Some(true),
            ..SecurityProfile::Restricted.container()
        }),
        termination_message_policy: Some(workloads::LAST_WORDS.to_owned()),
        ..Default::default()
    }
}

fn probe() -> Probe {
    let port = IntOrString::String(PORT.to_owned());
    Probe { tcp_socket: Some(TCPSocketAction { port, host: None }), timeout_seconds: Some(3), ..Default::default() }
}

/// The memory limit equals the request, so the kernel kills a pod that outgrows its request rather than a neighbour. CPU has no
/// limit.
fn default_resources(cache: &CacheConfig) -> ResourceRequirements {
    let memory = ("memory".to_owned(), quantity::mebibytes(command_line::memory_mib(cache)));
    let cpu = ("cpu".to_owned(), Quantity("50m".to_owned()));
    ResourceRequirements { requests: Some([cpu, memory.clone()].into()), limits: Some([memory].into()), claims: None }
}

fn affinity(anti_affinity: AntiAffinity, app: &App) -> Option<Affinity> {
    let apart = PodAffinityTerm {
        topology_key: "kubernetes.io/hostname".to_owned(),
        label_selector: Some(app.label_selector()),
        ..Default::default()
    };
    let pod_anti_affinity = match anti_affinity {
        AntiAffinity::Soft => PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: apart,
            }]),
            ..Default::default()
        },
        AntiAffinity::Hard => PodAntiAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![apart]),
            ..Default::default()
        },
        AntiAffinity::None => return None,
    };
    Some(Affinity { pod_anti_affinity: Some(pod_anti_affinity), ..Default::default() })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::DeploymentSpec;
    use serde_json::{Value, json};

    use super::*;
    use crate::samples;

    fn of(spec: &Value) -> DeploymentSpec {
        deployment(&samples::with_spec(spec), &Config::default(), None).spec.expect("a spec")
    }

    fn pod_of(spec: &Value) -> PodSpec {
        of(spec).template.spec.expect("a pod")
    }

    #[test]
    fn the_deployment_of_the_sample() {
        insta::assert_yaml_snapshot!(deployment(&samples::seed(), &Config::default(), None));
    }

    #[test]
    fn the_deployment_of_the_tuned_sample() {
        insta::assert_yaml_snapshot!(deployment(&samples::tuned(), &Config::default(), None));
    }

    #[test]
    fn empty_spec_is_one_pod_with_the_template_of_the_sample() {
        let (empty, seed) = (of(&json!({})), of(&json!({"size": 3})));
        assert_eq!(empty.replicas, Some(1));
        assert_eq!(empty.template, seed.template);
    }

    #[test]
    fn pod_template_ignores_fields_outside_the_pod() {
        let template = of(&json!({})).template;
        for spec in [
            json!({"size": 0}),
            json!({"podDisruptionBudget": {"mode": "Always", "maxUnavailable": "50%"}}),
            json!({"networkPolicy": {"enabled": true}}),
            json!({"metrics": {"enabled": false, "port": 1234}}),
            json!({"service": {"type": "ClusterIP", "annotations": {"a": "b"}}}),
            json!({"rollout": {"maxSurge": 0, "maxUnavailable": 1, "minReadySeconds": 0}}),
        ] {
            assert_eq!(of(&spec).template, template, "{spec}");
        }
    }

    #[test]
    fn image_comes_from_the_spec_or_the_operator_default() {
        let image = |spec: &Value, registry: Option<&str>| {
            let config = Config { image_registry: registry.map(ToOwned::to_owned), ..Config::default() };
            let pod = deployment(&samples::with_spec(spec), &config, None).spec.and_then(|it| it.template.spec);
            pod.expect("a pod").containers[0].image.clone().expect("an image")
        };
        let own = json!({"image": "memcached:1.5"});
        assert_eq!(image(&json!({}), None), "docker.io/library/memcached:1.6");
        assert_eq!(image(&json!({}), Some("mirror:5000/")), "mirror:5000/docker.io/library/memcached:1.6");
        assert_eq!(image(&own, Some("mirror:5000")), "memcached:1.5");
        let config = Config {
            image: "registry.example.com/memcached:1".to_owned(),
            image_registry: Some("mirror:5000".to_owned()),
            ..Config::default()
        };
        assert_eq!(config.default_image(), "registry.example.com/memcached:1", "an administrator set this image");
    }

    #[test]
    fn pods_name_no_user_when_the_cluster_chooses_it() {
        let config = Config { fixed_user_ids: false, ..Config::default() };
        let spec = json!({"metrics": {"enabled": true}});
        let pod = deployment(&samples::with_spec(&spec), &config, None).spec.and_then(|it| it.template.spec);
        let containers = pod.expect("a pod").containers;
        assert_eq!(containers.len(), 2);
        for container in containers {
            let context = container.security_context.expect("a security context");
            assert_eq!((context.run_as_user, context.run_as_group), (None, None));
            assert_eq!(context.run_as_non_root, Some(true), "but never root");
        }
    }

    /// Otherwise the reason of a crash, such as a bad option, is only in the log.
    #[test]
    fn failed_program_leaves_the_end_of_its_log() {
        let containers = pod_of(&json!({"metrics": {"enabled": true}})).containers;
        let policies = containers.iter().map(|it| it.termination_message_policy.as_deref());
        assert_eq!(policies.collect::<Vec<_>>(), [Some("FallbackToLogsOnError"); 2]);
    }

    #[test]
    fn memory_follows_config_unless_resources_are_set() {
        let resources = |spec: &Value| serde_json::to_value(&pod_of(spec).containers[0].resources).expect("JSON");
        assert_eq!(
            resources(&json!({"config": {"memoryMB": 1764}})),
            json!({"requests": {"cpu": "50m", "memory": "1977Mi"}, "limits": {"memory": "1977Mi"}})
        );
        assert_eq!(
            resources(&json!({"resources": {"requests": {"cpu": 2}, "limits": {}}})),
            json!({"requests": {"cpu": "2"}})
        );
        assert_eq!(resources(&json!({"resources": {}})), Value::Null);
    }

    #[test]
    fn topology_spread_selects_own_pods_by_default() {
        let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        let (mut ours, mut theirs) = (constraint.clone(), constraint.clone());
        theirs["labelSelector"] = json!({"matchLabels": {"a": "b"}});
        let given = json!({"topologySpreadConstraints": [constraint, theirs]});
        ours["labelSelector"] = json!({"matchLabels": {
            "app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": "memcached-sample",
        }});
        let spread = serde_json::to_value(pod_of(&given).topology_spread_constraints).expect("JSON");
        assert_eq!(spread, json!([ours, theirs]));
    }

    #[test]
    fn secrets_are_mounted_by_key_and_their_hash_is_enforced() {
        let spec = json!({
            "tls": {"secretName": "certs", "clientAuth": "Request"}, "auth": {"secretName": "users"},
            "podAnnotations": {secrets::HASH: "theirs"},
        });
        let deployment = deployment(&samples::with_spec(&spec), &Config::default(), Some("ours"));
        let template = serde_json::to_value(deployment.spec.expect("a spec").template).expect("JSON");
        assert_eq!(template["metadata"]["annotations"], json!({secrets::HASH: "ours"}));
        let item = |key: &str| json!({"key": key, "path": key});
        assert_eq!(
            template["spec"]["volumes"],
            json!([
                {"name": "tls", "secret": {
                    "secretName": "certs", "items": [item("tls.crt"), item("tls.key"), item("ca.crt")],
                }},
                {"name": "passwords", "secret": {"secretName": "users", "items": [item("password-file")]}},
            ])
        );
        assert_eq!(
            template["spec"]["containers"][0]["volumeMounts"],
            json!([
                {"name": "tls", "mountPath": "/etc/memcached/tls", "readOnly": true},
                {"name": "passwords", "mountPath": "/etc/memcached/passwords", "readOnly": true},
            ])
        );
    }

    #[test]
    fn generated_secrets_are_mounted_without_the_key_of_the_authority() {
        let spec = pod_of(&json!({"tls": {"generate": true}, "auth": {"generate": true}}));
        let item = |key: &str| json!({"key": key, "path": key});
        assert_eq!(
            serde_json::to_value(spec.volumes).expect("JSON"),
            json!([
                {"name": "tls", "secret": {"secretName": "memcached-sample-tls", "items": [item("tls.crt"), item("tls.key")]}},
                {"name": "passwords", "secret": {"secretName": "memcached-sample-auth", "items": [item("password-file")]}},
            ])
        );
        let args = spec.containers[0].args.clone().expect("arguments");
        assert!(args.contains(&"-Z".to_owned()) && args.contains(&"-Y".to_owned()), "{args:?}");
    }

    #[test]
    fn anti_affinity_follows_its_mode() {
        let affinity =
            |mode: &str| serde_json::to_value(pod_of(&json!({"antiAffinity": mode})).affinity).expect("JSON");
        let selector = json!({"matchLabels": {
            "app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": "memcached-sample",
        }});
        let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": selector});
        assert_eq!(
            affinity("Hard"),
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
        );
        assert_eq!(affinity("None"), Value::Null);
    }

    #[test]
    fn pod_labels_never_replace_operator_labels() {
        let labels = json!({"team": "a", "app.kubernetes.io/instance": "b", "app.kubernetes.io/component": "c"});
        let template = of(&json!({"podLabels": labels, "podAnnotations": {"d": "e"}})).template;
        let metadata = serde_json::to_value(template.metadata).expect("JSON");
        assert_eq!(
            metadata,
            json!({
                "annotations": {"d": "e"},
                "labels": {
                    "team": "a",
                    "app.kubernetes.io/name": "memcached",
                    "app.kubernetes.io/instance": "memcached-sample",
                    "app.kubernetes.io/managed-by": "memcached-operator",
                    "app.kubernetes.io/component": "cache",
                },
            })
        );
    }

    #[test]
    fn deployment_has_no_empty_fields() {
        fn empty(value: &Value) -> bool {
            match value {
                Value::Null => true,
                Value::Array(items) => items.is_empty() || items.iter().any(empty),
                Value::Object(fields) => fields.is_empty() || fields.values().any(empty),
                Value::String(text) => text.is_empty(),
                Value::Bool(_) | Value::Number(_) => false,
            }
        }
        let tolerations = json!([{"key": "a", "operator": "Exists", "value": "", "effect": ""}]);
        let secured = json!({"tls": {"secretName": "a"}, "auth": {"secretName": "b"}});
        let generated = json!({"tls": {"generate": true}, "auth": {"generate": true}});
        let bare = json!({"rollout": {"minReadySeconds": 0}, "resources": {}, "tolerations": tolerations});
        let measured = json!({"metrics": {"enabled": true, "resources": {}}});
        for spec in [json!({}), bare, secured, generated, measured] {
            let sent = serde_json::to_value(of(&spec)).expect("JSON");
            assert!(!empty(&sent), "{sent:#}");
            assert_ne!(sent["minReadySeconds"], json!(0));
        }
    }
}
