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

/// Something that gets random inputs.
#[derive(Debug)]
pub struct Target {
    name: &'static str,
    /// The inputs that once failed, one a file.
    corpus: PathBuf,
    /// For inputs that fail now.
    failures: PathBuf,
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
        Self { name, corpus, failures: std::env::temp_dir().join("fuzz") }
    }

    /// Checks the corpus, and then random inputs. The check panics if the program under test is wrong.
    ///
    /// # Panics
    ///
    /// If a check panics, or takes longer than 20 s; the message says how to repeat it.
    pub fn run(&self, generate: impl Fn(&mut Rng) -> Vec<u8>, mut check: impl FnMut(&[u8])) {
        let plan = plan(|name| std::env::var(name).ok(), || fastrand::u64(..));
        if let Plan::Until { first, .. } = plan {
            for (file, input) in self.corpus() {
                self.once(&input, &mut check, &format!("the input {}", file.display()));
            }
            eprintln!("{}: random inputs from seed {first}", self.name);
        }
        let (mut seed, begun, mut inputs) = (plan.first(), Instant::now(), 0_u64);
        while plan.goes_on(inputs, begun.elapsed()) {
            let input = generate(&mut Rng::with_seed(seed));
            self.once(&input, &mut check, &format!("the input of FUZZ_SEED={seed}"));
            seed = seed.wrapping_add(1);
            inputs += 1;
        }
        eprintln!("{}: {inputs} random inputs", self.name);
    }

    fn once(&self, input: &[u8], check: &mut impl FnMut(&[u8]), what: &str) {
        let begun = Instant::now();
        let checked = catch_unwind(AssertUnwindSafe(|| check(input)));
        let why = match checked {
            Ok(()) if begun.elapsed() <= LONGEST => return,
            Ok(()) => format!("took {:?}", begun.elapsed()),
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
    fn goes_on(self, inputs: u64, elapsed: Duration) -> bool {
        match self {
            Self::One(_) => inputs == 0,
            Self::Until { time, .. } => inputs == 0 || elapsed < time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(folder: &tempfile::TempDir) -> Target {
        Target { name: "test", corpus: folder.path().join("corpus"), failures: folder.path().join("failures") }
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
        let bad = catch_unwind(AssertUnwindSafe(|| target.run(generate, |input| assert!(input[0] < 128))));
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
        target.run(|_| b"random".to_vec(), |input| inputs.push(input.to_vec()));
        assert!(inputs.len() > 1);
        assert_eq!(inputs[0], b"x");
    }
}
