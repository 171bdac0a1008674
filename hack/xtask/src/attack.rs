//! `cargo xtask attack`: attacks our own servers on loopback, and measures whether they withstand it.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, bail};

use crate::report::Outcome;
use crate::workspace;

/// The packages whose programs the image contains, and which serve clients.
const SHIPPED: &[&str] = &["controller-manager", "operators-metrics-proxy", "booking-server"];
/// Minutes of all rounds together, each night.
const NIGHTLY: u64 = 15;
/// The attacks on what addresses share by places. Each night they also come from as many addresses as hold all places, see
/// `serving::Places`: five hold 16 places, and seven hold 64.
const OF_PLACES: [&str; 3] = ["long-reviews", "made-up-tokens", "pipelined-tokens"];
const ADDRESSES: u8 = 8;
/// Minutes of these rounds together.
const MORE: u64 = 2;

/// Attack our own servers on loopback, without credentials, while an honest client measures their answers
///
/// Each round starts a server as a process of its own and attacks it. The table has the number of attempts that have reached it, the
/// peak of its memory beside the limit of the chart, how many honest requests were answered, how long half of them and 99 % of them
/// took, and how many probes of the kubelet were missed. A round fails if the server ends, needs more than 80 % of the limit, fails an
/// honest request, or misses three probes in a row, if the honest p99 exceeds a second, or if no attempt has reached the server. The
/// attackers use one processor at most. `cargo xtask test --only tools,tests --filter 'package(attack)'` runs a short round of each
/// attack, without judging the times.
#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// Seconds of each round [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// Minutes of all rounds together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1440), conflicts_with = "seconds")]
    minutes: Option<u64>,
    /// Addresses that the attackers have together; with 0, they have the address of the honest client [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=250))]
    addresses: Option<u8>,
    /// Attack the programs of the image, as a release build, rather than a debug build of their libraries
    #[arg(long)]
    shipped: bool,
    /// Attack the programs that the checkout in this folder has built for release, with the limits of its chart: those of an earlier
    /// commit, to compare
    #[arg(long, value_name = "FOLDER", conflicts_with = "shipped")]
    checkout: Option<PathBuf>,
    /// Run only the attack of this name, see --list; repeat the flag for several
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the attacks and their targets
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut attack = workspace::cargo();
    attack.args(["run", "--quiet", "--package", "attack"]);
    if args.shipped {
        let mut build = workspace::cargo();
        build.args(["build", "--release"]).args(SHIPPED.iter().flat_map(|name| ["--package", *name]));
        workspace::run(&mut build, "the programs do not build, see above")?;
    }
    if args.shipped || args.checkout.is_some() {
        attack.arg("--release");
    }
    attack.arg("--").args(flags(args)?);
    Ok(if attack.status()?.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Attacks the programs of the image for minutes.
pub(crate) fn nightly() -> Result<Outcome> {
    let all = run(&Args { minutes: Some(NIGHTLY), shipped: true, ..Args::default() })?;
    let from_many_addresses = run(&Args {
        minutes: Some(MORE),
        addresses: Some(ADDRESSES),
        only: OF_PLACES.map(str::to_owned).into(),
        shipped: true,
        ..Args::default()
    })?;
    match (all, from_many_addresses) {
        (ExitCode::SUCCESS, ExitCode::SUCCESS) => Ok(Outcome::Passed),
        _ => bail!("a round failed, see above"),
    }
}

/// The flags of the program `attack`.
fn flags(args: &Args) -> Result<Vec<String>> {
    let checkout = match &args.checkout {
        // The program may run in another folder.
        Some(folder) => Some(folder.canonicalize().with_context(|| format!("--checkout {}", folder.display()))?),
        None => args.shipped.then(|| workspace::root().to_owned()),
    };
    let mut flags: Vec<_> = [
        args.seconds.map(|seconds| format!("--seconds={seconds}")),
        args.minutes.map(|minutes| format!("--minutes={minutes}")),
        args.addresses.map(|addresses| format!("--addresses={addresses}")),
        checkout.map(|folder| format!("--checkout={}", folder.display())),
        args.list.then(|| "--list".to_owned()),
    ]
    .into_iter()
    .flatten()
    .collect();
    flags.extend(args.only.iter().map(|name| format!("--only={name}")));
    Ok(flags)
}
