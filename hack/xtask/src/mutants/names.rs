//! The mutants, as cargo-mutants lists them, and their stable names.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::fates::file;

/// A mutant, as cargo-mutants prints it.
#[derive(Debug, Deserialize)]
pub(super) struct Mutant {
    /// Contains the line and the column.
    pub(super) name: String,
    /// The path, relative to the root of the checkout.
    pub(super) file: String,
    pub(super) package: String,
}

/// Stable names of mutants, which do not change when lines move.
#[derive(Debug)]
pub(super) struct Names {
    /// By the names of cargo-mutants, which have line and column.
    pub(super) stable: BTreeMap<String, String>,
    /// The packages, by file.
    packages: BTreeMap<String, String>,
}

impl Names {
    /// Names all mutants, in their order. A number distinguishes mutants with the same name.
    pub(super) fn of(all: &[Mutant]) -> Self {
        let mut counts = BTreeMap::<String, usize>::new();
        let mut stable = |mutant: &Mutant| {
            let what = mutant.name.splitn(4, ':').last().unwrap_or_default().trim();
            let name = format!("{}: {what}", mutant.file);
            let count = counts.entry(name.clone()).or_default();
            *count += 1;
            if *count == 1 { name } else { format!("{name}, number {count}") }
        };
        Self {
            stable: all.iter().map(|mutant| (mutant.name.clone(), stable(mutant))).collect(),
            packages: all.iter().map(|mutant| (mutant.file.clone(), mutant.package.clone())).collect(),
        }
    }

    pub(super) fn stable(&self, mutant: &Mutant) -> &str {
        &self.stable[&mutant.name]
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.stable.values().any(|known| known == name)
    }

    pub(super) fn count(&self) -> usize {
        self.stable.len()
    }

    /// The package of the mutant with this stable name.
    pub(super) fn package(&self, name: &str) -> &str {
        self.packages.get(file(name)).map_or("", String::as_str)
    }
}

#[cfg(test)]
impl Mutant {
    /// A mutant of this name, whose file is a package, too.
    pub(super) fn named(name: &str) -> Self {
        let file = name.split(':').next().unwrap_or_default().to_owned();
        Self { name: name.to_owned(), package: file.clone(), file }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutant_names_ignore_line_numbers() {
        let mutants = ["a.rs:3:2: replace a::b -> c", "a.rs:8:9: replace a::b -> c", "b.rs:1:1: drop"];
        let moved = Names::of(&mutants.map(Mutant::named));
        assert!(moved.stable.values().eq([
            "a.rs: replace a::b -> c",
            "a.rs: replace a::b -> c, number 2",
            "b.rs: drop"
        ]));
        assert!(moved.contains("b.rs: drop") && !moved.contains("b.rs:1:1: drop"));
    }
}
