//! `cargo xtask seeded-bugs`: puts bugs into a copy of the checkout, one at a time, and checks that random worlds find them.

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
/// A world that is under way when the time is over may still end.
const GRACE: Duration = Duration::from_mins(1);
/// Between two looks at a child.
const PAUSE: Duration = Duration::from_millis(200);

/// Put known bugs into a copy of the checkout, one at a time, and check that random worlds find each of them
#[derive(clap::Args)]
pub(crate) struct Args {
    /// These bugs only, by their place in hack/seeded-bugs.yaml, from 1
    #[arg(long, value_name = "N", value_delimiter = ',')]
    only: Vec<usize>,
    /// For how long worlds of an operator are played, in seconds
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

/// A change of the source that makes it wrong.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bug {
    /// What goes wrong.
    name: String,
    kind: Kind,
    /// The operators whose worlds look for it, one after the other until one finds it.
    operators: Vec<String>,
    edits: Vec<Edit>,
}

/// Where a bug comes from.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// The project had it: this undoes the mend.
    Mend,
    /// cargo-mutants made it, and the other tests did not find it.
    Mutant,
    /// The project never had it.
    Invented,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    file: String,
    /// Occurs once in the file.
    old: String,
    new: String,
}

#[derive(Debug)]
enum Ending {
    /// After so long, in worlds of this operator; what they say.
    Found(Duration, String, String),
    NotFound,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let bugs = bugs()?;
    if let Some(unknown) = args.only.iter().find(|number| !(1..=bugs.len()).contains(number)) {
        bail!("there is no bug {unknown}: {LIST} has {}", bugs.len());
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

/// Does something while the copy has this bug.
fn with<T>(copy: &CheckoutCopy, bug: &Bug, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let result = bug.edits.iter().try_for_each(|edit| edit.seed(copy.folder())).and_then(|()| act());
    bug.edits.iter().try_for_each(|edit| copy.restore(&edit.file))?;
    result
}

/// Plays worlds until one finds the bug.
fn look_for(copy: &CheckoutCopy, bug: &Bug, limit: Duration) -> Result<Ending> {
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
                None if succeeded.is_none() => eprintln!("  {operator}: a world did not end in time"),
                None => bail!("worlds of {operator} failed without a seed: see {}", copy.log_path("worlds").display()),
            }
        }
    }
    Ok(Ending::NotFound)
}

/// Whether it succeeded; `None` if it had to be ended.
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
    /// Edits the file in this folder.
    fn seed(&self, root: &Path) -> Result<()> {
        let path = root.join(&self.file);
        let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", self.file))?;
        let count = text.matches(&self.old).count();
        if count != 1 {
            bail!("{} has this {count} times, and should have it once: {}", self.file, self.old);
        }
        Ok(fs::write(&path, text.replace(&self.old, &self.new))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when a commit changes a line that the list names: the list has to name the new line.
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
