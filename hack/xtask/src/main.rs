//! Every task of the repository, one subcommand each.
//!
//! A task is a file of its own with `Args` and `run`, and a line in [`Task`] and in `main`.
#![expect(clippy::print_stdout, reason = "what a task prints is its result")]

mod cargo_tools;
mod chart;
mod cluster;
mod demo;
mod generate;
mod image;
mod nightly;
mod packages;
mod report;
mod simulate;
mod steps;
mod test;
mod tidy;
mod workspace;

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
    Chart(chart::Args),
    Cluster(cluster::Args),
    Demo(demo::Args),
    Generate(generate::Args),
    Image(image::Args),
    Nightly(nightly::Args),
    Simulate(simulate::Args),
    Test(test::Args),
    Tidy(tidy::Args),
}

fn main() -> ExitCode {
    let success = |()| ExitCode::SUCCESS;
    let result = match Xtask::parse().task {
        Task::Chart(args) => chart::run(args).map(success),
        Task::Cluster(args) => cluster::run(args),
        Task::Demo(args) => demo::run(&args),
        Task::Generate(args) => generate::run(&args),
        Task::Image(args) => image::run(args).map(success),
        Task::Nightly(args) => nightly::run(&args),
        Task::Simulate(args) => simulate::run(&args),
        Task::Test(args) => test::run(&args),
        Task::Tidy(tidy::Args {}) => tidy::run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}"); // one sentence for people, whatever RUST_BACKTRACE says
        ExitCode::FAILURE
    })
}
