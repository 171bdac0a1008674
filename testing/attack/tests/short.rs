//! A short round of each attack: no attack stops a server.

use std::time::Duration;

use attack::{ATTACKS, Outcome, Programs, Round};

/// All rounds together. One more attack makes each of them shorter.
const ALL: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attack_stops_a_server() {
    let programs = Programs::Libraries(env!("CARGO_BIN_EXE_attack").into());
    let (mut rows, mut defeats) = (vec![Outcome::HEAD.to_owned()], Vec::new());
    let rounds: usize = ATTACKS.iter().map(|attack| attack.targets.len()).sum();
    let lasts = ALL / u32::try_from(rounds).expect("few rounds");
    for attack in ATTACKS {
        for target in attack.targets {
            let round = Round { attack, target: *target, lasts, addresses: 1, judges_times: false };
            let mut outcome = round.run(&programs).await.expect("a round");
            if outcome.failures.len() == 1 {
                // A busy machine may delay a request so that its connection looks like an attacker's, but hardly twice.
                rows.push(outcome.row());
                outcome = round.run(&programs).await.expect("a round");
            }
            rows.push(outcome.row());
            let name = format!("{} on {}", outcome.attack, outcome.target);
            defeats.extend(outcome.defeats().into_iter().map(|why| format!("{name}: {why}")));
        }
    }
    assert!(defeats.is_empty(), "{}\n\n{}", defeats.join("\n"), rows.join("\n"));
}
