//! `cargo xtask mutants`: makes mutants of the code with cargo-mutants, that is, changes the code in small ways, one at a time.
//! Unit and in-memory tests should fail with each mutant.
//!
//! `.cargo/mutants.toml` selects the code, and excludes the mutants that no test can detect. `hack/mutants.txt` stores the result
//! of each mutant.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter, Write as _};
use std::fs;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::cargo_tools::{self, MUTANTS};
use crate::checkout_copy::CheckoutCopy;
use crate::report::Outcome;
use crate::workspace;

/// The file with the last result of each mutant.
const KEPT: &str = "hack/mutants.txt";
/// The test programs that need no cluster, in addition to the unit tests.
const IN_MEMORY: [&str; 3] = ["in_memory", "interference", "upstream"];
/// The time-out of the in-memory tests of all packages. Without a mutant they take less than two minutes.
const LIMIT: Duration = Duration::from_mins(6);
/// A sample is one of this many shards.
const SAMPLES: usize = 150;

/// Change the code in small ways, one at a time, and check that the unit and in-memory tests fail
#[derive(Default, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "one for each flag")]
pub(crate) struct Args {
    /// Try only mutants of these packages
    #[arg(long, value_name = "NAME")]
    package: Vec<String>,
    /// Try only mutants that survived the last time
    #[arg(long)]
    survivors: bool,
    /// Which part of the mutants to try, 0/N to N-1/N [default: a random one of 150; all with --package or --survivors]
    #[arg(long, value_name = "K/N")]
    shard: Option<Shard>,
    /// Use only the tests of each mutant's own package, which is faster; --survivors then tries the rest
    #[arg(long)]
    own: bool,
    /// Try no mutant; print the stored results
    #[arg(long, conflicts_with_all = ["package", "survivors", "shard", "own"])]
    known: bool,
    /// Store the results in hack/mutants.txt
    #[arg(long)]
    keep: bool,
}

/// Every `of`-th mutant, from position `number` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shard {
    number: usize,
    of: usize,
}

/// The result of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// A test failed or timed out.
    Killed,
    /// All tests passed.
    Survived,
    /// It does not compile.
    Unviable,
}

/// The result of each mutant, by its stable name (see [`Names`]).
#[derive(Debug, Default, PartialEq, Eq)]
struct Fates(BTreeMap<String, Fate>);

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    cargo_tools::ensure(&[MUTANTS])?;
    let all = list()?;
    let names = Names::of(&all);
    let text = fs::read_to_string(workspace::root().join(KEPT)).with_context(|| format!("could not read {KEPT}"))?;
    let mut known: Fates = text.parse()?;
    known.0.retain(|name, _| names.contains(name));
    let mut lost = 0;
    if !args.known {
        let chosen = choose(args, &all, |mutant| known.0.get(&names.0[&mutant.name]) == Some(&Fate::Survived));
        let tried = attempt(&all, &names, chosen, args.own)?;
        eprintln!("\n{}", tried.score(tried.0.len()));
        for name in tried.survivors() {
            let was_killed = known.0.get(name) == Some(&Fate::Killed);
            lost += usize::from(was_killed);
            eprintln!("  survived{}: {name}", if was_killed { ", but was killed before" } else { "" });
        }
        known.0.extend(tried.0);
        if args.keep {
            fs::write(workspace::root().join(KEPT), known.to_string())?;
        }
    }
    if args.known || args.keep {
        print!("{}", known.by_part(&names));
        println!("{}", known.score(names.0.len()));
    }
    Ok(if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tries one sample. Fails if a mutant survives that was killed before; other survivors are only printed.
pub(crate) fn sample() -> Result<Outcome> {
    match run(&Args::default())? {
        ExitCode::SUCCESS => Ok(Outcome::Passed),
        _ => bail!("some mutants survive that were killed before; see above"),
    }
}

/// Lists all mutants.
fn list() -> Result<Vec<Mutant>> {
    let output = MUTANTS.command()?.args(["mutants", "--list", "--json"]).output()?;
    if !output.status.success() {
        bail!("cargo-mutants could not list the mutants: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the mutants that the arguments select.
fn choose<'a>(args: &Args, all: &'a [Mutant], has_survived: impl Fn(&Mutant) -> bool) -> Vec<&'a Mutant> {
    let is_asked_for = |mutant: &&Mutant| {
        (args.package.is_empty() || args.package.contains(&mutant.package)) && (!args.survivors || has_survived(mutant))
    };
    let is_sample = args.package.is_empty() && !args.survivors;
    let shard = args.shard.unwrap_or_else(|| if is_sample { Shard::random() } else { Shard { number: 0, of: 1 } });
    eprintln!("--shard {}/{} tries the same mutants again", shard.number, shard.of);
    all.iter().filter(is_asked_for).skip(shard.number).step_by(shard.of).collect()
}

/// Tries mutants against the unit tests of their package. Tries survivors against the in-memory tests of their package, and those
/// that survive again against the in-memory tests of all packages.
///
/// With `own`, leaves out the last step.
fn attempt(all: &[Mutant], names: &Names, chosen: Vec<&Mutant>, own: bool) -> Result<Fates> {
    let copy = CheckoutCopy::new()?;
    let mut fates = Fates::read(&tried(&copy, all, &chosen, &["--cargo-arg=--lib".to_owned()])?, names)?;
    let packages = with_tests_in_memory()?;
    for (package, tests) in &packages {
        let survivors: BTreeSet<&String> = fates.survivors().collect();
        let is_left = |it: &&&Mutant| it.package == *package && survivors.contains(&names.0[&it.name]);
        let left: Vec<&Mutant> = chosen.iter().filter(is_left).copied().collect();
        if !left.is_empty() {
            eprintln!("{} survived; trying them against the in-memory tests of {package}", left.len());
            fates.0.extend(Fates::read(&tried(&copy, all, &left, &selected(tests))?, names)?.0);
        }
    }
    let survivors: BTreeSet<&String> = fates.survivors().collect();
    let left: Vec<&Mutant> = chosen.into_iter().filter(|it| survivors.contains(&names.0[&it.name])).collect();
    if !own && !left.is_empty() {
        eprintln!("{} survived; trying them against the in-memory tests of all packages", left.len());
        check_unchanged(&copy, &packages)?;
        let tests: Vec<String> = packages.values().flatten().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        let packages = packages.keys().map(|package| format!("--test-package={package}"));
        let limit = format!("--timeout={}", LIMIT.as_secs());
        let more = packages.chain(selected(&tests)).chain(["--baseline=skip".to_owned(), limit]).collect::<Vec<_>>();
        fates.0.extend(Fates::read(&tried(&copy, all, &left, &more)?, names)?.0);
    }
    Ok(fates)
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
/// combined, so this writes a file which says that cargo-mutants has caught all other mutants before.
fn tried(copy: &CheckoutCopy, all: &[Mutant], chosen: &[&Mutant], more: &[String]) -> Result<String> {
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
    let status = mutants.status().context("could not run cargo-mutants")?;
    // 2: some mutants survived; 3: some tests timed out.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        bail!("cargo-mutants failed ({status}); see above");
    }
    fs::read_to_string(output.join("outcomes.json")).context("cargo-mutants has written no outcomes")
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

impl Shard {
    fn random() -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
        Self { number: usize::try_from(time).unwrap_or_default() % SAMPLES, of: SAMPLES }
    }
}

impl FromStr for Shard {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, of) =
            text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?))).unwrap_or((0, 0));
        if number < of { Ok(Self { number, of }) } else { Err("expected K/N with K below N") }
    }
}

/// A mutant, as cargo-mutants prints it.
#[derive(Debug, Deserialize)]
struct Mutant {
    /// Contains the line and the column.
    name: String,
    file: String,
    package: String,
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

#[derive(Debug, Deserialize)]
struct Outcomes {
    outcomes: Vec<Tried>,
}

#[derive(Debug, Deserialize)]
struct Tried {
    scenario: Scenario,
    summary: String,
}

#[derive(Debug, Deserialize)]
enum Scenario {
    Baseline,
    Mutant(Mutant),
}

/// Stable names of mutants, which do not change when lines move, by the names of cargo-mutants, which have line and column.
#[derive(Debug)]
struct Names(BTreeMap<String, String>);

impl Names {
    /// Names all mutants, in their order. A number distinguishes mutants with the same name.
    fn of(all: &[Mutant]) -> Self {
        let mut counts = BTreeMap::<String, usize>::new();
        let mut stable = |mutant: &Mutant| {
            let what = mutant.name.splitn(4, ':').last().unwrap_or_default().trim();
            let name = format!("{}: {what}", mutant.file);
            let count = counts.entry(name.clone()).or_default();
            *count += 1;
            if *count == 1 { name } else { format!("{name}, number {count}") }
        };
        Self(all.iter().map(|mutant| (mutant.name.clone(), stable(mutant))).collect())
    }

    fn contains(&self, name: &str) -> bool {
        self.0.values().any(|known| known == name)
    }
}

impl Fates {
    /// Reads the JSON of cargo-mutants.
    fn read(outcomes: &str, names: &Names) -> Result<Self> {
        let outcomes: Outcomes = serde_json::from_str(outcomes).context("could not parse cargo-mutants' outcomes")?;
        let mut fates = BTreeMap::new();
        for Tried { scenario, summary } in outcomes.outcomes {
            let Scenario::Mutant(mutant) = scenario else { continue };
            let fate = match &*summary {
                "CaughtMutant" | "Timeout" => Fate::Killed,
                "MissedMutant" => Fate::Survived,
                "Unviable" => Fate::Unviable,
                other => bail!("unknown outcome {other} of {}", mutant.name),
            };
            let name = names.0.get(&mutant.name).with_context(|| format!("{} is not in the list", mutant.name))?;
            fates.insert(name.clone(), fate);
        }
        Ok(Self(fates))
    }

    fn survivors(&self) -> impl Iterator<Item = &String> {
        self.0.iter().filter(|(_, fate)| **fate == Fate::Survived).map(|(name, _)| name)
    }

    fn count(&self, fate: Fate) -> usize {
        self.0.values().filter(|it| **it == fate).count()
    }

    /// Returns a table with the score of each file.
    fn by_part(&self, names: &Names) -> String {
        let mut files = BTreeMap::<&str, (usize, Self)>::new();
        for name in names.0.values() {
            let (all, tried) = files.entry(file(name)).or_default();
            *all += 1;
            tried.0.extend(self.0.get(name).map(|fate| (name.clone(), *fate)));
        }
        let width = files.keys().map(|file| file.len()).max().unwrap_or_default();
        files.iter().fold(String::new(), |mut table, (file, (all, tried))| {
            writeln!(table, "{file:width$}  {}", tried.score(*all)).ok();
            table
        })
    }

    /// Returns the score in one line; `all` is the number of mutants, tried or not.
    fn score(&self, all: usize) -> String {
        let (killed, survived, unviable) =
            (self.count(Fate::Killed), self.count(Fate::Survived), self.count(Fate::Unviable));
        let share = (killed * 1_000).checked_div(killed + survived);
        let share = share.map(|share| format!(" ({}.{} %)", share / 10, share % 10)).unwrap_or_default();
        format!(
            "{} of {all} tried: {killed} killed{share}, {survived} survived, {unviable} do not compile",
            self.0.len()
        )
    }
}

/// The file of a mutant.
fn file(name: &str) -> &str {
    name.split_once(": ").map_or(name, |(file, _)| file)
}

impl Display for Fates {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, fate)| writeln!(f, "{}  {name}", fate.word()))
    }
}

impl FromStr for Fates {
    type Err = anyhow::Error;

    fn from_str(lines: &str) -> Result<Self> {
        let fate = |line: &str| {
            let (word, name) = line.split_once("  ")?;
            let fate = Fate::ALL.into_iter().find(|fate| fate.word() == word)?;
            Some((name.trim().to_owned(), fate))
        };
        let fates = lines.lines().map(|line| fate(line).with_context(|| format!("not the result of a mutant: {line}")));
        Ok(Self(fates.collect::<Result<_>>()?))
    }
}

impl Fate {
    const ALL: [Self; 3] = [Self::Killed, Self::Survived, Self::Unviable];

    fn word(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Survived => "survived",
            Self::Unviable => "unviable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(name: &str) -> Mutant {
        let file = name.split(':').next().unwrap_or_default().to_owned();
        Mutant { name: name.to_owned(), package: file.clone(), file }
    }

    fn all() -> Names {
        Names::of(&[
            mutant("a.rs:1:2: replace a::b -> c"),
            mutant("a.rs:7:9: replace a::b -> c"),
            mutant("b.rs:1:1: drop"),
        ])
    }

    #[test]
    fn mutant_names_ignore_line_numbers() {
        let moved = Names::of(&[mutant("a.rs:3:2: replace a::b -> c"), mutant("a.rs:8:9: replace a::b -> c")]);
        assert!(moved.0.values().eq(["a.rs: replace a::b -> c", "a.rs: replace a::b -> c, number 2"]));
        assert!(all().contains("b.rs: drop"));
    }

    #[test]
    fn fates_are_scored_and_round_trip_as_text() {
        let outcome = |name: &str, summary: &str| serde_json::json!({"scenario": {"Mutant": {"name": name, "file": "f", "package": "p"}}, "summary": summary});
        let outcomes = serde_json::json!({"outcomes": [
            {"scenario": "Baseline", "summary": "Success"},
            outcome("a.rs:1:2: replace a::b -> c", "CaughtMutant"),
            outcome("a.rs:7:9: replace a::b -> c", "MissedMutant"),
            outcome("b.rs:1:1: drop", "Timeout"),
        ]});
        let fates = Fates::read(&outcomes.to_string(), &all()).unwrap();
        assert_eq!(fates.to_string().parse::<Fates>().unwrap(), fates);
        assert!(fates.survivors().eq(["a.rs: replace a::b -> c, number 2"]));
        assert_eq!(fates.score(9), "3 of 9 tried: 2 killed (66.6 %), 1 survived, 0 do not compile");
        let table = "a.rs  2 of 2 tried: 1 killed (50.0 %), 1 survived, 0 do not compile\n\
                     b.rs  1 of 1 tried: 1 killed (100.0 %), 0 survived, 0 do not compile\n";
        assert_eq!(fates.by_part(&all()), table);
    }

    #[test]
    fn mutants_are_chosen_by_shard_package_and_survival() {
        let all: Vec<Mutant> = ["a.rs:1:1: x", "a.rs:2:1: y", "b.rs:1:1: x", "b.rs:2:1: y"].map(mutant).into();
        let chosen = |args: &Args| -> Vec<&str> {
            choose(args, &all, |mutant| mutant.name.ends_with('y')).iter().map(|mutant| &*mutant.name).collect()
        };
        let shard = |text: &str| Some(text.parse().unwrap());
        let default = Args::default;
        assert_eq!(chosen(&Args { shard: shard("1/2"), ..default() }), ["a.rs:2:1: y", "b.rs:2:1: y"]);
        assert_eq!(chosen(&Args { package: vec!["b.rs".to_owned()], ..default() }), ["b.rs:1:1: x", "b.rs:2:1: y"]);
        assert_eq!(chosen(&Args { survivors: true, ..default() }), ["a.rs:2:1: y", "b.rs:2:1: y"]);
        assert!(chosen(&default()).len() <= 1);
        assert!("2/2".parse::<Shard>().is_err() && "x".parse::<Shard>().is_err());
    }

    #[test]
    fn packages_with_tests_in_memory_are_found() {
        assert_eq!(with_tests_in_memory().unwrap()["operators-manager"], ["upstream"]);
    }
}
