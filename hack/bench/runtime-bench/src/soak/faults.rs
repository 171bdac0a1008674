//! Draws faults between the operator and its API server: pages of a fault plan, from a seed.
//!
//! A fault plan has counts, but no chances. So the chances are drawn in advance: a page decides for each of the next requests,
//! writes, watches and events whether it gets a fault, and which. When a page is used up, the next one replaces it.
//!
//! All faults are ones that an API server or the network can cause. So no event is lost while its stream continues.

use fastrand::Rng;
use fault_plan::{Action, Plan};

/// The number of requests, and of events, for which one page decides.
pub(crate) const PAGE: u32 = 400;

/// The chances of faults, from 0 to 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    /// The chance of a request. Writes have the same chance a second time.
    pub(crate) requests: f64,
    /// The chance of a new watch.
    pub(crate) watches: f64,
    /// The chance of an event of a watch.
    pub(crate) events: f64,
}

impl Rates {
    /// Derives all chances from that of requests. It is higher for watches, because they begin seldom, and lower for events,
    /// because a cut event costs a new watch.
    pub(crate) fn of(requests: f64) -> Self {
        Self { requests, watches: (requests * 10.0).min(0.5), events: requests / 5.0 }
    }
}

/// The faults of any request. Faults that are more frequent in practice appear twice.
const REQUEST: [&str; 17] = [
    "before * * {} -> drop",
    "before * * {} -> drop",
    "after * * {} -> drop",
    "after * * {} -> drop",
    "before * * {} -> answer 401",
    "before * * {} -> answer 429 retry-after=\"1\"",
    "before * * {} -> answer 500",
    "before * * {} -> answer 502 html",
    "before * * {} -> answer 503",
    "before * * {} -> answer 503 empty",
    "before * * {} -> answer 503 body=\"{\\\"kind\\\":\"",
    "before * * {} -> answer 504",
    "before * * {} -> delay {ms}",
    "before * * {} -> delay {ms}",
    "before * * {} -> stall",
    "after * * {} -> truncate 40",
    "after * * {} -> trickle 200 20ms",
];
/// The additional faults of writes. Most of them come after the server has executed the write.
const WRITE: [&str; 6] = [
    "before write * {} -> answer 409",
    "before write * {} -> duplicate",
    "after write * {} -> drop",
    "after write * {} -> answer 504",
    "after write * {} -> delay {ms}",
    "after write * {} -> stall",
];
/// The faults of a new watch.
const WATCH: [&str; 4] = [
    "before watch * {} -> answer 410",
    "after watch * {} -> cut {n}",
    "after watch * {} -> truncate 300",
    "after watch * {} -> trickle 500 2ms",
];
/// The faults of an event.
const EVENT: [&str; 7] = [
    "frame * * {} -> delay {ms}",
    "frame * * {} -> delay {ms}",
    "frame * * {} -> duplicate",
    "frame * * {} -> cut",
    "frame * * {} -> gone",
    "frame * * {} -> truncate 50",
    "frame * * {} -> stall",
];

/// Draws the next page.
pub(crate) fn page(rng: &mut Rng, rates: Rates) -> Plan {
    let sorts: [(&[&str], f64); 4] =
        [(&REQUEST, rates.requests), (&WRITE, rates.requests), (&WATCH, rates.watches), (&EVENT, rates.events)];
    let mut rules = Vec::new();
    for (templates, rate) in sorts {
        for k in 1..=PAGE {
            if rng.f64() < rate {
                let template = templates[rng.usize(..templates.len())];
                rules.push(
                    template
                        .replace("{}", &format!("#{k}"))
                        .replace("{ms}", &format!("{}ms", rng.u32(20..3_000)))
                        .replace("{n}", &rng.u32(1..60).to_string()),
                );
            }
        }
    }
    // A test parses each template.
    rules.join("; ").parse().unwrap_or_default()
}

/// The name of a fault in the table.
pub(crate) fn kind(action: &Action) -> String {
    let text = action.to_string();
    let words = if matches!(action, Action::Answer(_)) { 2 } else { 1 };
    text.split_whitespace().take(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_determines_plan() {
        let page = |seed| page(&mut Rng::with_seed(seed), Rates::of(0.02));
        assert_eq!(page(1), page(1));
        assert_ne!(page(1), page(2));
    }

    #[test]
    fn every_template_parses_and_is_drawn_at_its_rate() {
        let (mut rng, rates) = (Rng::with_seed(4), Rates::of(0.05));
        let pages: Vec<Plan> = (0..200).map(|_| page(&mut rng, rates)).collect();
        let lines: Vec<String> = pages.iter().flat_map(Plan::rules).map(ToString::to_string).collect();
        let expected = 200.0 * f64::from(PAGE) * (2.0 * rates.requests + rates.watches + rates.events);
        let drawn = f64::from(u32::try_from(lines.len()).expect("few"));
        assert!((drawn / expected - 1.0).abs() < 0.05, "{drawn} and not {expected}");
        for template in [&REQUEST[..], &WRITE, &WATCH, &EVENT].concat() {
            let (head, tail) = template.split_once("{}").expect("a count");
            let tail = tail.split('{').next().expect("a text").trim_end_matches('\\');
            assert!(
                lines.iter().any(|line| line.starts_with(head) && line.contains(tail.trim_end_matches('"'))),
                "{template}"
            );
        }
    }

    #[test]
    fn zero_rate_gives_empty_plan() {
        assert_eq!(page(&mut Rng::with_seed(1), Rates::of(0.0)), Plan::default());
    }

    #[test]
    fn no_event_fault_loses_event_on_open_stream() {
        for template in EVENT {
            assert!(!["drop", "hold", "join", "replace"].iter().any(|word| template.ends_with(word)), "{template}");
        }
    }

    #[test]
    fn fault_kind_is_derived_from_action() {
        let kind = |text: &str| {
            let plan: Plan = format!("before get * -> {text}").parse().expect("a plan");
            super::kind(&plan.rules()[0].actions()[0])
        };
        assert_eq!(kind("answer 429 retry-after=\"1\""), "answer 429");
        assert_eq!(kind("delay 20ms"), "delay");
        assert_eq!(kind("drop"), "drop");
    }
}
