//! `cargo xtask seeded-bugs`: puts known bugs into a copy of the checkout, one at a time, and checks that the random worlds of
//! `testing/simulation` find each of them.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::checkout_copy::CheckoutCopy;
use crate::report::seconds;
use crate::{simulate, workspace};

/// The list of bugs.
const LIST: &str = "hack/seeded-bugs.yaml";
/// Time for running worlds to end after the time of the run is over.
const GRACE: Duration = Duration::from_mins(1);
/// Interval at which a running child process is polled.
const PAUSE: Duration = Duration::from_millis(200);

/// Put known bugs into a copy of the checkout, one at a time, and check that random worlds find each of them
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Try only these bugs, by their position in hack/seeded-bugs.yaml, from 1
    #[arg(long, value_name = "N", value_delimiter = ',')]
    only: Vec<usize>,
    /// How long worlds look for each bug, in seconds; the operators of a bug share this time
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

/// A change of the source code that introduces a bug.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bug {
    /// What goes wrong.
    name: String,
    kind: Kind,
    /// The operators whose worlds look for the bug, one after the other, until one finds it. They share the time.
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

#[derive(Debug)]
enum Ending {
    /// The time until the failure, the operator whose world failed, and the line with seed and reason.
    Found(Duration, String, String),
    NotFound,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let bugs = bugs()?;
    if let Some(unknown) = args.only.iter().find(|number| !(1..=bugs.len()).contains(number)) {
        bail!("there is no bug {unknown}: {LIST} has {} bugs", bugs.len());
    }
    let copy = CheckoutCopy::new()?;
    let chosen: Vec<_> =
        (1..).zip(&bugs).filter(|(number, _)| args.only.is_empty() || args.only.contains(number)).collect();
    let mut rows = Vec::new();
    for (number, bug) in chosen {
        eprintln!("bug {number} of {}: {}", bugs.len(), bug.name);
        let ending = with(&copy, bug, || look_for(&copy, bug, Duration::from_secs(args.seconds)))?;
        let row = row(number, bug, &ending);
        eprintln!("  {row}");
        rows.push((matches!(ending, Ending::Found(..)), row));
    }
    let found = rows.iter().filter(|(is_found, _)| *is_found).count();
    let mut out = std::io::stdout();
    rows.iter().try_for_each(|(_, row)| writeln!(out, "{row}"))?;
    writeln!(out, "\n{found} of {} found", rows.len())?;
    Ok(if found == rows.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn bugs() -> Result<Vec<Bug>> {
    let path = workspace::root().join(LIST);
    let text = fs::read_to_string(&path).with_context(|| format!("could not read {LIST}"))?;
    serde_saphyr::from_str(&text).with_context(|| format!("{LIST} is not a list of bugs"))
}

fn row(number: usize, bug: &Bug, ending: &Ending) -> String {
    let what = format!("{number:>3}  {:8}  {}", format!("{:?}", bug.kind).to_lowercase(), bug.name);
    match ending {
        Ending::Found(time, operator, why) => format!("{what}: found after {} by {operator}: {why}", seconds(*time)),
        Ending::NotFound => format!("{what}: NOT FOUND by {}", bug.operators.join(", ")),
    }
}

/// Runs `act` while the copy has this bug.
fn with<T>(copy: &CheckoutCopy, bug: &Bug, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let result = bug.edits.iter().try_for_each(|edit| edit.seed(copy.folder())).and_then(|()| act());
    bug.edits.iter().try_for_each(|edit| copy.restore(&edit.file))?;
    result
}

/// Plays worlds until one finds the bug, or until the time is over.
fn look_for(copy: &CheckoutCopy, bug: &Bug, time: Duration) -> Result<Ending> {
    let limit = share(time, bug.operators.len());
    for operator in &bug.operators {
        let mut worlds = copy.test_program(&format!("{operator}-operator"), "simulation")?;
        worlds.args([simulate::TEST, "--nocapture"]).env("RUST_BACKTRACE", "0");
        worlds.env("SIMULATE_SECONDS", limit.as_secs().to_string()).env("SIMULATE_SHRINK_SECONDS", "0");
        let begun = Instant::now();
        let mut child = worlds.stderr(copy.log("worlds")?).stdout(Stdio::null()).spawn()?;
        let succeeded = ended_by(&mut child, begun + limit + GRACE)?;
        if succeeded != Some(true) {
            let said = fs::read_to_string(copy.log_path("worlds"))?;
            match said.lines().find(|line| line.starts_with("seed ")) {
                Some(why) => return Ok(Ending::Found(begun.elapsed(), operator.clone(), why.to_owned())),
                None if succeeded.is_none() => eprintln!("  {operator}: the worlds did not end in time"),
                None => bail!("worlds of {operator} failed without a seed: see {}", copy.log_path("worlds").display()),
            }
        }
    }
    Ok(Ending::NotFound)
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
                assert!(simulate::operators().unwrap().contains(operator), "{}: {operator} has no worlds", bug.name);
            }
        }
    }
}
