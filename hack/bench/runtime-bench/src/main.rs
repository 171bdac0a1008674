//! Measures the built `controller-manager` on its own cluster, also with very many objects (scale), and what the API server can take
//! without it (limit). Compares it with its own history (regressions), tests it under random faults (soak), or tests it with races.

use anyhow::Result;
use clap::{Parser, Subcommand};

mod history;
mod kind;
mod kubelet;
mod limit;
mod machine;
mod measure;
mod operator;
mod percentile;
mod provider;
mod races;
mod regressions;
mod scale;
mod soak;
mod table;
mod world;

/// Measure the controller-manager on its own cluster.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    task: Option<Task>,
    #[command(flatten)]
    measure: measure::Args,
}

#[derive(Subcommand)]
enum Task {
    /// Run it under random faults, and check that its memory does not grow and that it loses nothing.
    Soak(soak::Args),
    /// Change objects just before it writes their status, and count the changes that it misses.
    Races(races::Args),
    /// Measure memory, CPU, start, hand-over and lists with up to 100,000 objects, and draw the history.
    Scale(scale::Args),
    /// Measure how many objects a second the API server can take: without an operator, with the same requests.
    Limit(limit::Args),
    /// Measure requests and allocations for an object, and fail if the last measurement of the history was better.
    Regressions(regressions::Args),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match arguments.task {
        Some(Task::Soak(args)) => soak::run(&args),
        Some(Task::Races(args)) => races::run(&args),
        Some(Task::Scale(args)) => scale::run(&args),
        Some(Task::Limit(args)) => limit::run(&args),
        Some(Task::Regressions(args)) => regressions::run(&args),
        None => measure::run(&arguments.measure),
    }
}
