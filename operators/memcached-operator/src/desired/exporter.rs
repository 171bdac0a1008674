//! The exporter container of a pod.

use k8s_openapi::{
    api::core::v1::{Container, ContainerPort, ResourceRequirements, SecurityContext},
    apimachinery::pkg::api::resource::Quantity,
};
use workloads::{ImagePullPolicy, SecurityProfile, normalize};

use crate::{
    api::{
        Memcached,
        v1::{ClientAuth, MemcachedSpec},
    },
    command_line::TLS_FOLDER,
    config::Config,
    secrets,
};

/// The name of the port, in the pod and in the Service.
pub(super) const PORT: &str = "metrics";

/// The id of the image's user. The image gives only its name, from which the kubelet cannot tell that it is not root.
const UNPRIVILEGED: i64 = 65534;

/// Returns the exporter; `None` if metrics are disabled.
pub(super) fn exporter(memcached: &Memcached, config: &Config) -> Option<Container> {
    let spec = &memcached.spec;
    let settings = spec.metrics()?;
    let quantity = |name: &str, amount: &str| (name.to_owned(), Quantity(amount.to_owned()));
    let small = ResourceRequirements {
        requests: Some([quantity("cpu", "10m"), quantity("memory", "16Mi")].into()),
        limits: Some([quantity("memory", "64Mi")].into()),
        claims: None,
    };
    let verifies_clients = client_auth(spec).is_some_and(|it| it != ClientAuth::None);
    Some(Container {
        name: "exporter".to_owned(),
        image: Some(settings.image.clone().unwrap_or_else(|| config.default_exporter_image())),
        image_pull_policy: spec.image_pull_policy.map(ImagePullPolicy::name),
        args: Some(args(spec, settings.port)),
        ports: Some(vec![ContainerPort {
            name: Some(PORT.to_owned()),
            container_port: settings.port,
            protocol: Some("TCP".to_owned()),
            ..Default::default()
        }]),
        resources: match &settings.resources {
            Some(resources) => normalize::resources(resources),
            None => Some(small),
        },
        volume_mounts: verifies_clients.then(|| {
            let mounts = secrets::mounts(memcached).into_iter();
            mounts.filter(|mount| mount.mount_path == TLS_FOLDER).collect()
        }),
        security_context: Some(SecurityContext {
            run_as_user: config.fixed(UNPRIVILEGED),
            run_as_group: config.fixed(UNPRIVILEGED),
            read_only_root_filesystem: Some(true),
            ..SecurityProfile::Restricted.container()
        }),
        termination_message_policy: Some(workloads::LAST_WORDS.to_owned()),
        ..Default::default()
    })
}

fn args(spec: &MemcachedSpec, port: i32) -> Vec<String> {
    let mut args =
        vec![format!("--memcached.address=127.0.0.1:{}", spec.port()), format!("--web.listen-address=:{port}")];
    let Some(client_auth) = client_auth(spec) else { return args };
    // The exporter connects to 127.0.0.1, but the certificate is for the pod's other names.
    args.extend(["--memcached.tls.enable", "--memcached.tls.insecure-skip-verify"].map(ToOwned::to_owned));
    if client_auth != ClientAuth::None {
        args.push(format!("--memcached.tls.cert-file={TLS_FOLDER}/tls.crt"));
        args.push(format!("--memcached.tls.key-file={TLS_FOLDER}/tls.key"));
    }
    args
}

/// `tls.clientAuth`, if there is TLS.
fn client_auth(spec: &MemcachedSpec) -> Option<ClientAuth> {
    spec.tls.as_ref().filter(|_| spec.has_tls()).map(|tls| tls.client_auth)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::samples;

    fn of(spec: &Value) -> Value {
        serde_json::to_value(exporter(&samples::with_spec(spec), &Config::default())).expect("JSON")
    }

    #[test]
    fn an_exporter_as_it_is_by_default() {
        assert_eq!(of(&json!({"metrics": {}})), Value::Null);
        insta::assert_yaml_snapshot!(of(&json!({"metrics": {"enabled": true}})));
    }

    #[test]
    fn exporter_uses_custom_settings() {
        let settings = json!({"enabled": true, "image": "mine:1", "port": 9999, "resources": {"limits": {"cpu": 1}}});
        let exporter = of(&json!({"port": 2000, "metrics": settings}));
        assert_eq!(exporter["image"], "mine:1");
        assert_eq!(exporter["args"], json!(["--memcached.address=127.0.0.1:2000", "--web.listen-address=:9999"]));
        assert_eq!(exporter["ports"][0]["containerPort"], 9999);
        assert_eq!(exporter["resources"], json!({"limits": {"cpu": "1"}}));
    }

    #[test]
    fn exporter_connects_with_tls() {
        let with = |client_auth: &str| {
            let tls = json!({"secretName": "a", "clientAuth": client_auth});
            of(&json!({"metrics": {"enabled": true}, "tls": tls, "auth": {"secretName": "b"}}))
        };
        let tls = json!(["--memcached.tls.enable", "--memcached.tls.insecure-skip-verify"]);
        let args = with("None")["args"].clone();
        assert_eq!(args.as_array().map(|it| &it[2..]), tls.as_array().map(Vec::as_slice));
        assert_eq!(with("None").get("volumeMounts"), None);
        let shown = with("Require");
        assert_eq!(shown["args"][5], "--memcached.tls.key-file=/etc/memcached/tls/tls.key");
        assert_eq!(
            shown["volumeMounts"],
            json!([{"name": "tls", "mountPath": "/etc/memcached/tls", "readOnly": true}])
        );
    }
}
