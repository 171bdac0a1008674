//! `cargo xtask mutants`: makes mutants of the code with cargo-mutants, that is, changes the code in small ways, one at a time.
//! Unit and in-memory tests should fail with each mutant.
//!
//! `.cargo/mutants.toml` selects the code, and excludes the mutants that no test can detect. `hack/mutants.txt` stores the result
//! of each mutant. Each run also writes its own results to a file, so that those of several machines or nights can be merged.

mod choice;
mod fates;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::cargo_tools::{self, MUTANTS};
use crate::checkout_copy::CheckoutCopy;
use crate::report::Outcome;
use crate::workspace;
use choice::{Shard, choose};
use fates::{Fate, Fates, Part, file, table};
use names::{Mutant, Names};

/// The file with the last result of each mutant.
const KEPT: &str = "hack/mutants.txt";
/// The file with the results of the last run alone. It grows while the run goes on.
const TRIED: &str = "target/mutated/tried.txt";
/// The test programs that need no cluster, in addition to the unit tests. Random worlds and inputs are not among them: they may kill a
/// mutant in one run and not in the next.
const IN_MEMORY: [&str; 10] = [
    "crashing_release",
    "generated_secrets",
    "in_memory",
    "interference",
    "it",
    "paused",
    "restored",
    "rollback",
    "upstream",
    "waiting_pods",
];
/// The time-out of the in-memory tests of all packages. A mutant that runs into it counts as killed, so it is long.
const LIMIT: Duration = Duration::from_mins(10);
/// How often a run stores its results.
const PAUSE: Duration = Duration::from_secs(10);
/// The nights after which the nightly runs have tried every mutant: each runs one of this many shards.
const NIGHTS: u64 = 30;

/// Change the code in small ways, one at a time, and check that the unit and in-memory tests fail
#[derive(Default, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "one for each flag")]
pub(crate) struct Args {
    /// Try only mutants of these packages
    #[arg(long, value_name = "NAME")]
    package: Vec<String>,
    /// Try only mutants in files that match this pattern, such as 'shared/cache/src/store/**'
    #[arg(long, value_name = "GLOB")]
    file: Vec<String>,
    /// Try only mutants that survived the last time
    #[arg(long)]
    survivors: bool,
    /// Which part of the mutants to try, 0/N to N-1/N [default: a random one of 150; all with --package, --file or --survivors]
    #[arg(long, value_name = "K/N")]
    shard: Option<Shard>,
    /// The number that selects the random part; an earlier run has printed it [default: a fresh one]
    #[arg(long, value_name = "N", conflicts_with_all = ["package", "file", "survivors", "shard"])]
    seed: Option<u64>,
    /// Use only the tests of each mutant's own package, which is faster; --survivors then tries the rest
    #[arg(long)]
    own: bool,
    /// Try no mutant; print the stored results
    #[arg(long, conflicts_with_all = ["package", "file", "survivors", "shard", "seed", "own"])]
    known: bool,
    /// Try no mutant; add the results of other runs to hack/mutants.txt: their files target/mutated/tried.txt, the oldest first
    #[arg(
        long,
        value_name = "FILE",
        value_delimiter = ',',
        conflicts_with_all = ["package", "file", "survivors", "shard", "seed", "own", "known"],
    )]
    merge: Vec<PathBuf>,
    /// Store the results in hack/mutants.txt
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    cargo_tools::ensure(&[MUTANTS])?;
    let all = list()?;
    let names = Names::of(&all);
    let mut known = stored(&workspace::root().join(KEPT))?;
    let mut lost = 0;
    if !args.known && args.merge.is_empty() {
        let output = workspace::root().join(TRIED);
        if output.exists() {
            fs::remove_file(&output)?; // if this run breaks off, the results of an earlier one must not count as its results
        }
        let chosen = choose(args, &all, |mutant| known.get(names.stable(mutant)) == Some(Fate::Survived))?;
        let tried = attempt(&all, &names, chosen, args.own, &output)?;
        fs::write(&output, tried.to_string()).with_context(|| format!("could not write {TRIED}"))?;
        lost = report(&tried, &known, &names);
        known.add(tried);
    }
    for path in &args.merge {
        known.add(stored(path)?);
    }
    known.retain(|name| names.contains(name));
    let is_kept = args.keep || !args.merge.is_empty();
    if is_kept {
        fs::write(workspace::root().join(KEPT), known.to_string())?;
    }
    if args.known || is_kept {
        print!("{}", table(&known.by(&names, file)));
        println!();
        print!("{}", table(&known.by(&names, |name| names.package(name))));
        println!("{}", known.score(names.count()));
    }
    Ok(if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints what a run has found out. Returns how many mutants survived that were killed before.
fn report(tried: &Fates, known: &Fates, names: &Names) -> usize {
    let mut lost = 0;
    for name in tried.survivors() {
        let was_killed = known.get(name) == Some(Fate::Killed);
        lost += usize::from(was_killed);
        eprintln!("  survived{}: {name}", if was_killed { ", but was killed before" } else { "" });
    }
    let mut crates = tried.by(names, |name| names.package(name));
    crates.retain(Part::is_tried);
    print!("\n{}", table(&crates));
    println!("{}", tried.score(names.count()));
    lost
}

/// Tries the part of this night. Fails if a mutant survives that was killed before; other survivors are only printed.
pub(crate) fn nightly() -> Result<Outcome> {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() / (24 * 60 * 60));
    match run(&Args { shard: Some(Shard::of(days, NIGHTS)), ..Args::default() })? {
        ExitCode::SUCCESS => Ok(Outcome::Passed),
        _ => bail!("some mutants survive that were killed before; see above"),
    }
}

/// Reads stored results.
fn stored(path: &Path) -> Result<Fates> {
    let text = fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
    text.parse().with_context(|| format!("{} has no results of mutants", path.display()))
}

/// Lists all mutants.
fn list() -> Result<Vec<Mutant>> {
    let output = MUTANTS.command()?.args(["mutants", "--list", "--json"]).output()?;
    if !output.status.success() {
        bail!("cargo-mutants could not list the mutants: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Tries mutants against the unit tests of their package. Tries survivors against the in-memory tests of their package, and those
/// that survive again against the in-memory tests of all packages.
///
/// With `own`, leaves out the last step. `output` always has the results so far.
fn attempt(all: &[Mutant], names: &Names, chosen: Vec<&Mutant>, own: bool, output: &Path) -> Result<Fates> {
    let copy = CheckoutCopy::new()?;
    let step = |fates: &mut Fates, chosen: &[&Mutant], more: &[String]| -> Result<()> {
        let outcomes = tried(&copy, all, chosen, more, |outcomes| keep(output, fates, outcomes, names))?;
        fates.add(Fates::read(&outcomes, &names.stable)?);
        Ok(())
    };
    let mut fates = Fates::default();
    step(&mut fates, &chosen, &["--cargo-arg=--lib".to_owned()])?;
    let packages = with_tests_in_memory()?;
    for (package, tests) in &packages {
        let survivors: BTreeSet<&str> = fates.survivors().collect();
        let is_left = |it: &&&Mutant| it.package == *package && survivors.contains(names.stable(it));
        let left: Vec<&Mutant> = chosen.iter().filter(is_left).copied().collect();
        if !left.is_empty() {
            eprintln!("{} survived; trying them against the in-memory tests of {package}", left.len());
            step(&mut fates, &left, &selected(tests))?;
        }
    }
    let survivors: BTreeSet<&str> = fates.survivors().collect();
    let left: Vec<&Mutant> = chosen.into_iter().filter(|it| survivors.contains(names.stable(it))).collect();
    if !own && !left.is_empty() {
        eprintln!("{} survived; trying them against the in-memory tests of all packages", left.len());
        check_unchanged(&copy, &packages)?;
        let tests: Vec<String> = packages.values().flatten().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        let packages = packages.keys().map(|package| format!("--test-package={package}"));
        let limit = format!("--timeout={}", LIMIT.as_secs());
        let more = packages.chain(selected(&tests)).chain(["--baseline=skip".to_owned(), limit]).collect::<Vec<_>>();
        step(&mut fates, &left, &more)?;
    }
    Ok(fates)
}

/// Stores the results so far, so that a run that breaks off does not lose them: those of earlier steps, and what cargo-mutants has
/// written of this one. Survivors are not among them, because the tests of a later step may kill them.
fn keep(output: &Path, known: &Fates, outcomes: &str, names: &Names) -> Result<()> {
    let Ok(new) = Fates::read(outcomes, &names.stable) else { return Ok(()) }; // cargo-mutants is writing it
    let mut settled = known.settled();
    settled.add(new.settled());
    fs::write(output, settled.to_string()).with_context(|| format!("could not write {}", output.display()))
}

/// The arguments of cargo-mutants that select test programs.
fn selected(tests: &[String]) -> Vec<String> {
    tests.iter().map(|name| format!("--cargo-arg=--test={name}")).collect()
}

/// Checks that the in-memory tests pass without a mutant. cargo-mutants cannot do this itself: it would look for these tests in the
/// packages of the mutants.
fn check_unchanged(copy: &CheckoutCopy, packages: &BTreeMap<String, Vec<String>>) -> Result<()> {
    let mut tests = copy.cargo(workspace::cargo());
    tests.args(["test", "--quiet"]).args(IN_MEMORY.iter().flat_map(|name| ["--test", name]));
    tests.args(packages.keys().flat_map(|name| ["--package", name])).env("RUST_BACKTRACE", "0");
    workspace::run(&mut tests, "the in-memory tests fail without a mutant, see above")
}

/// Runs cargo-mutants on the chosen mutants, and returns its outcomes as JSON. Its own options for a selection cannot be
/// combined, so this writes a file which says that cargo-mutants has caught all other mutants before. `meanwhile` gets the outcomes
/// again and again while the run goes on.
fn tried(
    copy: &CheckoutCopy,
    all: &[Mutant],
    chosen: &[&Mutant],
    more: &[String],
    meanwhile: impl Fn(&str) -> Result<()>,
) -> Result<String> {
    let folder = copy.folder().with_file_name("mutants");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let output = folder.join("mutants.out");
    fs::create_dir_all(&output)?;
    let chosen: BTreeSet<&String> = chosen.iter().map(|mutant| &mutant.name).collect();
    let others = all.iter().map(|mutant| &mutant.name).filter(|name| !chosen.contains(name));
    fs::write(output.join("previously_caught.txt"), others.fold(String::new(), |text, name| text + name + "\n"))?;
    let mut mutants = copy.cargo(MUTANTS.command()?);
    mutants
        .args(["mutants", "--in-place", "--iterate", "--annotations", "none"])
        .arg("--output")
        .arg(&folder)
        .args(more);
    mutants.env_remove("CI").env("RUST_BACKTRACE", "0"); // as outside CI
    let outcomes = output.join("outcomes.json");
    let mut child = mutants.spawn().context("could not run cargo-mutants")?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(PAUSE);
        if let Ok(outcomes) = fs::read_to_string(&outcomes)
            && let Err(error) = meanwhile(&outcomes)
        {
            eprintln!("{error:#}");
        }
    };
    // 2: some mutants survived; 3: some tests timed out.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        bail!("cargo-mutants failed ({status}); see above");
    }
    fs::read_to_string(outcomes).context("cargo-mutants has written no outcomes")
}

/// Returns the in-memory test programs of each package that has any.
fn with_tests_in_memory() -> Result<BTreeMap<String, Vec<String>>> {
    let output = workspace::cargo().args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("could not read the metadata of cargo")?;
    let in_memory = |target: &Target| target.kind == ["test"] && IN_MEMORY.contains(&&*target.name);
    let tests = |package: Package| {
        let targets = package.targets.into_iter().filter(in_memory).map(|target| target.name).collect::<Vec<_>>();
        (package.name, targets)
    };
    Ok(metadata.packages.into_iter().map(tests).filter(|(_, tests)| !tests.is_empty()).collect())
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_that_breaks_off_has_stored_what_no_later_test_changes() {
        let names = Names::of(&["a.rs:1:1: x", "a.rs:2:1: y", "b.rs:1:1: x", "b.rs:2:1: y"].map(Mutant::named));
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("tried.txt");
        let known: Fates = "killed  a.rs: x\nsurvived  a.rs: y\nsurvived  b.rs: x\n".parse().unwrap();
        let outcome =
            |name: &str, summary: &str| serde_json::json!({"scenario": {"Mutant": {"name": name}}, "summary": summary});
        let outcomes = [outcome("a.rs:2:1: y", "CaughtMutant"), outcome("b.rs:2:1: y", "MissedMutant")];
        let outcomes = serde_json::json!({"outcomes": outcomes}).to_string();
        keep(&output, &known, &outcomes, &names).unwrap();
        let stored = || fs::read_to_string(&output).unwrap();
        assert_eq!(stored(), "killed  a.rs: x\nkilled  a.rs: y\n");
        keep(&output, &known, &outcomes[..20], &names).unwrap();
        assert_eq!(
            stored(),
            "killed  a.rs: x\nkilled  a.rs: y\n",
            "outcomes that are being written wait for the next time"
        );
    }

    #[test]
    fn packages_with_tests_in_memory_are_found() {
        let tests = with_tests_in_memory().unwrap();
        let of = |package: &str| tests[package].iter().map(String::as_str).collect::<BTreeSet<_>>();
        assert_eq!(of("operators-manager"), BTreeSet::from(["rollback", "upstream"]));
        assert_eq!(of("operators-schedule"), BTreeSet::from(["it"]));
        assert_eq!(of("helloapp-operator"), BTreeSet::from(["crashing_release", "interference", "waiting_pods"]));
    }

    /// The settings of nextest name the test programs that need no cluster although their packages use one.
    #[test]
    fn test_programs_that_need_no_cluster_are_used() {
        // Worlds and fuzzing draw what they do; `ui` needs the compiler, and `program` a built program.
        let left_out = ["fuzzing", "program", "simulation", "ui"];
        let settings = fs::read_to_string(workspace::root().join(".config/nextest.toml")).unwrap();
        let listed = settings.split_once("not binary(/^(").and_then(|(_, rest)| rest.split_once(")$/)")).unwrap().0;
        for name in listed.split('|').filter(|name| !left_out.contains(name)) {
            assert!(IN_MEMORY.contains(&name), "{name} is not in IN_MEMORY");
        }
    }
}
