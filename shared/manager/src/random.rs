//! The source of random numbers: the operating system in a process, a seed in a simulation.

use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;
use uuid::Uuid;

/// A source of random numbers. A clone is the same source.
#[derive(Debug, Clone, Default)]
pub(crate) struct Random {
    /// `None` for unpredictable numbers.
    seeded: Option<Arc<Mutex<Rng>>>,
}

impl Random {
    /// Returns a source that draws the same sequence of numbers for the same seed.
    pub(crate) fn with_seed(seed: u64) -> Self {
        Self { seeded: Some(Arc::new(Mutex::new(Rng::with_seed(seed)))) }
    }

    /// Returns a number in `0.0..1.0`, for jitter.
    pub(crate) fn fraction(&self) -> f64 {
        self.draw(Rng::f64).unwrap_or_else(fastrand::f64)
    }

    /// Returns any number, for a seed or for the end of a name.
    pub(crate) fn number(&self) -> u64 {
        self.draw(|rng| rng.u64(..)).unwrap_or_else(|| fastrand::u64(..))
    }

    /// Returns a generator of its own, for a part of the process that draws in its own order.
    pub(crate) fn rng(&self) -> Rng {
        Rng::with_seed(self.number())
    }

    /// Returns a UUID of version 4. Without a seed it is random enough for a secret.
    pub(crate) fn uuid(&self) -> Uuid {
        let drawn = self.draw(|rng| rng.u128(..));
        drawn.map_or_else(Uuid::new_v4, |number| uuid::Builder::from_random_bytes(number.to_be_bytes()).into_uuid())
    }

    /// Returns 64 hexadecimal digits, for a secret.
    pub(crate) fn token(&self) -> String {
        format!("{}{}", self.uuid().simple(), self.uuid().simple())
    }

    fn draw<T>(&self, number: impl FnOnce(&mut Rng) -> T) -> Option<T> {
        let seeded = self.seeded.as_ref()?;
        Some(number(&mut seeded.lock()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(random: &Random) -> (u64, Uuid, u64) {
        (random.fraction().to_bits(), random.uuid(), random.number())
    }

    #[test]
    fn same_seed_repeats_numbers_and_no_seed_is_random() {
        assert_eq!(drawn(&Random::with_seed(7)), drawn(&Random::with_seed(7)));
        assert_ne!(drawn(&Random::with_seed(7)), drawn(&Random::with_seed(8)));
        assert_ne!(drawn(&Random::default()), drawn(&Random::default()));
        assert_eq!(Random::with_seed(7).uuid().get_version_num(), 4);
    }
}
