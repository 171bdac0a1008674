//! What an operator tells the runtime about itself.

use clap::{ArgMatches, Args, Command};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::{
    controller::Declared,
    rbac::{Rule, policy_rules},
    settings::Settings,
};

/// One operator: a name, its kinds, and the controllers that look after them.
///
/// Nothing here does I/O, so that the same declarations serve to run, to derive permissions, to generate the chart and
/// to test.
pub trait Operator: Send + Sync {
    /// The name in `--operators`, in lower case.
    fn name(&self) -> &'static str;

    /// The custom resource definitions of its kinds.
    fn crds(&self) -> Vec<CustomResourceDefinition>;

    /// Adds the operator's own flags to `run`; prefixed by its name, and all with defaults.
    fn args(&self, command: Command) -> Command {
        command
    }

    /// Adds its controllers.
    fn setup(&self, manager: &mut Manager);
}

/// Takes the controllers of the operators that were chosen.
pub struct Manager {
    pub(crate) controllers: Vec<Declared>,
    matches: ArgMatches,
    settings: Settings,
}

impl Manager {
    pub(crate) fn new(settings: Settings, matches: ArgMatches) -> Self {
        Self { controllers: Vec::new(), matches, settings }
    }

    /// Adds a controller.
    pub fn add(&mut self, controller: Declared) {
        self.controllers.push(controller);
    }

    /// The operator's own flags, as given or by default.
    ///
    /// # Panics
    ///
    /// When [`Operator::args`] does not add exactly this group.
    pub fn args<A: Args>(&self) -> A {
        A::from_arg_matches(&self.matches).unwrap_or_else(|error| panic!("Operator::args adds other flags: {error}"))
    }

    /// The flags that all operators share.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// What the election needs in the namespace of its lease, and nowhere else: a Role, never a `ClusterRole`, since nodes
/// keep their leases in the same kind.
pub fn leader_election_permissions(lease: &str) -> Vec<PolicyRule> {
    let leases = PolicyRule {
        api_groups: Some(vec!["coordination.k8s.io".to_owned()]),
        resources: Some(vec!["leases".to_owned()]),
        ..PolicyRule::default()
    };
    let verbs = |verbs: &[&str]| verbs.iter().map(|verb| (*verb).to_owned()).collect();
    vec![
        PolicyRule { verbs: verbs(&["create"]), ..leases.clone() }, // which has no name yet
        PolicyRule {
            verbs: verbs(&["get", "update", "watch"]),
            resource_names: Some(vec![lease.to_owned()]),
            ..leases
        },
    ]
}

/// The permissions that these operators need: what their controllers declare, and what the runtime does for them.
///
/// # Panics
///
/// When an operator's flags have no defaults.
pub fn permissions(operators: &[&dyn Operator]) -> Vec<PolicyRule> {
    let matches = crate::entry::flags(operators).no_binary_name(true).get_matches_from(Vec::<String>::new());
    let settings = <Settings as clap::FromArgMatches>::from_arg_matches(&matches)
        .unwrap_or_else(|error| panic!("the runtime's flags have defaults: {error}"));
    let mut manager = Manager::new(settings, matches);
    for operator in operators {
        operator.setup(&mut manager);
    }
    let declared = manager.controllers.into_iter().flat_map(|controller| controller.rules);
    policy_rules(declared.chain([Rule::events()]))
}
