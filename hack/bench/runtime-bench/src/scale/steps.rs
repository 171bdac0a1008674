//! The numbers of objects at which the program is measured, and the progress between two of them.

use std::time::Duration;

/// The first step of a long measurement. With fewer objects, the cost of connections and templates hides that of an object.
const FIRST: usize = 1_000;

/// The numbers of objects to measure up to `objects`: 1,000, 5,000, 10,000, 50,000 and so on, and `objects` itself. A short
/// measurement begins lower, so that it has several steps too.
pub(super) fn steps(objects: usize) -> Vec<usize> {
    let mut first = 1;
    while first < FIRST && first * 10 <= objects / 10 {
        first *= 10;
    }
    let mut steps: Vec<usize> = std::iter::successors(Some(first), |decade| decade.checked_mul(10))
        .flat_map(|decade| [decade, decade.saturating_mul(5)])
        .take_while(|step| *step < objects)
        .collect();
    steps.push(objects);
    steps
}

/// A line of progress: the rate so far and the time that the rest will take.
#[expect(clippy::cast_precision_loss, reason = "numbers of objects are small")]
pub(super) fn progress(what: &str, done: usize, of: usize, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
    let rest = of.saturating_sub(done) as f64;
    let left = if rate > 0.0 { format!("{:.0} s left", rest / rate) } else { "no end in sight".to_owned() };
    format!("{what}: {done} of {of}, {rate:.0}/s, {left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_with_the_number_of_objects() {
        assert_eq!(steps(100_000), [1_000, 5_000, 10_000, 50_000, 100_000]);
        assert_eq!(steps(120_000), [1_000, 5_000, 10_000, 50_000, 100_000, 120_000]);
        assert_eq!(steps(10_000), [1_000, 5_000, 10_000]);
        assert_eq!(steps(6_000), [100, 500, 1_000, 5_000, 6_000]);
        assert_eq!(steps(1_000), [100, 500, 1_000]);
        assert_eq!(steps(20), [1, 5, 10, 20]);
    }

    #[test]
    fn progress_tells_rate_and_remaining_time() {
        let line = progress("ready", 500, 2_000, Duration::from_secs(10));
        assert_eq!(line, "ready: 500 of 2000, 50/s, 30 s left");
        assert_eq!(progress("ready", 0, 9, Duration::from_secs(10)), "ready: 0 of 9, 0/s, no end in sight");
        assert_eq!(progress("ready", 9, 9, Duration::ZERO), "ready: 9 of 9, 9000/s, 0 s left");
    }
}
