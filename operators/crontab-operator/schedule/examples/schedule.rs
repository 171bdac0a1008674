//! A binary with only the command line: `cargo run -p operators-schedule --example schedule -- next '0 9 * * mon-fri'`.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use schedule::command::{Command, run};

/// Test a cronSpec without a cluster.
#[derive(Parser)]
#[command(name = "schedule")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> io::Result<ExitCode> {
    let Arguments { command } = Arguments::parse();
    run(&command, jiff::Timestamp::now(), &mut io::stdout(), &mut io::stderr()).map(ExitCode::from)
}
