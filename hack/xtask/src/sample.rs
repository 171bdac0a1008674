//! Samples that a printed number repeats.

use std::time::{SystemTime, UNIX_EPOCH};

use fastrand::Rng;

/// Returns a seed that the last runs have not used. It is short enough to be typed.
pub(crate) fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_micros().into())
}

/// Draws `count` of the positions below `of`, each at most once, and returns them in order. The same seed draws the same ones.
pub(crate) fn draw(seed: u64, count: usize, of: usize) -> Vec<usize> {
    let mut drawn = Rng::with_seed(seed).choose_multiple(0..of, count.min(of));
    drawn.sort_unstable();
    drawn
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn seed_repeats_a_sample_and_all_seeds_together_draw_everything() {
        for seed in 0..100 {
            let drawn = draw(seed, 4, 20);
            assert_eq!(drawn, draw(seed, 4, 20));
            assert!(drawn.len() == 4 && drawn.is_sorted_by(|one, next| one < next), "{drawn:?}");
        }
        let all: BTreeSet<usize> = (0..100).flat_map(|seed| draw(seed, 4, 20)).collect();
        assert!(all.into_iter().eq(0..20));
        assert_eq!(draw(7, 9, 3), [0, 1, 2], "no more than there are");
    }
}
