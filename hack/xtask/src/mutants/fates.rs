//! The results of mutants: how cargo-mutants reports them, how a file stores them, and how they are scored.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter, Write as _};
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::Names;

/// The result of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// A test failed or timed out.
    Killed,
    /// All tests passed.
    Survived,
    /// It does not compile.
    Unviable,
}

/// The result of each mutant, by its stable name (see [`Names`]).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fates(BTreeMap<String, Fate>);

/// The results of a part of the mutants, such as those of one crate.
#[derive(Debug)]
pub(super) struct Part<'a> {
    name: &'a str,
    /// The number of its mutants, tried or not.
    all: usize,
    tried: Fates,
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
    Mutant(Named),
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
}

impl Fates {
    /// Reads the JSON of cargo-mutants. `names` are the stable names, by those of cargo-mutants.
    pub(super) fn read(outcomes: &str, names: &BTreeMap<String, String>) -> Result<Self> {
        let outcomes: Outcomes = serde_json::from_str(outcomes).context("could not parse cargo-mutants' outcomes")?;
        let mut fates = BTreeMap::new();
        for Tried { scenario, summary } in outcomes.outcomes {
            let Scenario::Mutant(Named { name }) = scenario else { continue };
            let fate = match &*summary {
                "CaughtMutant" | "Timeout" => Fate::Killed,
                "MissedMutant" => Fate::Survived,
                "Unviable" => Fate::Unviable,
                other => bail!("unknown outcome {other} of {name}"),
            };
            let stable = names.get(&name).with_context(|| format!("{name} is not in the list"))?;
            fates.insert(stable.clone(), fate);
        }
        Ok(Self(fates))
    }

    pub(super) fn get(&self, name: &str) -> Option<Fate> {
        self.0.get(name).copied()
    }

    /// Adds newer results. They replace those of the same mutants.
    pub(super) fn add(&mut self, newer: Self) {
        self.0.extend(newer.0);
    }

    /// The results that no further test can change.
    pub(super) fn settled(&self) -> Self {
        let settled = self.0.iter().filter(|(_, fate)| **fate != Fate::Survived);
        Self(settled.map(|(name, fate)| (name.clone(), *fate)).collect())
    }

    /// Keeps only the results of the mutants that still exist.
    pub(super) fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| exists(name));
    }

    pub(super) fn survivors(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, fate)| **fate == Fate::Survived).map(|(name, _)| name.as_str())
    }

    fn count(&self, fate: Fate) -> usize {
        self.0.values().filter(|it| **it == fate).count()
    }

    /// Returns the results of each part of the mutants, in the order of the parts' names. `part` names the part of a mutant.
    pub(super) fn by<'a>(&self, names: &'a Names, part: impl Fn(&'a str) -> &'a str) -> Vec<Part<'a>> {
        let mut parts = BTreeMap::<&str, (usize, Self)>::new();
        for name in names.stable.values() {
            let (all, tried) = parts.entry(part(name)).or_default();
            *all += 1;
            tried.0.extend(self.get(name).map(|fate| (name.clone(), fate)));
        }
        parts.into_iter().map(|(name, (all, tried))| Part { name, all, tried }).collect()
    }

    /// Returns the score in one line: the share of the mutants that was tried, and the share of those that compile that a test
    /// has killed. `all` is the number of mutants, tried or not.
    pub(super) fn score(&self, all: usize) -> String {
        let (killed, survived) = (self.count(Fate::Killed), self.count(Fate::Survived));
        let (tried, viable) = (self.0.len(), killed + survived);
        format!(
            "{tried} of {all} tried{}: {killed} of {viable} viable ones killed{}, {survived} survived, {} do not compile",
            percent(tried, all),
            percent(killed, viable),
            self.count(Fate::Unviable),
        )
    }
}

/// A share in parentheses, or nothing if there is no whole.
fn percent(part: usize, whole: usize) -> String {
    let share = (part * 1_000).checked_div(whole);
    share.map(|share| format!(" ({}.{} %)", share / 10, share % 10)).unwrap_or_default()
}

impl Part<'_> {
    pub(super) fn is_tried(&self) -> bool {
        !self.tried.0.is_empty()
    }
}

/// One line for each part, with its score.
pub(super) fn table(parts: &[Part<'_>]) -> String {
    let width = parts.iter().map(|part| part.name.len()).max().unwrap_or_default();
    parts.iter().fold(String::new(), |mut table, Part { name, all, tried }| {
        writeln!(table, "{name:width$}  {}", tried.score(*all)).ok();
        table
    })
}

/// The file of a mutant.
pub(super) fn file(name: &str) -> &str {
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
    use super::super::Mutant;
    use super::*;

    fn names() -> Names {
        let mutant = |name: &str, file: &str, package: &str| Mutant {
            name: name.to_owned(),
            file: file.to_owned(),
            package: package.to_owned(),
        };
        Names::of(&[
            mutant("a.rs:1:2: replace a::b -> c", "a.rs", "one"),
            mutant("a.rs:7:9: replace a::b -> c", "a.rs", "one"),
            mutant("b.rs:1:1: drop", "b.rs", "one"),
            mutant("c.rs:1:1: drop", "c.rs", "two"),
        ])
    }

    fn outcomes() -> String {
        let outcome = |name: &str, summary: &str| serde_json::json!({"scenario": {"Mutant": {"name": name, "file": "f", "package": "p"}}, "summary": summary});
        let outcomes = serde_json::json!({"outcomes": [
            {"scenario": "Baseline", "summary": "Success"},
            outcome("a.rs:1:2: replace a::b -> c", "CaughtMutant"),
            outcome("a.rs:7:9: replace a::b -> c", "MissedMutant"),
            outcome("b.rs:1:1: drop", "Timeout"),
        ]});
        outcomes.to_string()
    }

    #[test]
    fn fates_are_scored_by_file_and_by_crate_and_round_trip_as_text() {
        let names = names();
        let fates = Fates::read(&outcomes(), &names.stable).unwrap();
        assert_eq!(fates.to_string().parse::<Fates>().unwrap(), fates);
        assert!(fates.survivors().eq(["a.rs: replace a::b -> c, number 2"]));
        let score = "3 of 4 tried (75.0 %): 2 of 3 viable ones killed (66.6 %), 1 survived, 0 do not compile";
        assert_eq!(fates.score(names.count()), score);
        let by_file = "a.rs  2 of 2 tried (100.0 %): 1 of 2 viable ones killed (50.0 %), 1 survived, 0 do not compile\n\
                       b.rs  1 of 1 tried (100.0 %): 1 of 1 viable ones killed (100.0 %), 0 survived, 0 do not compile\n\
                       c.rs  0 of 1 tried (0.0 %): 0 of 0 viable ones killed, 0 survived, 0 do not compile\n";
        assert_eq!(table(&fates.by(&names, file)), by_file);
        let mut crates = fates.by(&names, |name| names.package(name));
        crates.retain(Part::is_tried);
        let by_crate =
            "one  3 of 3 tried (100.0 %): 2 of 3 viable ones killed (66.6 %), 1 survived, 0 do not compile\n";
        assert_eq!(table(&crates), by_crate);
    }

    #[test]
    fn newer_results_replace_older_ones_and_those_of_removed_mutants_go() {
        let parse = |lines: &str| lines.parse::<Fates>().unwrap();
        let mut fates = parse("killed  a.rs: x\nsurvived  a.rs: y\nkilled  gone.rs: z\n");
        fates.add(parse("killed  a.rs: y\nunviable  b.rs: x\n"));
        fates.retain(|name| !name.starts_with("gone"));
        assert_eq!(fates.to_string(), "killed  a.rs: x\nkilled  a.rs: y\nunviable  b.rs: x\n");
        assert!("perhaps  a.rs: x".parse::<Fates>().is_err());
    }
}
