//! Measures resyncs: reconciles of all objects again and again, although nothing changes.
//!
//! All other steps run without them, so they have a program of their own, with a short interval. That is long enough for the start to be
//! over before the first resync.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Bench, START, is_expected_at_idle};
use crate::operator::{Requests, USER, audit_length};

/// The shortest interval. The lease and the watches take some CPU in each minute, which has to be small beside that of a resync.
const SHORTEST: Duration = Duration::from_secs(30);
/// The interval as a multiple of the time of a start. A resync takes no longer than the reconciles of a start, which come after a list.
const STARTS: f64 = 4.0;
/// When the measurement begins, in intervals after the start: the start is over, and the first resync, which may be a tenth early, has not
/// begun.
const BEGIN: f64 = 0.75;
/// The time to measure, in intervals. An interval differs by up to a tenth, so this always contains a whole resync.
const INTERVALS: u32 = 2;

#[expect(clippy::cast_precision_loss, reason = "numbers of objects are small")]
impl Bench<'_> {
    /// Measures the CPU time of a reconcile that finds nothing to do, the requests, and the peak of the memory.
    pub(super) async fn resync(&mut self) -> Result<()> {
        let start = self.record.value("start to reconciled").context("no start was measured")?;
        let steady = self.record.value("steady CPU").context("the steady state was not measured")?;
        let interval = interval(start);
        let flag = format!("--resync-interval={}s", interval.as_secs());
        let mut operator = self.start_with(&[flag.as_str()])?;
        operator.until_ready_within(START).await?;
        tokio::time::sleep(interval.mul_f64(BEGIN).saturating_sub(operator.started.elapsed())).await;
        let before = operator.reconciles().await?;
        operator.reset_peak()?;
        let (cpu, rss, offset) = (operator.cpu()?, operator.memory()?.rss(), audit_length(&self.cluster)?);
        let window = interval * INTERVALS;
        tokio::time::sleep(window).await;
        let (cpu, peak) = (operator.cpu()? - cpu, operator.peak()?);
        let reconciles = operator.reconciles().await? - before; // after the rest, because the page costs CPU and memory
        let objects = self.objects() as f64;
        ensure!(reconciles >= objects, "only {reconciles} reconciles within {window:?} at an interval of {interval:?}");
        let requests = Requests::after(USER, &self.cluster, offset)?;
        let others: usize =
            requests.iter().filter(|(what, _)| !is_expected_at_idle(what)).map(|(_, count)| count).sum();

        let each = cost(cpu, steady, window, reconciles);
        self.figure("resync CPU", "ms", each, "a reconcile without a change; `steady CPU` is taken off");
        self.figure("resync CPU of all", "s", each * objects / 1_000.0, "one resync of all objects");
        let measured = "the whole resyncs that were measured, and parts of others";
        self.figure("resync reconciles", "", reconciles / objects, measured);
        self.figure("resync requests", "", others as f64, "in all of them, but for those for the lease, and watches");
        self.figure("resync peak RSS", "MiB", peak, "");
        self.figure("resync peak over steady", "ratio", peak / rss, "RSS");
        operator.terminate().await
    }
}

/// The interval of the resyncs, in whole seconds, from the seconds of a start with all objects.
fn interval(start: f64) -> Duration {
    Duration::from_secs_f64((start * STARTS).ceil()).max(SHORTEST)
}

/// The milliseconds of CPU of a reconcile, from the seconds of CPU in a window and what the steady state takes in a minute.
fn cost(cpu: f64, steady: f64, window: Duration, reconciles: f64) -> f64 {
    (cpu - steady * window.as_secs_f64() / 60.0) * 1_000.0 / reconciles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_leaves_time_for_the_start() {
        assert_eq!([0.4, 7.5, 7.6, 100.0].map(|start| interval(start).as_secs()), [30, 30, 31, 400]);
    }

    #[test]
    fn steady_state_is_no_part_of_a_resync() {
        let each = cost(2.5, 0.25, Duration::from_mins(2), 20_000.0);
        assert!((each - 0.1).abs() < 1e-9, "{each}");
    }
}
