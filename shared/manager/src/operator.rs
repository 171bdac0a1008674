//! The [`Operator`] trait, by which an operator declares itself to the runtime, and the permissions that follow from it.

use std::{future::Future, pin::Pin, process::ExitCode};

use clap::{ArgMatches, Args, Command};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use webhooks::{Endpoint, Webhook, assert_paths_differ};

use crate::{
    controller::DeclaredController,
    metrics::{ChildMetrics, MetricRegistry},
    rbac::{Permission, policy_rules},
    settings::Settings,
    shared_certificate::SharedCertificate,
    shared_token::SharedToken,
};

/// One operator: a name, its kinds, and their controllers.
///
/// No method does I/O, so that the same declarations serve to run, to derive permissions, to generate the chart and to
/// test.
pub trait Operator: Send + Sync {
    /// Returns the name in `--operators`, in lower case.
    fn name(&self) -> &'static str;

    /// Returns the custom resource definitions of its kinds.
    fn crds(&self) -> Vec<CustomResourceDefinition>;

    /// Adds the operator's own flags to `run`. They are prefixed by its name, and all have defaults.
    fn args(&self, command: Command) -> Command {
        command
    }

    /// Returns its webhooks: validation, defaults and conversion of its kinds. For those that depend on flags, see
    /// [`Manager::serve`].
    fn webhooks(&self) -> Vec<Webhook> {
        Vec::new()
    }

    /// Returns its own subcommands, in addition to those of the runtime: for what users want to try without a cluster.
    fn commands(&self) -> Vec<Subcommand> {
        Vec::new()
    }

    /// Returns a manifest that becomes `Ready` on any cluster where the chart has installed the operator. `smoke-test` applies
    /// it.
    fn sample(&self) -> &'static str;

    /// Whether the sample becomes `Ready` only with the chart, because the chart installs a service that the operator needs.
    fn sample_needs_chart(&self) -> bool {
        false
    }

    /// Whether the operator is an example for authors of operators. The chart disables it by default.
    fn is_example(&self) -> bool {
        false
    }

    /// Returns the full names of images that its pods run, and that neither a flag nor the sample names. `images` prints them,
    /// for a mirror.
    fn images(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns flags with the path of the chart's value for each, such as `("booking-url", "provider.url")`. Without an entry,
    /// the value has the name of the flag in camel case, without the prefix of the operator's name.
    fn chart_values(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Adds its controllers.
    fn setup(&self, manager: &mut Manager);
}

/// An operator's own subcommand.
pub struct Subcommand {
    /// Name, arguments and help.
    pub command: Command,
    /// Called with the parsed arguments. Prints its own errors.
    pub run: fn(&ArgMatches) -> ExitCode,
}

/// Collects the controllers of the chosen operators, and what else they run.
pub struct Manager {
    pub(crate) controllers: Vec<(DeclaredController, ChildMetrics)>,
    pub(crate) background: Vec<Background>,
    pub(crate) webhooks: Vec<Webhook>,
    /// Webhooks of operators that do not run here.
    pub(crate) foreign_webhooks: Vec<Webhook>,
    pub(crate) tokens: Vec<SharedToken>,
    pub(crate) certificates: Vec<SharedCertificate>,
    metrics: MetricRegistry,
    matches: ArgMatches,
    settings: Settings,
}

/// A task that runs as long as the process, on a standby too.
pub(crate) struct Background {
    pub(crate) name: &'static str,
    pub(crate) start: Box<dyn FnOnce(CancellationToken) -> Task + Send>,
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Manager {
    pub(crate) fn new(settings: Settings, matches: ArgMatches) -> Self {
        Self {
            controllers: Vec::new(),
            background: Vec::new(),
            webhooks: Vec::new(),
            foreign_webhooks: Vec::new(),
            tokens: Vec::new(),
            certificates: Vec::new(),
            metrics: MetricRegistry::limited(settings.metrics_max_objects),
            matches,
            settings,
        }
    }

    /// Runs `task` beside the controllers, from the start of the process until its token is cancelled, on a standby too. A
    /// task that ends earlier ends the process with an error that names the task, so that its end cannot go unnoticed.
    pub fn run<F, T>(&mut self, name: &'static str, task: F)
    where
        F: FnOnce(CancellationToken) -> T + Send + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        self.background.push(Background { name, start: Box::new(move |stop| Box::pin(task(stop))) });
    }

    /// Returns a token that this process shares with another program. It is in the key `token` of a Secret in the manager's
    /// namespace. The manager creates the Secret at the start if it does not exist. The installation must permit `get` on that
    /// Secret by name, and `create` ([`shared_token_permissions`]).
    pub fn shared_token(&mut self, secret: &str) -> SharedToken {
        let token = SharedToken::new(secret.to_owned());
        self.tokens.push(token.clone());
        let made = token.clone();
        self.run("shared token", move |stop| async move {
            stop.run_until_cancelled(made.make_sure()).await;
            stop.cancelled().await;
        });
        token
    }

    /// Returns the certificate of another program, for servers with these DNS names or addresses. It is in the keys `tls.crt` and
    /// `tls.key` of a Secret in the manager's namespace, which that program mounts. The manager issues and renews it, from its
    /// start on, and overwrites what else is in these keys. The installation must permit `get` and `update` on that Secret by
    /// name, and `create` ([`shared_certificate_permissions`]).
    pub fn shared_certificate(&mut self, secret: &str, names: Vec<String>) -> SharedCertificate {
        let certificate = SharedCertificate::new(secret.to_owned(), names);
        self.certificates.push(certificate.clone());
        let kept = certificate.clone();
        self.run("shared certificate", move |stop| async move {
            stop.run_until_cancelled(kept.keep()).await;
            stop.cancelled().await;
        });
        certificate
    }

    /// Returns the registry to which an operator adds its own metrics.
    pub fn metrics(&self) -> &MetricRegistry {
        &self.metrics
    }

    /// Adds everything that `operator` declares.
    pub(crate) fn take(&mut self, operator: &dyn Operator) {
        operator.setup(self);
        self.webhooks.extend(operator.webhooks());
        assert_paths_differ(&self.webhooks);
    }

    /// Adds the webhooks of an operator that does not run here. During a rollout that enables the operator, the API server may still
    /// call a pod that knows it as disabled. Answers need no controller, so this pod can give them.
    pub(crate) fn answer_for(&mut self, operator: &dyn Operator) {
        self.foreign_webhooks.extend(operator.webhooks());
        let all: Vec<Webhook> = self.webhooks.iter().chain(&self.foreign_webhooks).cloned().collect();
        assert_paths_differ(&all);
    }

    /// Adds a controller.
    ///
    /// # Panics
    ///
    /// When there already is a controller of this name: both would share metrics, labels and field manager. The name is the
    /// kind in lower case, whatever its group.
    pub fn add(&mut self, controller: DeclaredController) {
        let name = &controller.names.app;
        assert!(
            self.controllers.iter().all(|(other, _)| other.names.app != *name),
            "there already is a controller named \"{name}\": names of controllers must be unique"
        );
        let children = ChildMetrics::new(&self.metrics, name, &controller.children);
        self.controllers.push((controller, children));
    }

    /// Adds a webhook that depends on flags; all others come from [`Operator::webhooks`].
    pub fn serve(&mut self, webhook: Webhook) {
        self.webhooks.push(webhook);
    }

    /// Returns the operator's own flags, as given or by default.
    ///
    /// # Panics
    ///
    /// When [`Operator::args`] does not add exactly this group.
    pub fn args<A: Args>(&self) -> A {
        A::from_arg_matches(&self.matches).unwrap_or_else(|error| panic!("Operator::args adds other flags: {error}"))
    }

    /// Returns the flags that all operators share.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// Returns the permissions that leader election needs in the namespace of its lease. They belong in a Role, never in a
/// `ClusterRole`, since nodes keep their leases in the same kind.
pub fn leader_election_permissions(lease: &str) -> Vec<PolicyRule> {
    let leases = PolicyRule {
        api_groups: Some(vec!["coordination.k8s.io".to_owned()]),
        resources: Some(vec!["leases".to_owned()]),
        ..PolicyRule::default()
    };
    let verbs = |verbs: &[&str]| verbs.iter().map(|verb| (*verb).to_owned()).collect();
    vec![
        PolicyRule { verbs: verbs(&["create"]), ..leases.clone() }, // RBAC cannot restrict a create by name
        PolicyRule {
            verbs: verbs(&["get", "update", "watch"]),
            resource_names: Some(vec![lease.to_owned()]),
            ..leases
        },
    ]
}

/// Returns the permissions that a [`Manager::shared_token`] in this Secret needs in the namespace of the manager.
pub fn shared_token_permissions(secret: &str) -> Vec<PolicyRule> {
    vec![secrets(None, &["create"]), secrets(Some(secret), &["get"])] // RBAC cannot restrict a create by name
}

/// Returns the permissions that a [`Manager::shared_certificate`] in this Secret needs in the namespace of the manager.
pub fn shared_certificate_permissions(secret: &str) -> Vec<PolicyRule> {
    vec![secrets(None, &["create"]), secrets(Some(secret), &["get", "update"])] // RBAC cannot restrict a create by name
}

/// A rule for Secrets, or for the one with this name.
fn secrets(name: Option<&str>, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["secrets".to_owned()]),
        resource_names: name.map(|name| vec![name.to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

/// Returns the permissions that `--metrics-secure` needs to let the API server authenticate and authorize each client. A
/// client needs `get` on the non-resource URL `/metrics`.
pub fn metrics_permissions() -> Vec<PolicyRule> {
    [("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")]
        .map(|(group, resource)| PolicyRule {
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            verbs: vec!["create".to_owned()],
            ..PolicyRule::default()
        })
        .into()
}

/// The permissions that serving webhooks needs, in addition to those of the operators.
#[derive(Debug, Clone, PartialEq)]
pub struct WebhookPermissions {
    /// In the whole cluster: configurations and definitions by name, into which the manager writes the `caBundle`.
    pub cluster: Vec<PolicyRule>,
    /// In the namespace of the manager: the Secret that the replicas share.
    pub namespaced: Vec<PolicyRule>,
}

/// Returns the permissions to serve the webhooks of these operators with the manager's own certificates, or `None` if the
/// operators have no webhooks. `configuration` and `secret` are the values of `--webhook-configuration` and
/// `--webhook-cert-secret`.
pub fn webhook_permissions(
    operators: &[&dyn Operator],
    configuration: &str,
    secret: &str,
) -> Option<WebhookPermissions> {
    let webhooks = declared(operators).webhooks;
    if webhooks.is_empty() {
        return None;
    }
    let named = |group: &str, resource: &str, names: Vec<String>, allowed: &[&str]| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: Some(names).filter(|names| !names.is_empty()),
        verbs: allowed.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    let mut cluster: Vec<PolicyRule> = webhooks::resources(&webhooks)
        .into_iter()
        .map(|resource| {
            named("admissionregistration.k8s.io", resource, vec![configuration.to_owned()], &["get", "patch"])
        })
        .collect();
    let definitions: Vec<String> = webhooks.iter().filter_map(Webhook::definition).collect();
    if !definitions.is_empty() {
        cluster.push(named("apiextensions.k8s.io", "customresourcedefinitions", definitions, &["get", "patch"]));
    }
    Some(WebhookPermissions { cluster, namespaced: shared_certificate_permissions(secret) })
}

/// Returns the webhooks of these operators when all flags have their defaults.
pub fn declared_webhooks(operators: &[&dyn Operator]) -> Vec<Webhook> {
    declared(operators).webhooks
}

/// Returns the webhook configurations of these operators, with the name `name`, as the API server reads them, but without the
/// `caBundle`, which `run` adds. The API server calls through the Service `namespace/service`.
pub fn webhook_configurations(operators: &[&dyn Operator], name: &str, namespace: &str, service: &str) -> Vec<Value> {
    let webhooks = declared(operators).webhooks;
    let endpoint = Endpoint::Service { namespace: namespace.to_owned(), name: service.to_owned() };
    webhooks::configurations(name, &webhooks, &endpoint)
}

/// Returns the permissions that these operators need: what their controllers declare, and what the runtime does for them.
///
/// # Panics
///
/// When an operator's flags have no defaults.
pub fn permissions(operators: &[&dyn Operator]) -> Vec<PolicyRule> {
    let rules = declared(operators).controllers.into_iter().flat_map(|(controller, _)| controller.rules);
    policy_rules(rules.chain([Permission::events()]))
}

/// Returns the command `run`, with the flags of the runtime and every operator's own.
pub(crate) fn run_command(operators: &[&dyn Operator]) -> Command {
    let run = Settings::augment_args(Command::new("run"));
    let run = operators.iter().fold(run, |command, operator| operator.args(command));
    run.about("Run the operators (the default)").long_about(None) // clears the one that a group of flags has set
}

/// Returns what these operators declare when all flags have their defaults.
pub(crate) fn declared(operators: &[&dyn Operator]) -> Manager {
    let matches = run_command(operators).no_binary_name(true).get_matches_from(Vec::<String>::new());
    let settings = <Settings as clap::FromArgMatches>::from_arg_matches(&matches)
        .unwrap_or_else(|error| panic!("the runtime's flags have defaults: {error}"));
    let mut manager = Manager::new(settings, matches);
    for operator in operators {
        manager.take(*operator);
    }
    manager
}
