//! Long commands, with a report of progress while they run.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::missing::last_line;
use crate::progress::{Event, Progress, TICK};

/// The time limit of a command; it is longer than any of them takes on a slow machine.
const PATIENCE: Duration = Duration::from_mins(30);

/// Numbered steps of one task.
pub(super) struct Steps<'a> {
    done: usize,
    of: usize,
    progress: Progress<'a>,
}

impl<'a> Steps<'a> {
    pub(super) fn new(of: usize, progress: Progress<'a>) -> Self {
        Self { done: 0, of, progress }
    }

    /// Does the next step, and reports how long it took. `work` calls the function that it gets every now and then.
    pub(super) fn next<T>(&mut self, what: &str, work: impl FnOnce(&dyn Fn()) -> Result<T>) -> Result<T> {
        self.done += 1;
        let (n, of, begun) = (self.done, self.of, Instant::now());
        let tick = || (self.progress)(Event::Working { what, n, of, elapsed: begun.elapsed() });
        tick();
        let result = work(&tick).with_context(|| format!("{what} failed"))?;
        (self.progress)(Event::Done { what, n, of, elapsed: begun.elapsed() });
        Ok(result)
    }
}

/// Runs the command to its end, with its output in `log`. The error has its last line.
pub(super) fn finish(command: &mut Command, log: &Path, tick: &dyn Fn()) -> Result<()> {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().display().to_string();
    let file = File::create(log).with_context(|| format!("could not create {}", log.display()))?;
    command.stdout(file.try_clone()?).stderr(file).stdin(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("could not start {program}"))?;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            bail!("{program}: {} (full log: {})", last_line(&fs::read(log).unwrap_or_default()), log.display());
        }
        std::thread::sleep(TICK);
        tick();
    }
    child.kill()?;
    child.wait()?;
    bail!("{program} took more than {} minutes", PATIENCE.as_secs() / 60)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn steps_are_counted_and_a_failure_names_its_step() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let told = RefCell::new(Vec::new());
        let progress = |event: Event<'_>| {
            if let Event::Done { what, n, of, .. } = event {
                told.borrow_mut().push(format!("{n}/{of} {what}"));
            }
        };
        let mut steps = Steps::new(2, &progress);
        steps.next("one", |_| Ok(())).unwrap();
        let failed =
            steps.next("two", |tick| finish(Command::new("sh").args(["-c", "echo no room; exit 1"]), &log, tick));
        let error = format!("{:#}", failed.unwrap_err());
        assert!(error.starts_with("two failed: sh: no room (full log:"), "{error}");
        assert_eq!(*told.borrow(), ["1/2 one"]);
    }
}
