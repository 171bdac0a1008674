//! Every task of the repository, one subcommand each.
//!
//! A task is a file of its own with `Args` and `run`, and a line in [`Task`] and in `main`.
#![expect(clippy::print_stdout, reason = "what a task prints is its result")]

mod cluster;
mod image;

use std::process::ExitCode;

use clap::Parser;

/// Every task of the repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 120)]
struct Xtask {
    #[command(subcommand)]
    task: Task,
}

#[derive(clap::Subcommand)]
enum Task {
    Cluster(cluster::Args),
    Image(image::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    let success = |()| ExitCode::SUCCESS;
    match Xtask::parse().task {
        Task::Cluster(args) => cluster::run(args),
        Task::Image(args) => image::run(args).map(success),
    }
}
