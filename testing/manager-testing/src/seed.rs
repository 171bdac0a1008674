//! The seed of random samples.

/// Returns the seed of this run's samples, and prints it. The variable `SEED` sets it, so that a run can be repeated. By default
/// it is random, so that over time every plan is drawn.
pub fn seed() -> u64 {
    let asked = std::env::var("SEED").ok().filter(|text| !text.is_empty());
    let seed = asked.map_or_else(|| fastrand::u64(..1_000_000), |text| text.parse().expect("SEED is a number"));
    eprintln!("SEED={seed}");
    seed
}
