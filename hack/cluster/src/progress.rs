//! How long work tells what it is doing.

use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Something worth telling someone who waits.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// Work that has a length: `what` is the `n`th thing of `of`, and has taken `elapsed`. Repeated about five times a second.
    Working {
        /// What is being done, such as "building etcd".
        what: &'a str,
        /// Which thing this is, counted from one.
        n: usize,
        /// How many things there are.
        of: usize,
        /// Time since this thing was begun.
        elapsed: Duration,
    },
    /// The same, once, when it is finished.
    Done {
        /// What was done.
        what: &'a str,
        /// Which thing this was, counted from one.
        n: usize,
        /// How many things there are.
        of: usize,
        /// How long it took.
        elapsed: Duration,
    },
    /// One sentence.
    Note(&'a str),
}

/// Who is told.
pub type Progress<'a> = &'a dyn Fn(Event<'_>);

/// Tells nobody.
pub fn quiet(_: Event<'_>) {}

/// Tells standard error: one line that counts up on a terminal, a line now and then elsewhere.
pub fn to_stderr(event: Event<'_>) {
    let terminal = std::io::stderr().is_terminal();
    let mut err = std::io::stderr().lock();
    // Nothing sensible can be done when standard error is gone.
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

/// How often [`Event::Working`] is repeated.
pub(crate) const TICK: Duration = Duration::from_millis(200);

/// Whether a log without a cursor gets this tick: the first one, and one each half minute.
fn tells_now(elapsed: Duration) -> bool {
    elapsed.as_millis() % 30_000 < TICK.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_told_at_once_and_then_each_half_minute() {
        let told: Vec<u64> = (0..400).filter(|tick| tells_now(TICK * *tick)).map(|tick| u64::from(tick) / 5).collect();
        assert_eq!(told, [0, 30, 60]);
    }
}
