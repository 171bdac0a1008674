//! `cargo xtask seeded-bugs`: puts known bugs into a copy of the checkout, one at a time, and checks that the random worlds of
//! `testing/simulation` find each of them. Each world that has failed is played again without the bug: if it fails then too, it has
//! found something else.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::checkout_copy::CheckoutCopy;
use crate::report::Outcome;
use crate::{sample, simulate, workspace};

/// The list of bugs.
const LIST: &str = "hack/seeded-bugs.yaml";
/// How many bugs the nightly run draws.
const NIGHTLY: u64 = 4;
/// The time within which worlds have to find a bug, in seconds.
const SECONDS: u64 = 120;
/// Time for running worlds to end after the time of the run is over.
const GRACE: Duration = Duration::from_mins(1);
/// What the table says of a world that fails with the bug and without it.
const FAILS_ANYWAY: &str = "fails without the bug too";
/// What the table says of an operator whose worlds have not found a bug.
const NOT_FOUND: &str = "not found";
/// Interval at which a running child process is polled.
const PAUSE: Duration = Duration::from_millis(200);

/// Put known bugs into a copy of the checkout, one at a time, and check that random worlds find each of them
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Try only these bugs, by their position in hack/seeded-bugs.yaml, from 1
    #[arg(long, value_name = "N", value_delimiter = ',')]
    only: Vec<usize>,
    /// Try only this many bugs, which the seed draws [default: all]
    #[arg(long, value_name = "N", conflicts_with = "only", value_parser = clap::value_parser!(u64).range(1..))]
    sample: Option<u64>,
    /// The seed of the sample; an earlier run has printed it [default: a fresh one]
    #[arg(long, value_name = "N", requires = "sample")]
    seed: Option<u64>,
    /// How long worlds look for each bug, in seconds; the operators of a bug share this time
    #[arg(long, value_name = "N", default_value_t = SECONDS, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

/// A change of the source code that introduces a bug.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bug {
    /// What goes wrong.
    name: String,
    kind: Kind,
    /// The operators whose worlds look for the bug, one after the other, until one finds it. They share the time. In the worlds
    /// of `controller-manager`, several operators run in each process.
    operators: Vec<String>,
    edits: Vec<Edit>,
}

/// Where a bug comes from.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// The project had this bug; the edits undo the fix.
    Mend,
    /// cargo-mutants made this bug, and the other tests did not find it.
    Mutant,
    /// The project never had this bug.
    Invented,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    file: String,
    /// The text to replace; it must occur exactly once in the file.
    old: String,
    new: String,
}

/// What the worlds of one operator have made of a bug.
#[derive(Debug)]
struct Search {
    operator: String,
    took: Duration,
    /// The line with seed and reason, if a world failed.
    found: Option<String>,
    /// Whether that world fails without the bug too.
    fails_anyway: bool,
}

/// A bug with its position in the list, and all searches for it.
type Row<'a> = (usize, &'a Bug, Vec<Search>);

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let bugs = bugs()?;
    let chosen = chosen(args, bugs.len())?;
    let missed = hunt(&bugs, &chosen, Duration::from_secs(args.seconds))?;
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Looks for a sample of the bugs.
pub(crate) fn nightly() -> Result<Outcome> {
    let args = Args { only: Vec::new(), sample: Some(NIGHTLY), seed: None, seconds: SECONDS };
    match run(&args)? {
        ExitCode::SUCCESS => Ok(Outcome::Passed),
        _ => bail!("worlds did not find a known bug in time; see above"),
    }
}

/// The positions of the bugs that the arguments select, from 1. `all` is the number of bugs.
fn chosen(args: &Args, all: usize) -> Result<Vec<usize>> {
    if let Some(unknown) = args.only.iter().find(|number| !(1..=all).contains(number)) {
        bail!("there is no bug {unknown}: {LIST} has {all} bugs");
    }
    let Some(count) = args.sample else {
        return Ok((1..=all).filter(|number| args.only.is_empty() || args.only.contains(number)).collect());
    };
    let seed = args.seed.unwrap_or_else(sample::fresh_seed);
    eprintln!("--sample {count} --seed {seed} draws the same bugs again");
    let drawn = sample::draw(seed, usize::try_from(count).unwrap_or(usize::MAX), all);
    Ok(drawn.into_iter().map(|position| position + 1).collect())
}

/// Puts each of the chosen bugs into the copy of the checkout, and lets worlds look for it. Prints a table, and returns the number
/// of bugs that no world found.
fn hunt(bugs: &[Bug], chosen: &[usize], time: Duration) -> Result<usize> {
    let copy = CheckoutCopy::new()?;
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (number, bug) in (1..).zip(bugs).filter(|(number, _)| chosen.contains(number)) {
        eprintln!("bug {number} of {}: {}", bugs.len(), bug.name);
        let searches = with(&copy, bug, || look_for(&copy, bug, time))?;
        for Search { operator, took, found, .. } in &searches {
            eprintln!("  {operator}, {:.1} s: {}", took.as_secs_f64(), found.as_deref().unwrap_or(NOT_FOUND));
        }
        rows.push((number, bug, searches));
    }
    play_without_bugs(&copy, &mut rows)?;
    let found = rows.iter().filter(|row| is_found(row)).count();
    writeln!(std::io::stdout(), "{}\n{found} of {} found", table(&rows), rows.len())?;
    Ok(rows.len() - found)
}

/// Plays each world that has failed once more, without its bug.
fn play_without_bugs(copy: &CheckoutCopy, rows: &mut [Row<'_>]) -> Result<()> {
    for (_, bug, searches) in rows {
        for search in searches {
            let Some(seed) = search.found.as_deref().and_then(seed_of) else { continue };
            let (package, test) = simulate::test_of(&search.operator);
            let mut world = copy.test_program(&package, "simulation")?;
            world.args([test, "--nocapture"]).env("RUST_BACKTRACE", "0");
            world.env("SIMULATE_SEED", seed).env("SIMULATE_SHRINK_SECONDS", "0");
            world.env_remove("SIMULATE_SECONDS").env_remove("SIMULATE_WORLDS"); // only this world
            let mut child = world.stderr(copy.log("without")?).stdout(Stdio::null()).spawn()?;
            search.fails_anyway = ended_by(&mut child, Instant::now() + Duration::from_secs(SECONDS))? != Some(true);
            if search.fails_anyway {
                let log = copy.log_path("without");
                eprintln!("{}: seed {seed} of {} {FAILS_ANYWAY}: see {}", bug.name, search.operator, log.display());
            }
        }
    }
    Ok(())
}

/// The seed in a line such as `seed 7 of toy: a child is missing`.
fn seed_of(found: &str) -> Option<&str> {
    found.strip_prefix("seed ")?.split(' ').next()
}

fn is_found((_, _, searches): &Row<'_>) -> bool {
    searches.iter().any(|search| search.found.is_some() && !search.fails_anyway)
}

/// One line for each bug and each operator whose worlds have looked for it.
fn table(rows: &[Row<'_>]) -> String {
    let operators = rows.iter().flat_map(|(_, _, searches)| searches).map(|search| search.operator.len());
    let operator = operators.max().unwrap_or_default().max("operator".len());
    let bug = rows.iter().map(|(_, bug, _)| bug.name.len()).max().unwrap_or_default().max("bug".len());
    let mut lines = format!("  n  {:8}  {:bug$}  {:operator$}  seconds  result\n", "kind", "bug", "operator");
    for row in rows {
        let (number, Bug { name, kind, .. }, searches) = row;
        for (index, search) in searches.iter().enumerate() {
            let kind = format!("{kind:?}").to_lowercase();
            // The last search counts for the bug as a whole.
            let is_missed = index + 1 == searches.len() && !is_found(row);
            let result = match &search.found {
                Some(found) if search.fails_anyway => format!("{}, {FAILS_ANYWAY}: {found}", NOT_FOUND.to_uppercase()),
                Some(found) => found.clone(),
                None if is_missed => NOT_FOUND.to_uppercase(),
                None => NOT_FOUND.to_owned(),
            };
            let (by, seconds) = (&search.operator, search.took.as_secs_f64());
            writeln!(lines, "{number:>3}  {kind:8}  {name:bug$}  {by:operator$}  {seconds:>7.1}  {result}").ok();
        }
    }
    lines
}

fn bugs() -> Result<Vec<Bug>> {
    let path = workspace::root().join(LIST);
    let text = fs::read_to_string(&path).with_context(|| format!("could not read {LIST}"))?;
    serde_saphyr::from_str(&text).with_context(|| format!("{LIST} is not a list of bugs"))
}

/// Runs `act` while the copy has this bug.
fn with<T>(copy: &CheckoutCopy, bug: &Bug, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let result = bug.edits.iter().try_for_each(|edit| edit.seed(copy.folder())).and_then(|()| act());
    bug.edits.iter().try_for_each(|edit| copy.restore(&edit.file))?;
    result
}

/// Plays worlds until one finds the bug, or until the time is over.
fn look_for(copy: &CheckoutCopy, bug: &Bug, time: Duration) -> Result<Vec<Search>> {
    let limit = share(time, bug.operators.len());
    let mut searches = Vec::new();
    for operator in &bug.operators {
        let (package, test) = simulate::test_of(operator);
        let mut worlds = copy.test_program(&package, "simulation")?;
        worlds.args([test, "--nocapture"]).env("RUST_BACKTRACE", "0");
        worlds.env("SIMULATE_SECONDS", limit.as_secs().to_string()).env("SIMULATE_SHRINK_SECONDS", "0");
        let begun = Instant::now();
        let mut child = worlds.stderr(copy.log("worlds")?).stdout(Stdio::null()).spawn()?;
        let succeeded = ended_by(&mut child, begun + limit + GRACE)?;
        let mut found = None;
        if succeeded != Some(true) {
            let said = fs::read_to_string(copy.log_path("worlds"))?;
            found = said.lines().find(|line| line.starts_with("seed ")).map(str::to_owned);
            match succeeded {
                _ if found.is_some() => {}
                None => eprintln!("  {operator}: the worlds did not end in time"),
                Some(_) => {
                    bail!("worlds of {operator} failed without a seed: see {}", copy.log_path("worlds").display())
                }
            }
        }
        let is_over = found.is_some();
        searches.push(Search { operator: operator.clone(), took: begun.elapsed(), found, fails_anyway: false });
        if is_over {
            break;
        }
    }
    Ok(searches)
}

/// The part of the time for each of this many operators. Worlds take at least a second.
fn share(time: Duration, operators: usize) -> Duration {
    (time / u32::try_from(operators).unwrap_or(u32::MAX).max(1)).max(Duration::from_secs(1))
}

/// Waits for a child until this time. Returns whether it succeeded, or `None` after killing it.
fn ended_by(child: &mut Child, time: Instant) -> Result<Option<bool>> {
    while Instant::now() < time {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        sleep(PAUSE);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

impl Edit {
    /// Applies the edit to the file below this folder.
    fn seed(&self, root: &Path) -> Result<()> {
        let path = root.join(&self.file);
        let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", self.file))?;
        let count = text.matches(&self.old).count();
        if count != 1 {
            bail!("{} contains this text {count} times instead of once: {}", self.file, self.old);
        }
        Ok(fs::write(&path, text.replace(&self.old, &self.new))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_share_the_time_of_a_bug() {
        let shares = [1, 2, 500].map(|operators| share(Duration::from_mins(2), operators).as_secs());
        assert_eq!(shares, [120, 60, 1]);
    }

    fn args(only: &[usize], sample: Option<u64>) -> Args {
        Args { only: only.to_vec(), sample, seed: Some(7), seconds: SECONDS }
    }

    #[test]
    fn bugs_are_chosen_by_position_or_drawn_by_seed() {
        assert_eq!(chosen(&args(&[], None), 5).unwrap(), [1, 2, 3, 4, 5]);
        assert_eq!(chosen(&args(&[4, 2], None), 5).unwrap(), [2, 4]);
        assert!(chosen(&args(&[6], None), 5).is_err() && chosen(&args(&[0], None), 5).is_err());
        let drawn = chosen(&args(&[], Some(3)), 20).unwrap();
        assert_eq!(drawn, chosen(&args(&[], Some(3)), 20).unwrap());
        assert!(drawn.len() == 3 && drawn.iter().all(|number| (1..=20).contains(number)), "{drawn:?}");
        assert_eq!(chosen(&args(&[], Some(9)), 5).unwrap(), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn table_names_each_operator_that_looked_for_a_bug() {
        let bug = |name: &str, kind| Bug { name: name.to_owned(), kind, operators: Vec::new(), edits: Vec::new() };
        let search = |operator: &str, seconds, found: Option<&str>| Search {
            operator: operator.to_owned(),
            took: Duration::from_secs(seconds),
            found: found.map(str::to_owned),
            fails_anyway: found.is_some_and(|found| found.contains("anyway")),
        };
        let (one, two, three) =
            (bug("a drop is lost", Kind::Mend), bug("no key", Kind::Invented), bug("no event", Kind::Mutant));
        let rows = [
            (1, &one, vec![search("foo", 60, None), search("memcached", 12, Some("seed 7: lost"))]),
            (12, &two, vec![search("foo", 60, None), search("crontab", 60, None)]),
            (13, &three, vec![search("foo", 3, Some("seed 8: anyway"))]),
        ];
        let expected = "  n  kind      bug             operator   seconds  result\n  \
                          1  mend      a drop is lost  foo           60.0  not found\n  \
                          1  mend      a drop is lost  memcached     12.0  seed 7: lost\n \
                         12  invented  no key          foo           60.0  not found\n \
                         12  invented  no key          crontab       60.0  NOT FOUND\n \
                        13  mutant    no event        foo            3.0  NOT FOUND, fails without the bug too: seed 8: anyway\n";
        assert_eq!(table(&rows), expected);
        assert_eq!([0, 1, 2].map(|row| is_found(&rows[row])), [true, false, false]);
    }

    #[test]
    fn seed_of_a_failed_world_is_read_from_its_first_line() {
        assert_eq!(seed_of("seed 7 of foo+memcached: a child is missing"), Some("7"));
        assert_eq!(seed_of("the worlds did not end"), None);
    }

    /// Fails when a commit changes a source line that the list quotes: then the list must quote the new line.
    #[test]
    fn every_bug_can_be_seeded() {
        for bug in bugs().unwrap() {
            let folder = tempfile::tempdir().unwrap();
            for Edit { file, .. } in &bug.edits {
                let path = folder.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::copy(workspace::root().join(file), path).unwrap();
            }
            for edit in &bug.edits {
                edit.seed(folder.path()).unwrap_or_else(|error| panic!("{}: {error:#}", bug.name));
            }
            for operator in &bug.operators {
                assert!(simulate::choices().unwrap().contains(operator), "{}: {operator} has no worlds", bug.name);
            }
        }
    }
}
