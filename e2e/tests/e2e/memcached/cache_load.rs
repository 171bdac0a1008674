//! A client that uses several nodes as one cache. Each key belongs to the node that its hash selects. The client fills each miss,
//! and records the hit rate over time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::cache_client::CacheClient;

/// The number of keys.
const KEYS: usize = 300;

/// One round, in which the client requests every key once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Round {
    /// The time since the start of the load.
    pub(super) at: Duration,
    /// The number of keys that were in the cache.
    pub(super) hits: usize,
    /// The number of keys that were missing, and that the client has set.
    pub(super) misses: usize,
    /// The number of requests without an answer.
    pub(super) failures: usize,
    /// The nodes that are new in this round, and so are empty.
    pub(super) new: BTreeSet<SocketAddr>,
}

/// All rounds of a load. `Display` draws them as a chart.
#[derive(Debug, Clone, Default)]
pub(super) struct HitRate(pub Vec<Round>);

/// Requests all keys again and again, until `nodes` returns `None`. The calling thread must be in the cluster's network.
pub(super) fn load(mut nodes: impl FnMut() -> Option<BTreeSet<SocketAddr>>) -> HitRate {
    let (begun, mut rounds, mut known) = (Instant::now(), Vec::new(), BTreeSet::new());
    let mut clients: BTreeMap<SocketAddr, CacheClient> = BTreeMap::new();
    while let Some(present) = nodes() {
        clients.retain(|node, _| present.contains(node));
        let new = present.difference(&known).copied().collect();
        let mut round = Round { at: begun.elapsed(), hits: 0, misses: 0, failures: 0, new };
        for key in (0..KEYS).map(|number| format!("key-{number}")) {
            match owner(&key, &present).map(|node| ask(&mut clients, node, &key)) {
                Some(Ok(true)) => round.hits += 1,
                Some(Ok(false)) => round.misses += 1,
                Some(Err(_)) | None => round.failures += 1,
            }
        }
        rounds.push(round);
        known = present;
        std::thread::sleep(Duration::from_millis(50)); // limits the load
    }
    HitRate(rounds)
}

/// Gets the key from the node, and sets it if it is missing. Returns whether the node had it.
fn ask(clients: &mut BTreeMap<SocketAddr, CacheClient>, node: SocketAddr, key: &str) -> Result<bool> {
    let mut client = match clients.remove(&node) {
        Some(client) => client,
        None => CacheClient::connect(node)?,
    };
    let hit = client.get(key)?.is_some();
    if !hit {
        client.set(key, "value")?;
    }
    clients.insert(node, client); // a failed client is not used again
    Ok(hit)
}

/// The node of a key, by rendezvous hashing: when a node is added or removed, only the keys of that node move.
fn owner(key: &str, nodes: &BTreeSet<SocketAddr>) -> Option<SocketAddr> {
    nodes.iter().copied().max_by_key(|node| {
        let mut hasher = DefaultHasher::new();
        (node, key).hash(&mut hasher);
        hasher.finish()
    })
}

impl HitRate {
    /// The lowest hit rate of all rounds after the first, which fills the cache: from 0 to 1.
    pub(super) fn lowest(&self) -> f64 {
        self.0.iter().skip(1).map(Round::rate).fold(1.0, f64::min)
    }
}

impl Round {
    #[expect(clippy::cast_precision_loss, reason = "there are a few hundred keys")]
    fn rate(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses + self.failures).max(1) as f64
    }
}

impl fmt::Display for HitRate {
    /// One line for each second, with the lowest hit rate and the new nodes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut seconds: BTreeMap<u64, (f64, BTreeSet<SocketAddr>)> = BTreeMap::new();
        for round in &self.0 {
            let (rate, new) = seconds.entry(round.at.as_secs()).or_insert((1.0, BTreeSet::new()));
            *rate = rate.min(round.rate());
            new.extend(&round.new);
        }
        for (second, (rate, new)) in seconds {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 40")]
            let full = (rate * 40.0).round() as usize;
            let came: Vec<String> = new.iter().map(|node| format!(" +{node}")).collect();
            let bar = format!("{}{}", "█".repeat(full), "·".repeat(40 - full));
            writeln!(f, "{second:>4} s {bar} {:>3.0} %{}", rate * 100.0, came.concat())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 11_211))
    }

    #[test]
    fn added_pod_takes_over_only_its_own_keys() {
        let before: BTreeSet<_> = (1..=3).map(node).collect();
        let after: BTreeSet<_> = (1..=4).map(node).collect();
        let keys: Vec<String> = (0..KEYS).map(|number| format!("key-{number}")).collect();
        let moved = keys.iter().filter(|key| owner(key, &before) != owner(key, &after));
        assert!(moved.clone().all(|key| owner(key, &after) == Some(node(4))));
        assert!((KEYS / 8..KEYS / 2).contains(&moved.count()), "about a quarter of the keys moves");
        assert_eq!(owner("a", &BTreeSet::new()), None);
    }

    #[test]
    fn a_chart_shows_the_worst_of_each_second() {
        let round = |at: u64, hits: usize, new: &[u8]| Round {
            at: Duration::from_millis(at),
            hits,
            misses: 4 - hits,
            failures: 0,
            new: new.iter().map(|number| node(*number)).collect(),
        };
        let rate = HitRate(vec![round(0, 0, &[1]), round(400, 4, &[]), round(1_000, 3, &[2]), round(1_900, 4, &[])]);
        let expected = format!(
            "   0 s {}   0 % +10.0.0.1:11211\n   1 s {}{}  75 % +10.0.0.2:11211\n",
            "·".repeat(40),
            "█".repeat(30),
            "·".repeat(10)
        );
        assert_eq!(rate.to_string(), expected);
        assert!((rate.lowest() - 0.75).abs() < 1e-9, "the first round fills the cache");
    }
}
