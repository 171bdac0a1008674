//! Registers the operator with the runtime: CRD, webhook, subcommand and controller.

use std::{io, process::ExitCode};

use clap::{ArgMatches, FromArgMatches, Subcommand as _};
use jiff::Timestamp;
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::CustomResourceExt;
use manager::{Controller, Manager, Operator, Subcommand, Webhook};
use schedule::command::{self, Command};

use crate::{
    CronTab,
    controller::{self, Shared},
    metrics::{self, Runs},
    validation,
};

/// Concurrent reconciles. All objects are due at the start of a minute, and each reconcile then waits for two answers of the API
/// server.
const WORKERS: usize = 8;

/// The operator of [`CronTab`].
#[derive(Debug, Clone, Copy)]
pub struct CronTabOperator;

impl Operator for CronTabOperator {
    fn name(&self) -> &'static str {
        "crontab"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![CronTab::crd()]
    }

    fn webhooks(&self) -> Vec<Webhook> {
        vec![Webhook::validating(validation::review)]
    }

    fn commands(&self) -> Vec<Subcommand> {
        let command = Command::augment_subcommands(clap::Command::new("schedule"))
            .about("Test a cronSpec without a cluster: next, explain, check")
            .subcommand_required(true);
        vec![Subcommand { command, run: schedule }]
    }

    fn sample(&self) -> &'static str {
        include_str!("../samples/stable_v1_crontab.yaml")
    }

    fn setup(&self, manager: &mut Manager) {
        let security = manager.settings().security_policy();
        manager.add(
            Controller::of::<CronTab>()
                .workers(WORKERS)
                .config(Shared { security, runs: Runs::new(manager.metrics()) })
                .owns::<Job>()
                .watches_labelled::<Pod>()
                .on_scrape(metrics::gauges(manager.metrics()))
                .reconcile(controller::reconcile),
        );
    }
}

/// Runs `schedule …`.
fn schedule(matches: &ArgMatches) -> ExitCode {
    let command = match Command::from_arg_matches(matches) {
        Ok(command) => command,
        Err(error) => error.exit(),
    };
    match command::run(&command, Timestamp::now(), &mut io::stdout(), &mut io::stderr()) {
        Ok(code) => code.into(),
        Err(_) => ExitCode::FAILURE, // the reader of the output has closed it
    }
}
