//! Samples that a printed number repeats.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns a seed that the last runs have not used. It is short enough to be typed.
pub(crate) fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_micros().into())
}

/// Draws `count` of the positions below `of`, each at most once, and returns them in order. The same seed draws the same ones.
pub(crate) fn draw(seed: u64, count: usize, of: usize) -> Vec<usize> {
    let mut random = SplitMix(seed);
    let mut left: Vec<usize> = (0..of).collect();
    let mut drawn = Vec::new();
    while drawn.len() < count && !left.is_empty() {
        let number = random.next() % left.len() as u64;
        drawn.push(left.swap_remove(usize::try_from(number).unwrap_or_default()));
    }
    drawn.sort_unstable();
    drawn
}

/// `SplitMix64`.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
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
