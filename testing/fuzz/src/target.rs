//! Runs a check with the inputs that once failed, and then with random ones until the time is over.
#![expect(clippy::print_stderr, reason = "the seed of a failure is what its reader needs")]

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use fastrand::Rng;

/// How long the random inputs of a target take together if `FUZZ_SECONDS` is not set.
const TIME: Duration = Duration::from_secs(1);
/// How long one input may take, on a busy machine, too.
const LONGEST: Duration = Duration::from_secs(20);
/// How long a target may look for an input that is accepted and one that is refused, on a busy machine, too.
const PATIENCE: Duration = Duration::from_secs(20);

/// Something that gets random inputs.
#[derive(Debug)]
pub struct Target {
    name: &'static str,
    /// The inputs that once failed, one a file.
    corpus: PathBuf,
    /// For inputs that fail now.
    failures: PathBuf,
    /// How long to look for an input that is accepted and one that is refused.
    patience: Duration,
}

/// How many random inputs the program under test has accepted and refused.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    accepted: u64,
    refused: u64,
}

/// Which random inputs to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    /// The input of this seed.
    One(u64),
    /// Those from this seed on.
    Until { first: u64, time: Duration },
}

impl Target {
    /// A target in the package with this folder, which is `env!("CARGO_MANIFEST_DIR")`. Its corpus is the folder `fuzz/NAME` there.
    pub fn new(name: &'static str, package: &str) -> Self {
        let corpus = Path::new(package).join("fuzz").join(name);
        Self { name, corpus, failures: std::env::temp_dir().join("fuzz"), patience: PATIENCE }
    }

    /// Checks the corpus, and then random inputs. The check panics if the program under test is wrong, and returns whether the program
    /// has accepted the input, so that the code behind the reader of the input has run.
    ///
    /// # Panics
    ///
    /// If a check panics, or takes longer than 20 s; the message says how to repeat it. If the program under test accepts no random
    /// input, or refuses none.
    pub fn run(&self, generate: impl Fn(&mut Rng) -> Vec<u8>, mut check: impl FnMut(&[u8]) -> bool) {
        let plan = plan(|name| std::env::var(name).ok(), || fastrand::u64(..));
        if let Plan::Until { first, .. } = plan {
            for (file, input) in self.corpus() {
                self.once(&input, &mut check, &format!("the input {}", file.display()));
            }
            eprintln!("{}: random inputs from seed {first}", self.name);
        }
        let (mut seed, begun, mut counts) = (plan.first(), Instant::now(), Counts::default());
        while plan.goes_on(counts, begun.elapsed(), self.patience) {
            let input = generate(&mut Rng::with_seed(seed));
            let is_accepted = self.once(&input, &mut check, &format!("the input of FUZZ_SEED={seed}"));
            counts.accepted += u64::from(is_accepted);
            counts.refused += u64::from(!is_accepted);
            seed = seed.wrapping_add(1);
        }
        let (name, Counts { accepted, refused }) = (self.name, counts);
        eprintln!("{name}: {} random inputs, {accepted} of them accepted", accepted + refused);
        if matches!(plan, Plan::Until { .. }) {
            assert!(
                accepted > 0,
                "{name}: all {refused} random inputs were refused: its examples do not reach the code"
            );
            assert!(refused > 0, "{name}: all {accepted} random inputs were accepted: none is invalid");
        }
    }

    /// Returns whether the input was accepted.
    fn once(&self, input: &[u8], check: &mut impl FnMut(&[u8]) -> bool, what: &str) -> bool {
        let begun = Instant::now();
        let checked = catch_unwind(AssertUnwindSafe(|| check(input)));
        let why = match checked {
            Ok(is_accepted) if begun.elapsed() <= LONGEST => return is_accepted,
            Ok(_) => format!("took {:?}", begun.elapsed()),
            Err(_) => "failed, see above".to_owned(),
        };
        let kept = self.keep(input, what).map_or_else(|error| error.to_string(), |file| file.display().to_string());
        let text: String = String::from_utf8_lossy(input).chars().take(1000).collect();
        panic!(
            "{}: {what} {why}\nThe input: {text:?}\nIt is in {kept}. After the mend, keep it in {}",
            self.name,
            self.corpus.display()
        );
    }

    fn keep(&self, input: &[u8], what: &str) -> std::io::Result<PathBuf> {
        fs::create_dir_all(&self.failures)?;
        let number: String = what.chars().filter(char::is_ascii_digit).collect();
        let file = self.failures.join(format!("{}-{number}", self.name));
        fs::write(&file, input)?;
        Ok(file)
    }

    fn corpus(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = fs::read_dir(&self.corpus).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries.filter_map(|it| Some((it.path(), fs::read(it.path()).ok()?))).collect();
        files.sort();
        files
    }
}

/// The plan that the environment variables request.
fn plan(variable: impl Fn(&str) -> Option<String>, fresh: impl Fn() -> u64) -> Plan {
    let number = |name: &str| {
        let parse = |text: String| text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text:?} is not a number"));
        variable(name).map(parse)
    };
    match number("FUZZ_SEED") {
        Some(seed) => Plan::One(seed),
        None => Plan::Until { first: fresh(), time: number("FUZZ_SECONDS").map_or(TIME, Duration::from_secs) },
    }
}

impl Plan {
    fn first(self) -> u64 {
        let (Self::One(seed) | Self::Until { first: seed, .. }) = self;
        seed
    }

    /// At least one input is checked, however slow the machine is.
    fn goes_on(self, counts: Counts, elapsed: Duration, patience: Duration) -> bool {
        let Counts { accepted, refused } = counts;
        let is_first = accepted + refused == 0;
        match self {
            Self::One(_) => is_first,
            Self::Until { time, .. } => {
                let lacks_some = accepted == 0 || refused == 0;
                is_first || elapsed < time || (lacks_some && elapsed < patience)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(folder: &tempfile::TempDir) -> Target {
        let (corpus, failures) = (folder.path().join("corpus"), folder.path().join("failures"));
        Target { name: "test", corpus, failures, patience: Duration::ZERO }
    }

    #[test]
    fn variables_choose_the_plan() {
        let plan = |variables: &[(&str, &str)]| {
            let value = |name: &str| variables.iter().find(|it| it.0 == name).map(|it| it.1.to_owned());
            plan(value, || 9)
        };
        assert_eq!(plan(&[]), Plan::Until { first: 9, time: TIME });
        assert_eq!(plan(&[("FUZZ_SECONDS", "60")]), Plan::Until { first: 9, time: Duration::from_mins(1) });
        assert_eq!(plan(&[("FUZZ_SEED", "3"), ("FUZZ_SECONDS", "60")]), Plan::One(3));
    }

    #[test]
    fn an_input_that_fails_is_kept_and_named_by_its_seed() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = target(&folder);
        let generate = |random: &mut Rng| vec![random.u8(..)];
        let check = |input: &[u8]| {
            assert!(input[0] < 128);
            input[0] < 64
        };
        let bad = catch_unwind(AssertUnwindSafe(|| target.run(generate, check)));
        let message = *bad.expect_err("a byte of 128 or more").downcast::<String>().expect("a message");
        let seed = message.split_once("FUZZ_SEED=").and_then(|(_, rest)| rest.split_once(' ')).expect("a seed").0;
        let input = fs::read(target.failures.join(format!("test-{seed}"))).expect("a file");
        assert_eq!(input, generate(&mut Rng::with_seed(seed.parse().expect("a number"))));
        assert!(input[0] >= 128);
    }

    #[test]
    fn the_corpus_is_checked_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = target(&folder);
        fs::create_dir(&target.corpus).expect("a folder");
        fs::write(target.corpus.join("once-failed"), "x").expect("a file");
        let mut inputs = Vec::new();
        let check = |input: &[u8]| {
            inputs.push(input.to_vec());
            inputs.len().is_multiple_of(2)
        };
        target.run(|_| b"random".to_vec(), check);
        assert!(inputs.len() > 1);
        assert_eq!(inputs[0], b"x");
    }

    #[test]
    fn a_target_that_reaches_only_one_outcome_fails() {
        let folder = tempfile::tempdir().expect("a folder");
        for (always, says) in [(true, "inputs were accepted: none is invalid"), (false, "do not reach the code")] {
            let run = || target(&folder).run(|random| vec![random.u8(..)], |_| always);
            let message = *catch_unwind(run).expect_err("a panic").downcast::<String>().expect("a message");
            assert!(message.contains(says), "{message}");
        }
    }
}
