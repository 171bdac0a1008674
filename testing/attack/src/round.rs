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
    probes::{self, Probed},
    program::Programs,
    target::Target,
};

/// Of the memory limit, how much a target may use under attack, in percent.
const SHARE: u64 = 80;
/// The same for a development build, which needs up to twice the memory of what users get.
const SHARE_OF_DEVELOPMENT: u64 = 100;
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
    /// Whether a slow honest answer is a defeat. In a short round on a busy machine it says little.
    pub judges_times: bool,
}

/// What a round has measured.
#[derive(Debug)]
pub struct Outcome {
    /// The name of the attack.
    pub attack: &'static str,
    /// The name of the target.
    pub target: &'static str,
    /// Attempts of the attackers that have reached the target.
    pub attempts: u64,
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
    probed: Probed,
    judges_times: bool,
    /// Of the memory limit, how much is no defeat, in percent; `None` if memory is not judged.
    share: Option<u64>,
}

impl Round {
    /// Runs the round.
    pub async fn run(self, programs: &Programs) -> Result<Outcome> {
        let Self { attack, target, lasts, addresses, judges_times } = self;
        let mut program = programs.start(target).await?;
        let mut aim = Aim::new(program.requests.clone(), program.port, &program.folder())?;
        probes::pass(&program.probes, &aim).await?;
        // The first answer comes before the attack: a scraper and an API server are known clients.
        honest::ask(&aim, &aim.requests.honest).await.context("the target does not answer before the attack")?;
        let other = attack.other_honest.filter(|_| judges_times).map(|request| request(&aim.requests));
        aim.end = Instant::now() + lasts;
        let (honest, kubelet) = (aim.of_honest_client(), aim.clone());
        let attackers = tokio::task::spawn_blocking(move || attack_on_one_thread(attack, &aim, addresses));
        let (attacked, Measured { mut times, failures }, probed) = tokio::join!(
            attackers,
            honest::measure(&honest, other.as_deref()),
            probes::measure(&program.probes, &kubelet),
        );
        times.sort_unstable();
        Ok(Outcome {
            attack: attack.name,
            target: target.name(),
            attempts: attacked??,
            limit: memory::limit(&programs.chart(), target)?,
            has_ended: program.has_ended(),
            peak: program.peak().unwrap_or_default(),
            times,
            failures,
            probed,
            judges_times,
            share: match programs {
                Programs::Checkout(_) => Some(SHARE),
                Programs::Libraries(_) if target == Target::LoadedWebhooks => None, // a development build needs too much for itself
                Programs::Libraries(_) => Some(SHARE_OF_DEVELOPMENT),
            },
        })
    }
}

/// Runs all attackers until the end of the round on this thread, so that they use one processor at most. Returns how many attempts have
/// reached the target.
fn attack_on_one_thread(attack: &Attack, aim: &Aim, addresses: u8) -> Result<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let aims: Vec<_> = (0..attack.attackers).map(|number| aim.of_attacker(number, addresses)).collect();
    runtime.block_on(join_all(aims.iter().map(|aim| repeat(attack, aim))));
    Ok(aim.attempts())
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
    /// Why the round has failed: the attack has won, or did nothing. Empty if the target has withstood it.
    pub fn defeats(&self) -> Vec<String> {
        let mut defeats = Vec::new();
        if self.attempts == 0 {
            defeats.push("no attempt of the attackers has reached the target".to_owned());
        }
        if self.has_ended {
            defeats.push("the target ended".to_owned());
        }
        if let Some(share) = self.share.filter(|share| self.peak * 100 > self.limit * share) {
            defeats.push(format!("the memory exceeds {share} % of the limit"));
        }
        if self.probed.is_defeat() {
            defeats.push("a probe has failed three times in a row".to_owned());
        }
        if let Some(first) = self.failures.first() {
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
        let Self { attack, target, attempts, peak, limit, has_ended, times, failures, probed, .. } = self;
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
        let Probed { asked, missed, .. } = probed;
        let misses = if *asked == 0 { "none".to_owned() } else { format!("{missed} of {asked}") };
        let honest = format!("{answered} of {all} | {half} | {most}");
        format!("| `{attack}` | {target} | {attempts} | {peak} {limit} MiB | {honest} | {misses} |")
    }

    /// The head of the table, which is Markdown, so that `README.md` has the output as it is.
    pub const HEAD: &str = "| Attack | Target | Attempts | Peak | Honest answered | p50 | p99 | Probes missed |\n\
                            |---|---|---|---|---|---|---|---|";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attacks::ATTACKS;

    fn outcome(times: &[u64]) -> Outcome {
        Outcome {
            attack: "slow-heads",
            target: Target::Webhooks.name(),
            attempts: 900,
            peak: 28 << 20,
            limit: 128 << 20,
            has_ended: false,
            times: times.iter().map(|it| Duration::from_millis(*it)).collect(),
            failures: vec!["no connection".to_owned()],
            probed: Probed { asked: 40, missed: 1, ..Probed::default() },
            judges_times: true,
            share: Some(SHARE),
        }
    }

    #[test]
    fn row_has_the_columns_of_the_head() {
        let row = outcome(&[3, 4, 24]).row();
        assert_eq!(row, "| `slow-heads` | webhooks | 900 | 28 of 128 MiB | 3 of 4 | 4 ms | 24 ms | 1 of 40 |");
        assert!(Outcome::HEAD.lines().all(|line| line.matches('|').count() == row.matches('|').count()));
        let stopped = Outcome { has_ended: true, probed: Probed::default(), ..outcome(&[]) }.row();
        assert!(stopped.ends_with("| ended, limit 128 MiB | 0 of 1 | never | never | none |"), "{stopped}");
    }

    #[test]
    fn a_round_fails_for_each_reason_and_otherwise_not() {
        let withstood = || Outcome { failures: Vec::new(), ..outcome(&[3, 4, 24]) };
        let too_much = 103 << 20;
        let failed = |outcome: Outcome| outcome.defeats().concat();
        assert_eq!(failed(withstood()), "");
        assert_eq!(failed(Outcome { peak: too_much, share: None, ..withstood() }), "");
        assert_eq!(failed(Outcome { peak: too_much, share: Some(SHARE_OF_DEVELOPMENT), ..withstood() }), "");
        assert_eq!(failed(Outcome { judges_times: false, times: vec![2 * HONEST], ..withstood() }), "");
        for (outcome, why) in [
            (Outcome { attempts: 0, ..withstood() }, "no attempt"),
            (Outcome { has_ended: true, ..withstood() }, "ended"),
            (Outcome { peak: too_much, ..withstood() }, "80 %"),
            (Outcome { peak: 129 << 20, share: Some(SHARE_OF_DEVELOPMENT), ..withstood() }, "100 %"),
            (Outcome { probed: Probed::missed_for_long(), ..withstood() }, "probe"),
            (Outcome { failures: vec!["no connection".to_owned()], judges_times: false, ..withstood() }, "1 honest"),
            (Outcome { times: vec![2 * HONEST], ..withstood() }, "p99"),
        ] {
            let defeats = failed(outcome);
            assert!(defeats.contains(why), "{why}: {defeats:?}");
        }
    }

    #[test]
    fn a_quarter_of_an_hour_gives_servers_the_time_to_give_up_answers() {
        let time = Duration::from_mins(15);
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
