//! One attack on one target, and the verdict.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::join_all;
use tokio::time::{Instant, timeout_at};

use crate::{
    aim::Aim,
    attacks::Attack,
    honest::{self, Measured},
    memory,
    program::Programs,
    target::Target,
};

/// Of the memory limit, how much a target may use under attack, in percent.
const SHARE: u64 = 80;
/// How long almost every honest request may take in a long round.
const HONEST: Duration = Duration::from_secs(1);

/// How long a round lasts if its attackers take no answers: longer than a server waits for them.
const UNTAKEN: Duration = Duration::from_secs(45);

/// Divides the time among the rounds of these attacks. All rounds are equal, except that those whose attackers take no answers last
/// long enough for the server to give the answers up, if that leaves at least half as much for the others.
pub fn divided(time: Duration, attacks: &[&Attack]) -> Vec<Duration> {
    let [long, others] = [true, false].map(|leaves| {
        u32::try_from(attacks.iter().filter(|it| it.leaves_answers == leaves).count()).unwrap_or(u32::MAX)
    });
    let equal = time / (long + others).max(1);
    let longer = UNTAKEN.max(equal);
    let rest = time.saturating_sub(longer * long) / others.max(1);
    if others == 0 || rest < equal / 2 {
        return vec![equal; attacks.len()];
    }
    attacks.iter().map(|it| if it.leaves_answers { longer } else { rest }).collect()
}

/// One attack on one target.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// The attack.
    pub attack: &'static Attack,
    /// The target.
    pub target: Target,
    /// How long the attack lasts.
    pub lasts: Duration,
    /// How many addresses the attackers have together. With 0, they have that of the honest client.
    pub addresses: u8,
    /// Whether a slow honest answer, and a single lost one, is a defeat. In a short round on a busy machine it says little.
    pub judges_times: bool,
}

/// What a round has measured.
#[derive(Debug)]
pub struct Outcome {
    /// The name of the attack.
    pub attack: &'static str,
    /// The name of the target.
    pub target: &'static str,
    /// The peak of the target's resident memory, in bytes.
    pub peak: u64,
    /// The target's memory limit in the chart, in bytes.
    pub limit: u64,
    /// Whether the target ended during the attack.
    pub has_ended: bool,
    /// Times of honest answers, from the shortest.
    pub times: Vec<Duration>,
    /// Why honest requests failed.
    pub failures: Vec<String>,
    judges_times: bool,
}

impl Round {
    /// Runs the round.
    pub async fn run(self, programs: &Programs) -> Result<Outcome> {
        let Self { attack, target, lasts, addresses, judges_times } = self;
        let mut program = programs.start(target).await?;
        let mut aim = Aim::new(program.requests.clone(), program.address, &program.folder())?;
        // The first answer comes before the attack: a scraper and an API server are known clients.
        honest::ask(&aim).await.context("the target does not answer before the attack")?;
        aim.end = Instant::now() + lasts;
        let honest = aim.of_honest_client();
        let attackers = tokio::task::spawn_blocking(move || attack_on_one_thread(attack, &aim, addresses));
        let (attacked, Measured { mut times, failures }) = tokio::join!(attackers, honest::measure(&honest));
        attacked??;
        times.sort_unstable();
        Ok(Outcome {
            attack: attack.name,
            target: target.name(),
            limit: memory::limit(&programs.chart(), target)?,
            has_ended: program.has_ended(),
            peak: program.peak().unwrap_or_default(),
            times,
            failures,
            judges_times,
        })
    }
}

/// Runs all attackers until the end of the round on this thread, so that they use one processor at most.
fn attack_on_one_thread(attack: &Attack, aim: &Aim, addresses: u8) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let aims: Vec<_> = (0..attack.attackers).map(|number| aim.of_attacker(number, addresses)).collect();
    runtime.block_on(join_all(aims.iter().map(|aim| repeat(attack, aim))));
    Ok(())
}

/// Repeats an attack until the end of the round.
async fn repeat(attack: &Attack, aim: &Aim) {
    while Instant::now() < aim.end {
        // The server may refuse or end the connection at any moment, which is its right.
        if timeout_at(aim.end, (attack.once)(aim.clone())).await.is_ok_and(|result| result.is_err()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Outcome {
    /// Why the attack has won; empty if the target has withstood it.
    pub fn defeats(&self) -> Vec<String> {
        let mut defeats = Vec::new();
        if self.has_ended {
            defeats.push("the target ended".to_owned());
        }
        if self.peak * 100 > self.limit * SHARE {
            defeats.push(format!("the memory exceeds {SHARE} % of the limit"));
        }
        // In a short round, a busy machine may delay a request so that its connection looks like an attacker's.
        let tolerated = usize::from(!self.judges_times && !self.times.is_empty());
        if let Some(first) = self.failures.first().filter(|_| self.failures.len() > tolerated) {
            defeats.push(format!("{} honest requests failed, such as: {first}", self.failures.len()));
        }
        if self.judges_times && self.percentile(99) > HONEST {
            defeats.push(format!("the honest p99 exceeds {HONEST:?}"));
        }
        defeats
    }

    /// The time within which this percentage of honest answers came.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.times.len() * percent).div_ceil(100).saturating_sub(1);
        self.times.get(rank).copied().unwrap_or_default()
    }

    /// A row of the table below [`HEAD`](Self::HEAD).
    pub fn row(&self) -> String {
        let Self { attack, target, peak, limit, has_ended, times, failures, .. } = self;
        let within = |percent| {
            if times.is_empty() {
                return "never".to_owned();
            }
            format!("{} ms", self.percentile(percent).as_millis())
        };
        let [half, most] = [50, 99].map(within);
        let (answered, all) = (times.len(), times.len() + failures.len());
        // Nothing is known of the memory of a process that has ended.
        let peak = if *has_ended { "ended, limit".to_owned() } else { format!("{} of", peak >> 20) };
        let limit = limit >> 20;
        format!("| `{attack}` | {target} | {peak} {limit} MiB | {answered} of {all} | {half} | {most} |")
    }

    /// The head of the table, which is Markdown, so that `README.md` has the output as it is.
    pub const HEAD: &str = "| Attack | Target | Peak | Honest answered | p50 | p99 |\n|---|---|---|---|---|---|";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attacks::ATTACKS;

    fn outcome(times: &[u64]) -> Outcome {
        Outcome {
            attack: "slow-heads",
            target: Target::Webhooks.name(),
            peak: 28 << 20,
            limit: 128 << 20,
            has_ended: false,
            times: times.iter().map(|it| Duration::from_millis(*it)).collect(),
            failures: vec!["no connection".to_owned()],
            judges_times: true,
        }
    }

    #[test]
    fn row_has_the_columns_of_the_head() {
        let row = outcome(&[3, 4, 24]).row();
        assert_eq!(row, "| `slow-heads` | webhooks | 28 of 128 MiB | 3 of 4 | 4 ms | 24 ms |");
        assert!(Outcome::HEAD.lines().all(|line| line.matches('|').count() == row.matches('|').count()));
        let stopped = Outcome { has_ended: true, ..outcome(&[]) }.row();
        assert!(stopped.ends_with("| ended, limit 128 MiB | 0 of 1 | never | never |"), "{stopped}");
    }

    #[test]
    fn ten_minutes_give_servers_the_time_to_give_up_answers() {
        let time = Duration::from_mins(10);
        let rounds: Vec<_> = ATTACKS.iter().flat_map(|it| it.targets.iter().map(move |_| *it)).collect();
        let each = divided(time, &rounds);
        let serving::Limits { write: given_up, header_read, handshake, .. } = serving::Limits::default();
        for (attack, lasts) in rounds.iter().zip(&each) {
            let slow = header_read.max(handshake) + Duration::from_secs(2);
            assert!(*lasts >= slow, "{attack:?} ends before slow clients are given up: {lasts:?}");
            assert!(!attack.leaves_answers || *lasts > given_up + Duration::from_secs(10), "{attack:?} {lasts:?}");
        }
        let sum: Duration = each.iter().sum();
        assert!(sum <= time && sum + Duration::from_secs(1) > time, "{sum:?}");
        let [long, short] =
            [true, false].map(|leaves| *rounds.iter().find(|it| it.leaves_answers == leaves).expect("one"));
        assert_eq!(divided(time, &[long]), [time]);
        assert_eq!(divided(time, &[long, short]), [time / 2; 2], "each has enough");
        assert_eq!(divided(Duration::from_mins(1), &[long, short, short]), [Duration::from_secs(20); 3], "too short");
    }

    /// A new measurement is a copy of the output.
    #[test]
    fn table_of_the_readme_has_a_row_for_each_attack_and_target() {
        let readme = include_str!("../README.md");
        let (_, table) = readme.split_once(Outcome::HEAD).expect("the table of the README");
        let rows = table.trim_start().lines().take_while(|line| line.starts_with('|'));
        let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
        let named: Vec<_> = cells.map(|cells| (cells[1].to_owned(), cells[2])).collect();
        let mut expected = Vec::new();
        for attack in ATTACKS {
            expected.extend(attack.targets.iter().map(|target| (format!("`{}`", attack.name), target.name())));
        }
        assert_eq!(named, expected);
    }
}
