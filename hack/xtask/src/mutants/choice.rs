//! Which mutants a run tries.

use std::str::FromStr;

use anyhow::{Result, bail};

use super::{Args, Mutant};
use crate::{glob, sample};

/// A sample is one of this many shards.
const SAMPLES: u64 = 150;

/// Every `of`-th mutant, from position `number` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shard {
    number: usize,
    of: usize,
}

/// Returns the mutants that the arguments select.
///
/// # Errors
///
/// A pattern of `--file` matches the file of no mutant.
pub(super) fn choose<'a>(
    args: &Args,
    all: &'a [Mutant],
    has_survived: impl Fn(&Mutant) -> bool,
) -> Result<Vec<&'a Mutant>> {
    let is_in_package = |mutant: &&Mutant| args.package.is_empty() || args.package.contains(&mutant.package);
    let of_packages: Vec<&Mutant> = all.iter().filter(is_in_package).collect();
    for pattern in &args.file {
        if !of_packages.iter().any(|mutant| glob::matches(pattern, &mutant.file)) {
            let these = if args.package.is_empty() { "" } else { " of these packages" };
            bail!(
                "no file with mutants{these} matches --file {pattern}; patterns are relative to the root of the checkout, and \
                 .cargo/mutants.toml lists the files that have mutants"
            );
        }
    }
    let is_in_file =
        |mutant: &Mutant| args.file.is_empty() || args.file.iter().any(|it| glob::matches(it, &mutant.file));
    let is_asked_for = |mutant: &&Mutant| is_in_file(mutant) && (!args.survivors || has_survived(mutant));
    let is_sample = args.package.is_empty() && args.file.is_empty() && !args.survivors;
    let shard = match args.shard {
        Some(shard) => {
            eprintln!("--shard {}/{} tries the same mutants again", shard.number, shard.of);
            shard
        }
        None if is_sample => {
            let seed = args.seed.unwrap_or_else(sample::fresh_seed);
            eprintln!("--seed {seed} tries the same mutants again");
            Shard::of(seed, SAMPLES)
        }
        None => Shard { number: 0, of: 1 },
    };
    Ok(of_packages.into_iter().filter(is_asked_for).skip(shard.number).step_by(shard.of).collect())
}

impl Shard {
    /// The shard that this number selects, of `of` shards. Numbers that follow each other select each shard once.
    pub(super) fn of(number: u64, of: u64) -> Self {
        let small = |number: u64| usize::try_from(number).unwrap_or_default();
        Self { number: small(number % of), of: small(of) }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::NIGHTS;
    use super::*;

    /// The names of the mutants that the arguments select. Those with a name that ends with `y` have survived.
    fn chosen(args: &Args, all: &[Mutant]) -> Vec<String> {
        let chosen = choose(args, all, |mutant| mutant.name.ends_with('y')).unwrap();
        chosen.into_iter().map(|mutant| mutant.name.clone()).collect()
    }

    fn thousand() -> Vec<Mutant> {
        (0..1_000).map(|number| Mutant::named(&format!("a.rs:{number}:1: x"))).collect()
    }

    fn four() -> Vec<Mutant> {
        ["a.rs:1:1: x", "a.rs:2:1: y", "b.rs:1:1: x", "b.rs:2:1: y"].map(Mutant::named).into()
    }

    #[test]
    fn every_mutant_is_tried_within_the_nights_of_a_month() {
        let all = thousand();
        let of_night =
            |night: u64| chosen(&Args { shard: Some(Shard::of(20_000 + night, NIGHTS)), ..Args::default() }, &all);
        let tried: Vec<String> = (0..NIGHTS).flat_map(of_night).collect();
        assert_eq!((tried.len(), tried.iter().collect::<BTreeSet<_>>().len()), (1_000, 1_000), "each one once");
    }

    #[test]
    fn seed_repeats_a_sample() {
        let all = thousand();
        let of_seed = |seed: u64| chosen(&Args { seed: Some(seed), ..Args::default() }, &all);
        assert_eq!(of_seed(7), of_seed(7));
        assert_ne!(of_seed(7), of_seed(8));
        assert!((6..=7).contains(&of_seed(7).len()), "a 150th");
    }

    #[test]
    fn mutants_are_chosen_by_shard_package_file_and_survival() {
        let all = four();
        let chosen = |args: &Args| chosen(args, &all);
        let shard = |text: &str| Some(text.parse().unwrap());
        let list = |text: &str| vec![text.to_owned()];
        let default = Args::default;
        assert_eq!(chosen(&Args { shard: shard("1/2"), ..default() }), ["a.rs:2:1: y", "b.rs:2:1: y"]);
        assert_eq!(chosen(&Args { package: list("b.rs"), ..default() }), ["b.rs:1:1: x", "b.rs:2:1: y"]);
        assert_eq!(chosen(&Args { file: list("b*"), ..default() }), ["b.rs:1:1: x", "b.rs:2:1: y"]);
        assert_eq!(chosen(&Args { survivors: true, ..default() }), ["a.rs:2:1: y", "b.rs:2:1: y"]);
        let second_of_a_file = Args { package: list("b.rs"), file: list("*.rs"), shard: shard("1/2"), ..default() };
        assert_eq!(chosen(&second_of_a_file), ["b.rs:2:1: y"]);
        assert!(chosen(&default()).len() <= 1);
        assert!("2/2".parse::<Shard>().is_err() && "x".parse::<Shard>().is_err());
    }

    #[test]
    fn pattern_that_selects_no_file_is_an_error_which_names_it() {
        let all = four();
        let error = |package: &[&str], file: &[&str]| {
            let [package, file] = [package, file].map(|list| list.iter().map(|it| (*it).to_owned()).collect());
            choose(&Args { package, file, ..Args::default() }, &all, |_| false).unwrap_err().to_string()
        };
        assert!(error(&[], &["a.rs", "c.rs"]).starts_with("no file with mutants matches --file c.rs; "));
        assert!(
            error(&["b.rs"], &["a.rs"]).starts_with("no file with mutants of these packages matches --file a.rs; ")
        );
    }
}
