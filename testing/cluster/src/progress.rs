//! Reports the progress of long work.

use std::io::{IsTerminal, Write};
use std::time::Duration;

/// A report of progress.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// Step `n` of `of` is running. Repeated about five times a second.
    Working {
        /// The step, such as "building etcd".
        what: &'a str,
        /// The number of the step, counted from one.
        n: usize,
        /// The number of all steps.
        of: usize,
        /// Time since the step began.
        elapsed: Duration,
    },
    /// Step `n` of `of` has ended. Reported once.
    Done {
        /// The step, such as "building etcd".
        what: &'a str,
        /// The number of the step, counted from one.
        n: usize,
        /// The number of all steps.
        of: usize,
        /// How long the step took.
        elapsed: Duration,
    },
    /// A remark of one sentence.
    Note(&'a str),
}

/// A function that receives the reports.
pub type Progress<'a> = &'a dyn Fn(Event<'_>);

/// Discards all reports.
pub fn quiet(_: Event<'_>) {}

/// Writes the reports to standard error. On a terminal, one line counts the seconds; elsewhere, a new line appears every 30 s.
pub fn to_stderr(event: Event<'_>) {
    let terminal = std::io::stderr().is_terminal();
    let mut err = std::io::stderr().lock();
    // Errors are ignored, since there is nowhere to report that standard error is closed.
    let _ = match event {
        Event::Working { what, n, of, elapsed } if terminal => {
            write!(err, "\r\x1b[K[{n}/{of}] {what}, {} s", elapsed.as_secs())
        }
        Event::Working { what, n, of, elapsed } if tells_now(elapsed) => {
            writeln!(err, "[{n}/{of}] {what}, {} s", elapsed.as_secs())
        }
        Event::Working { .. } => Ok(()),
        Event::Done { what, n, of, elapsed } => {
            let clear = if terminal { "\r\x1b[K" } else { "" };
            writeln!(err, "{clear}[{n}/{of}] {what}: done in {:.1} s", elapsed.as_secs_f64())
        }
        Event::Note(text) => writeln!(err, "{}{text}", if terminal { "\r\x1b[K" } else { "" }),
    };
    let _ = err.flush();
}

/// The interval between two [`Event::Working`].
pub(crate) const TICK: Duration = Duration::from_millis(200);

/// Whether to write this tick where the output is not a terminal: the first one, and then one every 30 s.
fn tells_now(elapsed: Duration) -> bool {
    elapsed.as_millis() % 30_000 < TICK.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_is_written_at_once_and_every_30_s() {
        let told: Vec<u64> = (0..400).filter(|tick| tells_now(TICK * *tick)).map(|tick| u64::from(tick) / 5).collect();
        assert_eq!(told, [0, 30, 60]);
    }
}
