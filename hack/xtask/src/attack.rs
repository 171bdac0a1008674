//! `cargo xtask attack`: attacks our own servers on loopback, and measures whether they withstand it.

use std::process::ExitCode;

use anyhow::Result;

use crate::workspace;

/// Attack our own servers on loopback, without credentials, while an honest client measures their answers
///
/// Each round starts a server as a process of its own and attacks it. The table has the peak of its memory beside the limit of the
/// chart, how many honest requests were answered, how long half of them and 99 % of them took, and whether the server ended.
/// An attack wins if the server ends, needs more than 80 % of the limit, or fails an honest request, or if the honest p99 exceeds a
/// second. `cargo nextest run -p attack` runs a short round of each attack, without judging the times.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds of each round
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Run only the attack of this name, see --list; repeat the flag for several
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the attacks and their targets
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut attack = workspace::cargo();
    attack.args(["run", "--quiet", "--package", "attack", "--", "--seconds", &args.seconds.to_string()]);
    for name in &args.only {
        attack.args(["--only", name]);
    }
    if args.list {
        attack.arg("--list");
    }
    Ok(if attack.status()?.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
