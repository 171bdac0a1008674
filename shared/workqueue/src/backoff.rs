//! The back-off of failing keys.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The wait after the n-th failure in a row: `base · 2ⁿ⁻¹`, at most `max`, then spread by `jitter`.
///
/// The cap is applied before the jitter, so the longest wait is `max · (1 + jitter)`. Otherwise keys that have all reached the
/// cap, for example in an outage, would come back at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub base: Duration,
    /// The longest wait, before jitter.
    pub max: Duration,
    /// 0.2 means ±20 %. Clamped to 0..=1.
    pub jitter: f64,
}

impl Default for Backoff {
    /// 5 ms to 5 min, ±20 %.
    fn default() -> Self {
        Self { base: Duration::from_millis(5), max: Duration::from_mins(5), jitter: 0.2 }
    }
}

impl Backoff {
    /// The wait after `failures` failures in a row; `random` is in 0..1 and picks the place inside the jitter.
    pub(crate) fn delay(&self, failures: u32, random: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let delay = self.base.saturating_mul(1 << doublings).min(self.max);
        let jitter = if self.jitter.is_nan() { 0.0 } else { self.jitter.clamp(0.0, 1.0) };
        delay.mul_f64(1.0 + jitter * (2.0 * random - 1.0))
    }
}

/// `SplitMix64`: jitter needs spread, not secrecy.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self(seed.unwrap_or_else(|| RandomState::new().hash_one(())))
    }

    /// The next number in 0..1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are shifted in, and a double holds 53 bits")]
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_those_of_split_mix_64() {
        // The first numbers of the reference implementation for the seed 0.
        let mut random = Random::new(Some(0));
        for bits in [0xE220_A839_7B1D_CDAF_u64, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F] {
            let scaled = random.next() * 2_f64.powi(53);
            assert_eq!(format!("{scaled}"), (bits >> 11).to_string());
        }
    }

    #[test]
    fn jitter_goes_from_the_shortest_to_the_longest_wait() {
        let backoff = Backoff { base: Duration::from_millis(10), ..Backoff::default() };
        let waits = [0.0, 0.5, 1.0].map(|random| backoff.delay(1, random));
        assert_eq!(waits, [8, 10, 12].map(Duration::from_millis));
    }
}
