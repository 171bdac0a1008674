//! The tasks of the repository, one subcommand each.
//!
//! Each task is a module with `Args` and `run`, and has a line in [`Task`] and in `main`.
#![expect(clippy::print_stdout, reason = "what a task prints is its result")]

mod attack;
mod book;
mod cargo_tools;
mod chart;
mod checkout_copy;
mod cluster;
mod crates;
mod demo;
mod disk;
mod fuzz;
mod generate;
mod glob;
mod image;
mod mutants;
mod new_operator;
mod new_project;
mod nightly;
mod one_more_operator;
mod packages;
mod registry;
mod release;
mod report;
mod sample;
mod scaffold;
mod seeded_bugs;
mod simulate;
mod steps;
mod test;
mod tidy;
mod workflows;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

/// The tasks of this repository
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 120)]
struct Xtask {
    #[command(subcommand)]
    task: Task,
}

/// The command line, for documents that quote it.
fn command() -> clap::Command {
    <Xtask as clap::CommandFactory>::command()
}

#[derive(clap::Subcommand)]
enum Task {
    Attack(attack::Args),
    Book(book::Args),
    Chart(chart::Args),
    Cluster(cluster::Args),
    Demo(demo::Args),
    Fuzz(fuzz::Args),
    Generate(generate::Args),
    Image(image::Args),
    Mutants(mutants::Args),
    NewOperator(new_operator::Args),
    NewProject(new_project::Args),
    Nightly(nightly::Args),
    Release(release::Args),
    Reproduce(release::reproduce::Args),
    SeededBugs(seeded_bugs::Args),
    Simulate(simulate::Args),
    Test(test::Args),
    Tidy(tidy::Args),
}

fn main() -> ExitCode {
    let success = |()| ExitCode::SUCCESS;
    let result = match Xtask::parse().task {
        Task::Attack(args) => attack::run(&args),
        Task::Book(book::Args {}) => book::run(),
        Task::Chart(args) => chart::run(args).map(success),
        Task::Cluster(args) => cluster::run(args),
        Task::Demo(args) => demo::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Generate(args) => generate::run(&args),
        Task::Image(args) => image::run(args).map(success),
        Task::Mutants(args) => mutants::run(&args),
        Task::NewOperator(args) => new_operator::run(&args),
        Task::NewProject(args) => new_project::run(&args),
        Task::Nightly(args) => nightly::run(&args),
        Task::Release(args) => release::run(args).map(success),
        Task::Reproduce(args) => release::reproduce::run(args).map(success),
        Task::SeededBugs(args) => seeded_bugs::run(&args),
        Task::Simulate(args) => simulate::run(&args),
        Task::Test(args) => test::run(&args),
        Task::Tidy(tidy::Args {}) => tidy::run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}"); // one readable line, without a backtrace even if RUST_BACKTRACE is set
        ExitCode::FAILURE
    })
}
