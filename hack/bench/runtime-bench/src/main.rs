//! Measures the built `controller-manager` on its own cluster, tests it under random faults (soak), or tests it with races.

use anyhow::Result;
use clap::{Parser, Subcommand};

mod kind;
mod kubelet;
mod measure;
mod operator;
mod provider;
mod races;
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
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match arguments.task {
        Some(Task::Soak(args)) => soak::run(&args),
        Some(Task::Races(args)) => races::run(&args),
        None => measure::run(arguments.measure),
    }
}
