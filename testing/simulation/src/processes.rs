//! Repeats a world in other processes. There, code and data have other addresses, hash maps have other seeds, and the environment
//! differs.

use std::{
    env,
    io::{self, Write as _},
    process::Command,
};

use xxhash_rust::xxh3::xxh3_64;

use crate::{campaign::number, plan::Plan, subjects::Subjects, world::assert_same};

/// Tells a process to write the trace of the world of this seed, and nothing else.
const TRACE_OF: &str = "SIMULATE_TRACE_OF";
/// Stands before and after the trace in the output of such a process.
const MARK: &str = "<<trace>>";
/// The environments of the processes.
const ENVIRONMENTS: [[(&str, &str); 4]; 2] = [
    [("TZ", "UTC"), ("LC_ALL", "C"), ("HOME", "/"), ("USER", "root")],
    [("TZ", "Asia/Kathmandu"), ("LC_ALL", "tr_TR.UTF-8"), ("HOME", "/nonexistent"), ("USER", "daemon")],
];

/// Plays the same world in two other processes with different environments, and compares their traces. `test` is the full name of
/// the test that calls this: each process runs that test alone. Prints the hash of the trace, which is the same on other machines.
///
/// # Panics
///
/// When the traces differ in any byte, or have 100 lines or fewer. Also when a process cannot run the test.
pub fn is_repeatable_in_other_processes(subjects: impl Into<Subjects>, test: &str) {
    if let Some(seed) = number(TRACE_OF) {
        return write_trace(seed, &subjects.into()).expect("the standard output takes the trace");
    }
    let seed = number("SIMULATE_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    let [one, other] = ENVIRONMENTS.map(|environment| trace_of(seed, test, environment));
    assert_same(seed, &one, &other);
    eprintln!("seed {seed}: the hash of the trace is {:016x}", xxh3_64(one.as_bytes()));
}

fn write_trace(seed: u64, subjects: &Subjects) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{MARK}")?;
    for line in Plan::of_some(seed, subjects.clone()).play(subjects.clone()).trace {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "{MARK}")
}

/// Returns the trace that another process writes in this environment.
fn trace_of(seed: u64, test: &str, environment: [(&str, &str); 4]) -> String {
    let mut process = Command::new(env::current_exe().expect("this program has a path"));
    process.args([test, "--exact", "--nocapture"]).envs(environment).env(TRACE_OF, seed.to_string());
    let output = process.output().expect("this program runs");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "seed {seed}: {}\n{errors}", output.status);
    let trace = said.split(MARK).nth(1);
    trace.unwrap_or_else(|| panic!("{test} writes no trace of seed {seed}; is this the name of the test?")).to_owned()
}
