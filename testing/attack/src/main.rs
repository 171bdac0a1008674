//! The command line: attacks each target for some seconds, prints the table, and fails if an attack wins or does nothing.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::{ffi::OsStr, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Result, ensure};
use attack::{ATTACKS, Outcome, Programs, Round, Target, divided};
use clap::{Parser, Subcommand};

/// Attack our own servers on loopback, without credentials, while an honest client measures their answers
///
/// Each round starts a server as a process of its own, attacks it, and prints how many attempts of the attackers have reached it, the
/// peak of its memory beside the limit of the chart, how many honest requests were answered, how long half of them and 99 % of them
/// took, and how many probes of the kubelet had no answer within a second. Below it are the reasons why the round fails: the attack
/// wins, as by the end of the server, or it did nothing.
#[derive(Parser)]
#[command(name = "attack", bin_name = "cargo xtask attack", max_term_width = 120)]
struct Args {
    /// Seconds of each round
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Minutes of all rounds together, in place of --seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: Option<u64>,
    /// Addresses that the attackers have together; with 0, they have the address of the honest client
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=250))]
    addresses: u8,
    /// Attack the programs of the image that the checkout in this folder has built for release, with the limits of its chart
    /// [default: their libraries, in this program]
    #[arg(long, value_name = "FOLDER")]
    checkout: Option<PathBuf>,
    /// Run only the attack of this name, see --list; repeat the flag for several
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the attacks and their targets
    #[arg(long)]
    list: bool,
    #[command(subcommand)]
    task: Option<Task>,
}

#[derive(Subcommand)]
enum Task {
    /// Serve a target until the process is killed, and print its addresses
    #[command(hide = true)]
    Serve {
        target: Target,
        /// For the files of the target
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    // A round starts this program also as the manager.
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new("run")) {
        return attack::manage();
    }
    let args = Args::parse();
    let ended = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Into::into);
    match ended.and_then(|runtime| runtime.block_on(run(args))) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<ExitCode> {
    if let Some(Task::Serve { target, folder }) = args.task {
        attack::serve(target, &folder).await?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.list {
        for attack in ATTACKS {
            let targets: Vec<_> = attack.targets.iter().map(|target| target.name()).collect();
            println!("{:<22} {} ({})", attack.name, attack.about, targets.join(", "));
        }
        return Ok(ExitCode::SUCCESS);
    }
    for name in &args.only {
        let names: Vec<_> = ATTACKS.iter().map(|attack| attack.name).collect();
        ensure!(names.contains(&name.as_str()), "there is no attack {name:?}; choose from {}", names.join(", "));
    }
    let chosen = ATTACKS.iter().filter(|attack| args.only.is_empty() || args.only.iter().any(|it| it == attack.name));
    let rounds: Vec<_> =
        chosen.flat_map(|attack| attack.targets.iter().map(move |target| (*attack, *target))).collect();
    let programs = match args.checkout {
        Some(folder) => Programs::Checkout(folder),
        None => Programs::Libraries(std::env::current_exe()?),
    };
    let each = match args.minutes {
        Some(minutes) => {
            let attacks: Vec<_> = rounds.iter().map(|(attack, _)| *attack).collect();
            divided(Duration::from_secs(minutes * 60), &attacks)
        }
        None => vec![Duration::from_secs(args.seconds); rounds.len()],
    };
    let together: Duration = each.iter().sum();
    println!("{} rounds, {} s together\n\n{}", rounds.len(), together.as_secs(), Outcome::HEAD);
    let mut failed = 0;
    for ((attack, target), lasts) in rounds.into_iter().zip(each) {
        let outcome = Round { attack, target, lasts, addresses: args.addresses, judges_times: true };
        let outcome = outcome.run(&programs).await?;
        println!("{}", outcome.row());
        let defeats = outcome.defeats();
        for why in &defeats {
            println!("    failed: {why}");
        }
        failed += usize::from(!defeats.is_empty());
    }
    println!("\n{failed} rounds failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
