//! Takes all memory that the webhooks give to connections, requests and reviews, at the same time.

use super::{Attack, small_values, unfinished_handshakes, unread_answers};
use crate::{aim::Aim, target::Target};
use anyhow::Result;
use futures::FutureExt as _;

pub(super) const ATTACK: Attack = Attack {
    name: "all-memory",
    about: "Does three attacks on memory at once: unfinished-handshakes, small-values, unread-answers",
    targets: &[Target::LoadedWebhooks],
    attackers: PARTS[0].attackers + PARTS[1].attackers + PARTS[2].attackers,
    leaves_answers: true,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

/// Each has addresses of its own. Otherwise the many handshakes would displace the connections of the other two.
const PARTS: [&Attack; 3] = [&unfinished_handshakes::ATTACK, &small_values::ATTACK, &unread_answers::ATTACK];

async fn once(aim: Aim) -> Result<()> {
    let (place, attack) = part(aim.number);
    (attack.once)(aim.of_attack(place)).await
}

/// The part that the attacker with this number plays, after its place among the parts.
fn part(number: usize) -> (u8, &'static Attack) {
    let mut all = 0;
    for (place, attack) in (0..).zip(PARTS) {
        all += attack.attackers;
        if number < all {
            return (place, attack);
        }
    }
    (0, PARTS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_number_of_attackers() {
        let parts: Vec<_> = (0..ATTACK.attackers).map(part).collect();
        for (place, attack) in (0..).zip(PARTS) {
            let of_it = parts.iter().filter(|(other, it)| *other == place && it.name == attack.name);
            assert_eq!(of_it.count(), attack.attackers, "{attack:?}");
        }
    }
}
