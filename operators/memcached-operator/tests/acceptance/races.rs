//! Changes that reach the API server just before a write of the operator, and so are part of the response to it.

use std::time::Duration;

use kube::api::ApiResource;
use manager_testing::Races;
use memcached_operator::Memcached;

use crate::kit::quiet_world;

/// How long the test waits for the effect of a change. Only a failure waits this long, because a missed change stays missed.
const PATIENCE: Duration = Duration::from_secs(20);
/// Enough to find several misses if the operator misses one change in a hundred. `runtime-bench -- races` runs more.
const ROUNDS: usize = 600;

#[tokio::test(flavor = "multi_thread")]
async fn change_during_a_write_is_reconciled() {
    let Some(mut world) = quiet_world().await else { return };
    world.run(&["--resync-interval", "24h"]);
    let seed = std::env::var("RACES_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let races = Races {
        client: world.client.clone(),
        namespace: world.namespace.clone(),
        resource: ApiResource::erase::<Memcached>(&()),
        objects: 20,
        rounds: ROUNDS,
        seed,
        patience: PATIENCE,
    };
    let outcome = races.run(|_| {}).await.expect("each change is accepted, and has its effect in the end");
    println!("RACES_SEED={seed}: {outcome}");
    assert!(outcome.missed.is_empty(), "RACES_SEED={seed}: {outcome}");
}
