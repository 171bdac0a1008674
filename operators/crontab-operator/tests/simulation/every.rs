//! `@every`, and how many runs may be active: what sections 4.1, 4.3 and 4.4 of the specification say.

use jiff::Timestamp;
use serde_json::Value;
use simulation::Period;

use super::starts_runs;

/// Schedules by elapsed time, each with its seconds. Runs of the first one overlap.
pub(crate) const SCHEDULES: [(&str, i64); 3] = [("@every 50s", 50), ("@every 2m30s", 150), ("@every 7m", 420)];
/// How many Jobs may be active if the spec does not say it.
const DEFAULT_MOST: u64 = 10;
/// Within this time after a run, in seconds, its Job may be active: a Job takes a minute at most, and starts later by its jitter.
const OVERLAP: i64 = 60 + 25;
/// No more than this many runs overlap with another one.
const OVERLAPPING: usize = 2;
/// If runs may be left out, one of this many starts.
const LEFT_OUT: i64 = 3;
/// At the edges of a period, runs may be missing for so many seconds: clocks differ, and a Job may come late.
const EDGE: i64 = 120;

/// The seconds between two runs, if the object starts runs by `@every`.
pub(crate) fn seconds(spec: &Value) -> Option<i64> {
    let found = SCHEDULES.iter().find(|(schedule, _)| spec["cronSpec"] == **schedule);
    found.map(|(_, seconds)| *seconds).filter(|_| starts_runs(spec))
}

/// With fewer active Jobs than this, a run starts. With `Replace`, it always does.
pub(crate) fn room(spec: &Value) -> usize {
    match spec["concurrencyPolicy"].as_str().unwrap_or("Forbid") {
        "Allow" => most_active(spec),
        "Replace" => usize::MAX,
        _ => 1,
    }
}

/// `maxActiveJobs`, which is for `Allow`.
pub(crate) fn most_active(spec: &Value) -> usize {
    usize::try_from(spec["maxActiveJobs"].as_u64().unwrap_or(DEFAULT_MOST)).unwrap_or(usize::MAX)
}

/// Checks the times of the runs of a period, which nothing disturbs: they are whole periods of `@every` apart, and no run is
/// missing that need not be left out. Where the grid begins is open, because the last run before the period is not known.
pub(crate) fn judge(spec: &Value, period: &Period, seconds: i64, made: &[Timestamp]) -> Result<(), String> {
    let mut made: Vec<i64> = made.iter().map(|time| time.as_second()).collect();
    made.sort_unstable();
    if let Some(pair) = made.windows(2).find(|pair| (pair[1] - pair[0]) % seconds != 0) {
        return Err(format!("the runs {pair:?} are not whole times {seconds} s apart"));
    }
    let may_be_left_out = seconds < OVERLAP && room(spec) <= OVERLAPPING;
    let longest = if may_be_left_out { LEFT_OUT * seconds } else { seconds };
    // After the clocks were put back, no run starts until they have passed the time of the last one.
    let mut last = period.latest_before.as_second() + EDGE;
    let until = period.until.as_second() - spec["jitterSeconds"].as_i64().unwrap_or_default() - EDGE;
    let first = made.partition_point(|time| *time <= last);
    for time in made[first..].iter().copied().chain([until]) {
        if time - last > longest {
            return Err(format!("no run starts between {last} and {time}, and one is due each {seconds} s"));
        }
        last = time;
    }
    Ok(())
}
