//! Measures the built `controller-manager` on a cluster of its own, lets it soak under faults, or races it.

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

/// Measure the controller-manager on a cluster of its own.
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
    /// Let it work under random faults, and look whether it stays as small as it was and loses nothing.
    Soak(soak::Args),
    /// Change objects just before it writes their status, and count the changes that it does not act on.
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
