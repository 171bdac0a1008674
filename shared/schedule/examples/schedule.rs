//! The command line on its own: `cargo run -p schedule --example schedule -- next '0 9 * * mon-fri'`.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use schedule::command::{Command, run};

/// Look at a cronSpec before a cluster does.
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
