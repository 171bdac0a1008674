//! What samples are drawn from.

/// The seed of this run's samples: what `SEED` says, or else another each time, so that in time every plan is drawn. It is
/// printed, and a run that is given it draws the same.
pub fn seed() -> u64 {
    let asked = std::env::var("SEED").ok().filter(|text| !text.is_empty());
    let seed = asked.map_or_else(|| fastrand::u64(..1_000_000), |text| text.parse().expect("SEED is a number"));
    eprintln!("SEED={seed}");
    seed
}
