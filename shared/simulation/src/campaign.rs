//! Many worlds, one after the other, for as long as there is time.

use std::{
    fmt::Write as _,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use fastrand::Rng;

use crate::{
    disturbance::{Act, Phase},
    network::Effects,
    plan::{Plan, Played},
    shrink::shrink,
    subject::Subject,
    trace::Line,
};

/// Between two lines that say how it goes.
const PROGRESS: Duration = Duration::from_secs(10);
/// How many seconds the shortest list of disturbances is looked for, unless `SIMULATE_SHRINK_SECONDS` says otherwise.
const SHRINKING: u64 = 120;
/// The value of `SIMULATE_TABLE` with which a cell without an effect is a failure.
const EVERY_CELL: &str = "every cell";
/// So much of the trace is shown before the failure.
const SHOWN: usize = 60;

/// How long, and from which seed on.
#[derive(Debug, Clone, Copy)]
pub struct Campaign {
    /// The seed of the first world; the next ones follow by one.
    pub seed: u64,
    /// How many worlds at most.
    pub worlds: u64,
    /// How long in real time at most.
    pub time: Duration,
}

impl Campaign {
    /// Worlds from a fresh seed for so long, unless the environment says otherwise: `SIMULATE_SECONDS`, for so long;
    /// `SIMULATE_SEED` and `SIMULATE_WORLDS`, of which a seed alone is one world.
    pub fn from_env(usual: Duration) -> Self {
        let (seed, worlds, seconds) = (number("SIMULATE_SEED"), number("SIMULATE_WORLDS"), number("SIMULATE_SECONDS"));
        let time = match (seconds, seed, worlds) {
            (Some(seconds), _, _) => Duration::from_secs(seconds),
            (None, None, None) => usual,
            (None, _, _) => Duration::MAX,
        };
        Self {
            seed: seed.unwrap_or_else(|| Rng::new().u64(..1_000_000_000)),
            worlds: worlds.unwrap_or(if seed.is_some() && seconds.is_none() { 1 } else { u64::MAX }),
            time,
        }
    }

    /// Plays worlds on all processors; if `SIMULATE_WORLD` names a file, the world in it instead.
    ///
    /// # Panics
    ///
    /// When a world fails, with its seed, the shortest list of disturbances that still fails, and the end of the trace.
    pub fn run(&self, subject: &'static dyn Subject) {
        if let Some(file) = std::env::var_os("SIMULATE_WORLD") {
            return replay(subject, Path::new(&file));
        }
        let name = subject.operator().name();
        eprintln!("{name}: worlds from seed {}", self.seed);
        let (begun, next, sum) = (Instant::now(), AtomicU64::new(0), Mutex::new(Sum::default()));
        let failure: Mutex<Option<(Plan, Played)>> = Mutex::new(None);
        let play = || {
            while begun.elapsed() < self.time {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let failed = failure.lock().unwrap_or_else(PoisonError::into_inner).is_some();
                if number >= self.worlds || failed {
                    return;
                }
                let plan = Plan::of(self.seed + number);
                let played = plan.play(subject);
                sum.lock().unwrap_or_else(PoisonError::into_inner).add(&played, begun);
                if played.failure.is_some() {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((plan, played));
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(play);
            }
        });
        let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
        eprintln!("{name}: {}", sum.line(begun));
        let shown = std::env::var("SIMULATE_TABLE").unwrap_or_default();
        if !shown.is_empty() {
            eprintln!("{}", table(&sum.effects, subject));
        }
        if let Some((plan, played)) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            panic!("{}", explain(&plan, played, subject));
        }
        if shown == EVERY_CELL {
            let missing = missing(&sum.effects, subject);
            assert!(missing.is_empty(), "{name}: no world had an effect of {}", missing.join(", "));
        }
    }
}

/// Plays the world of a file again, or those of all files in a folder.
///
/// # Panics
///
/// When a world fails, and when there is none.
pub fn replay(subject: &'static dyn Subject, path: &Path) {
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
        let played = plan.play(subject);
        assert!(played.failure.is_none(), "{}\n{}", file.display(), explain(&plan, played, subject));
    }
}

/// A number in the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What all worlds have come to.
#[derive(Debug, Default)]
struct Sum {
    worlds: u64,
    simulated: Duration,
    effects: Effects,
    shown: Duration,
}

impl Sum {
    fn add(&mut self, played: &Played, begun: Instant) {
        self.worlds += 1;
        self.simulated += played.simulated;
        for (what, count) in &played.effects {
            *self.effects.entry(*what).or_default() += count;
        }
        if begun.elapsed() > self.shown + PROGRESS {
            self.shown = begun.elapsed();
            eprintln!("{}", self.line(begun));
        }
    }

    fn line(&self, begun: Instant) -> String {
        let (hours, seconds) = (self.simulated.as_secs_f64() / 3600.0, begun.elapsed().as_secs_f64());
        let years = hours / 24.0 / 365.0 / (seconds / 3600.0);
        let disturbances: u64 = self.effects.values().sum();
        format!(
            "{} worlds, {hours:.1} simulated hours in {seconds:.1} s ({years:.2} years an hour), {disturbances} effects of disturbances",
            self.worlds
        )
    }
}

/// What can have an effect on the operator, and has had none.
fn missing(effects: &Effects, subject: &dyn Subject) -> Vec<String> {
    let concern = Act::ALL.into_iter().filter(|act| act.concerns(subject));
    let cells = concern.flat_map(|act| act.phases().iter().map(move |phase| (act, *phase)));
    cells.filter(|cell| !effects.contains_key(cell)).map(|(act, phase)| format!("{act:?} ({phase:?})")).collect()
}

/// Disturbance × moment: how often it had an effect; nothing where it cannot have one.
fn table(effects: &Effects, subject: &dyn Subject) -> String {
    let mut table = "| disturbance | any time | before handling | before the answer | before delivery |\n|---|---:|---:|---:|---:|\n".to_owned();
    for act in Act::ALL.into_iter().filter(|act| act.concerns(subject)) {
        let counts = Phase::ALL.map(|phase| {
            let count = effects.get(&(act, phase)).copied().unwrap_or(0);
            if act.phases().contains(&phase) { count.to_string() } else { String::new() }
        });
        writeln!(table, "| {act:?} | {} |", counts.join(" | ")).ok();
    }
    table
}

/// What failed, with the shortest way to see it again.
fn explain(plan: &Plan, played: Played, subject: &'static dyn Subject) -> String {
    let name = subject.operator().name();
    eprintln!("{name}: seed {} fails; looking for the shortest list of disturbances that does", plan.seed);
    let first = played.failure.clone().unwrap_or_default();
    let (plan, played) =
        shrink(plan, played, subject, Duration::from_secs(number("SIMULATE_SHRINK_SECONDS").unwrap_or(SHRINKING)));
    let failure = played.failure.unwrap_or_default();
    let from = played.trace.len().saturating_sub(SHOWN);
    let mut lines = text(&played.trace[from..], 400);
    save("SIMULATE_SAVE", &plan.to_lines(), "the shortest world", &mut lines);
    save("SIMULATE_TRACE", &text(&played.trace, usize::MAX), "the whole trace", &mut lines);
    format!(
        "seed {}: {first}\n\nWith these disturbances alone: {failure}\n\n{plan}\nThe end of the trace:\n{lines}\n\
         SIMULATE_SEED={} repeats it; SIMULATE_TRACE=FILE writes the whole trace, SIMULATE_SAVE=FILE a world to be played again.",
        plan.seed, plan.seed
    )
}

/// Writes a text into the file that a variable names, and adds a line that says so.
fn save(variable: &str, text: &str, what: &str, lines: &mut String) {
    let Some(file) = std::env::var_os(variable) else { return };
    let file = Path::new(&file).display();
    match std::fs::write(file.to_string(), text) {
        Ok(()) => writeln!(lines, "{what} is in {file}").ok(),
        Err(error) => writeln!(lines, "{what} could not be written to {file}: {error}").ok(),
    };
}

/// Lines of a trace, each cut after so many characters.
fn text(lines: &[Line], width: usize) -> String {
    lines.iter().fold(String::new(), |mut text, line| {
        let line = line.to_string();
        text.extend(line.chars().take(width));
        text.push('\n');
        text
    })
}
