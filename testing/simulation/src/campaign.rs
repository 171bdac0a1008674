//! A campaign: worlds of consecutive seeds, played on all processors until the time is over or one fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use fastrand::Rng;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    disturbance::{Act, Phase},
    network::Effects,
    plan::{Judged, Plan, Played},
    shrink::shrink,
    subjects::Subjects,
    trace::Line,
};

/// Time between two progress lines.
const PROGRESS: Duration = Duration::from_secs(10);
/// Default of `SIMULATE_SHRINK_SECONDS`: how many seconds to look for the shortest list of disturbances that still fails.
const SHRINKING: u64 = 120;
/// The variable that makes a cell of the table without an effect a failure.
const EVERY_CELL: &str = "SIMULATE_EVERY_CELL";
/// While cells are empty, such a campaign plays on for up to this many times its time: how many worlds fit into a time depends on
/// the machine.
const LONGEST: u32 = 3;
/// Of this many worlds, at least one has an object at its end.
const SOME: u64 = 10;
/// Of this many objects at the end of worlds, at least one was ready while its world was still. Objects of some kinds are rarely ready,
/// because users and another system have to act first.
const MANY: u64 = 100;
/// How many lines of the trace a failure shows.
const SHOWN: usize = 60;

/// Fresh seeds are below this, so that they are short.
const SEEDS: u64 = 1_000_000_000;

/// How many worlds to play, and from which seed on.
#[derive(Debug, Clone, Copy)]
pub struct Campaign {
    /// The seed of the first world; the next ones follow by one. `None`: each operator has one of its own.
    pub seed: Option<u64>,
    /// Maximum number of worlds.
    pub worlds: u64,
    /// Maximum of real time. Worlds that have begun by then still end.
    pub time: Duration,
}

impl Campaign {
    /// Reads the campaign from the environment. `SIMULATE_SECONDS` sets the time; `SIMULATE_SEED` and `SIMULATE_WORLDS` choose
    /// the worlds, and a seed alone means one world. Without these variables, the campaign plays worlds for the `usual` time.
    /// Without `SIMULATE_SEED`, the seed follows from `SEED`, which repeats a run of all tests; without both, it is fresh.
    pub fn from_env(usual: Duration) -> Self {
        let (seed, worlds, seconds) = (number("SIMULATE_SEED"), number("SIMULATE_WORLDS"), number("SIMULATE_SECONDS"));
        let time = match (seconds, seed, worlds) {
            (Some(seconds), _, _) => Duration::from_secs(seconds),
            (None, None, None) => usual,
            (None, _, _) => Duration::MAX,
        };
        Self { seed, worlds: worlds.unwrap_or(if seed.is_some() && seconds.is_none() { 1 } else { u64::MAX }), time }
    }

    /// Plays worlds on all processors, and prints how often each disturbance had an effect. If `SIMULATE_WORLD` names a file, plays
    /// the world in that file instead.
    ///
    /// # Panics
    ///
    /// When a world fails. The message has the seed, the operators, the shortest list of disturbances that still fails, and the
    /// end of the trace. Also when no object was judged in many worlds, and when `SIMULATE_EVERY_CELL` is set and a disturbance had
    /// no effect.
    pub fn run(&self, subjects: impl Into<Subjects>) {
        let subjects = subjects.into();
        if let Some(file) = std::env::var_os("SIMULATE_WORLD") {
            return replay(subjects, Path::new(&file));
        }
        let name = subjects.name();
        let first = self.seed.unwrap_or_else(|| seed_of(&name, number("SEED")));
        eprintln!("{name}: worlds from seed {first}");
        let (begun, next, sum) = (Instant::now(), AtomicU64::new(0), Mutex::new(Sum::default()));
        let failure: Mutex<Option<(Plan, Played)>> = Mutex::new(None);
        let every_cell = std::env::var_os(EVERY_CELL).is_some();
        let goes_on = || {
            let elapsed = begun.elapsed();
            let is_incomplete = || every_cell && !missing(&sum.lock().effects, &subjects).is_empty();
            elapsed < self.time || (elapsed < self.time.saturating_mul(LONGEST) && is_incomplete())
        };
        let play = || {
            while goes_on() {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let failed = failure.lock().is_some();
                if number >= self.worlds || failed {
                    return;
                }
                let plan = Plan::of_some(first + number, subjects.clone());
                let played = plan.play(subjects.clone());
                sum.lock().add(&played, begun);
                if played.failure.is_some() {
                    failure.lock().get_or_insert((plan, played));
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(play);
            }
        });
        let sum = sum.into_inner();
        eprintln!("{name}: {}\n{name}: {}\n{}", sum.line(begun.elapsed()), sum.judges(), table(&sum, &subjects));
        if let Some((plan, played)) = failure.into_inner() {
            panic!("{}", explain(&plan, played, &subjects));
        }
        assert!(!sum.has_judged_nothing(), "{name}: {}", sum.judges());
        if every_cell {
            let missing = missing(&sum.effects, &subjects);
            assert!(missing.is_empty(), "{name}: these disturbances never had an effect: {}", missing.join(", "));
        }
    }
}

/// Plays the world of a file, or the worlds of all files in a folder.
///
/// # Panics
///
/// When a world fails, when a file is not a world, or when there is no file.
pub fn replay(subjects: impl Into<Subjects>, path: &Path) {
    let subjects = subjects.into();
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        let entries = std::fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        files = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().expect("a folder");
        files.sort();
        assert!(!files.is_empty(), "{} is empty", path.display());
    }
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let plan: Plan = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let played = plan.play(subjects.clone());
        assert!(played.failure.is_none(), "{}\n{}", file.display(), explain(&plan, played, &subjects));
    }
}

/// Returns the first seed of an operator's worlds. `all` is the seed of all tests, if there is one: operators get different worlds.
fn seed_of(operator: &str, all: Option<u64>) -> u64 {
    all.map_or_else(|| Rng::new().u64(..SEEDS), |all| xxh3_64_with_seed(operator.as_bytes(), all) % SEEDS)
}

/// Returns the number in this environment variable, if it has one.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Totals of all worlds.
#[derive(Debug, Default)]
struct Sum {
    worlds: u64,
    simulated: Duration,
    effects: Effects,
    /// In how many worlds each act had an effect.
    met: BTreeMap<Act, u64>,
    judged: Judged,
    shown: Duration,
}

impl Sum {
    fn add(&mut self, played: &Played, begun: Instant) {
        self.worlds += 1;
        self.simulated += played.simulated;
        self.judged.claims += played.judged.claims;
        self.judged.ends += played.judged.ends;
        for (what, count) in &played.effects {
            *self.effects.entry(*what).or_default() += count;
        }
        for act in played.effects.keys().map(|(act, _)| *act).collect::<BTreeSet<_>>() {
            *self.met.entry(act).or_default() += 1;
        }
        if begun.elapsed() > self.shown + PROGRESS {
            self.shown = begun.elapsed();
            eprintln!("{}", self.line(self.shown));
        }
    }

    /// Describes all worlds so far, after this time in reality.
    fn line(&self, real: Duration) -> String {
        let (hours, seconds) = (self.simulated.as_secs_f64() / 3600.0, real.as_secs_f64());
        let years = hours / 24.0 / 365.0 / (seconds / 3600.0);
        let disturbances = f64::from(u32::try_from(self.effects.values().sum::<u64>()).unwrap_or(u32::MAX));
        let a_minute = disturbances / (hours * 60.0);
        format!(
            "{} worlds, {hours:.1} simulated hours in {seconds:.1} s ({years:.2} simulated years per hour), {disturbances} \
             effects of disturbances ({a_minute:.1} per simulated minute)",
            self.worlds
        )
    }

    /// Describes how often objects were judged.
    fn judges(&self) -> String {
        let Judged { claims, ends } = self.judged;
        format!("objects were judged {claims} times because they were Ready, and {ends} times at the end of worlds")
    }

    /// Whether the judges have had nothing to judge in so many worlds that they must have had something. Then they cannot find
    /// mistakes.
    fn has_judged_nothing(&self) -> bool {
        let Judged { claims, ends } = self.judged;
        (self.worlds >= SOME && ends == 0) || (ends >= MANY && claims == 0)
    }

    /// Returns the share of worlds in which this act had an effect, in percent.
    fn share(&self, act: Act) -> u64 {
        let met = self.met.get(&act).copied().unwrap_or(0);
        (met * 100).checked_div(self.worlds).unwrap_or(0)
    }
}

/// Returns the disturbances, with their moments, that can have an effect on the operator and had none.
fn missing(effects: &Effects, subjects: &Subjects) -> Vec<String> {
    let concern = Act::ALL.into_iter().filter(|act| concerns(*act, subjects));
    let cells = concern.flat_map(|act| act.phases().iter().map(move |phase| (act, *phase)));
    cells.filter(|cell| !effects.contains_key(cell)).map(|(act, phase)| format!("{act:?} ({phase:?})")).collect()
}

/// Whether this act can have an effect on one of the operators.
fn concerns(act: Act, subjects: &Subjects) -> bool {
    subjects.all().any(|subject| act.concerns(subject))
}

/// Returns a table of disturbances: in which share of worlds each had an effect, and how often, by moment. The cell of an
/// impossible moment is empty.
fn table(sum: &Sum, subjects: &Subjects) -> String {
    let mut table = "| disturbance | worlds | any time | before handling | before the answer | before delivery |\n\
                     |---|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for act in Act::ALL.into_iter().filter(|act| concerns(*act, subjects)) {
        writeln!(table, "{}", row(sum, act)).ok();
    }
    table
}

fn row(sum: &Sum, act: Act) -> String {
    let counts = Phase::ALL.map(|phase| {
        let count = sum.effects.get(&(act, phase)).copied().unwrap_or(0);
        if act.phases().contains(&phase) { count.to_string() } else { String::new() }
    });
    format!("| {act:?} | {} % | {} |", sum.share(act), counts.join(" | "))
}

/// Describes a failure, with the shortest list of disturbances that repeats it.
fn explain(plan: &Plan, played: Played, subjects: &Subjects) -> String {
    let name = subjects.chosen(&plan.operators).name();
    eprintln!("{name}: seed {} fails; looking for the shortest list of disturbances that still fails", plan.seed);
    let first = played.failure.clone().unwrap_or_default();
    let (plan, played) =
        shrink(plan, played, subjects, Duration::from_secs(number("SIMULATE_SHRINK_SECONDS").unwrap_or(SHRINKING)));
    let failure = played.failure.unwrap_or_default();
    let from = played.trace.len().saturating_sub(SHOWN);
    let mut lines = text(&played.trace[from..], 400);
    save("SIMULATE_SAVE", &plan.to_lines(), "the shortest world", &mut lines);
    save("SIMULATE_TRACE", &text(&played.trace, usize::MAX), "the whole trace", &mut lines);
    format!(
        "seed {} of {name}: {first}\n\nWith these disturbances alone: {failure}\n\n{plan}\nThe end of the trace:\n{lines}\n\
         SIMULATE_SEED={} repeats it; SIMULATE_TRACE=FILE writes the whole trace, and SIMULATE_SAVE=FILE a world that \
         SIMULATE_WORLD=FILE plays again.",
        plan.seed, plan.seed
    )
}

/// Writes a text into the file that the environment variable names, and adds a line about it to `lines`.
fn save(variable: &str, text: &str, what: &str, lines: &mut String) {
    let Some(file) = std::env::var_os(variable) else { return };
    let file = Path::new(&file).display();
    match std::fs::write(file.to_string(), text) {
        Ok(()) => writeln!(lines, "{what} is in {file}").ok(),
        Err(error) => writeln!(lines, "{what} could not be written to {file}: {error}").ok(),
    };
}

/// Formats lines of a trace, each cut after `width` characters.
fn text(lines: &[Line], width: usize) -> String {
    lines.iter().fold(String::new(), |mut text, line| {
        let line = line.to_string();
        text.extend(line.chars().take(width));
        text.push('\n');
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::Books;

    #[test]
    fn explanation_has_the_seed_the_operator_and_the_shortest_list_of_disturbances() {
        static BOOKS: Books =
            Books { is_wrong: |object| !object["metadata"]["labels"]["team"].is_null(), claims_wrongly: |_| false };
        let plan = Plan::scripted(5, &[(10, Act::Annotate, 1), (20, Act::Label, 1), (30, Act::Annotate, 2)]);
        let text = explain(&plan, plan.play(&BOOKS), &Subjects::from(&BOOKS));
        for part in [
            "seed 5 of ledgers: object 0: the object is wrong\n",
            "With these disturbances alone: object 0: the object is wrong\n",
            "Label, object 0\n",
            "SIMULATE_SEED=5 repeats it",
        ] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
        assert!(!text.contains("Annotate"), "the failure does not need it: {text}");
    }

    /// The result of a world of six hours with these effects.
    fn played(effects: &[(Act, Phase, u64)]) -> Played {
        let effects = effects.iter().map(|(act, phase, count)| ((*act, *phase), *count)).collect();
        let judged = Judged { claims: 2, ends: 3 };
        Played { failure: None, trace: Vec::new(), effects, judged, simulated: Duration::from_hours(6) }
    }

    #[test]
    fn totals_tell_the_speed_and_how_often_worlds_were_disturbed() {
        let mut sum = Sum::default();
        let crashes = [(Act::Crash, Phase::AnyTime, 700), (Act::Crash, Phase::BeforeAnswer, 20)];
        for effects in [&crashes[..], &[(Act::Refusals, Phase::AnyTime, 1_440)], &[], &crashes[..1]] {
            sum.add(&played(effects), Instant::now());
        }
        assert_eq!(
            sum.line(Duration::from_secs(10)),
            "4 worlds, 24.0 simulated hours in 10.0 s (0.99 simulated years per hour), 2860 effects of disturbances \
             (2.0 per simulated minute)"
        );
        assert_eq!(row(&sum, Act::Crash), "| Crash | 50 % | 1400 | 0 | 20 | 0 |");
        assert_eq!(row(&sum, Act::Refusals), "| Refusals | 25 % | 1440 |  |  |  |");
        assert_eq!(row(&sum, Act::Stop), "| Stop | 0 % | 0 | 0 | 0 | 0 |");
    }

    #[test]
    fn worlds_in_which_no_object_is_judged_count_as_a_failure() {
        let mut sum = Sum::default();
        for _ in 0..SOME {
            assert!(!sum.has_judged_nothing(), "few worlds may have nothing to judge: {}", sum.worlds);
            sum.add(&Played { judged: Judged::default(), ..played(&[]) }, Instant::now());
        }
        assert!(sum.has_judged_nothing());
        let unclaimed = |ends| Played { judged: Judged { claims: 0, ends }, ..played(&[]) };
        sum.add(&unclaimed(3), Instant::now());
        assert!(!sum.has_judged_nothing(), "few objects may never be ready");
        sum.add(&unclaimed(MANY), Instant::now());
        assert!(sum.has_judged_nothing(), "no claim was judged");
        sum.add(&played(&[]), Instant::now());
        assert!(!sum.has_judged_nothing());
        assert_eq!(
            sum.judges(),
            "objects were judged 2 times because they were Ready, and 106 times at the end of worlds"
        );
    }

    #[test]
    fn seed_of_all_tests_determines_the_worlds_of_each_operator() {
        assert_eq!(seed_of("foo", Some(7)), seed_of("foo", Some(7)));
        assert_ne!(seed_of("foo", Some(7)), seed_of("foo", Some(8)));
        assert_ne!(seed_of("foo", Some(7)), seed_of("helloapp", Some(7)));
    }
}
