//! Makes plans from the record of a run without faults.
//!
//! A record is the list of requests in their order. Each write of the record gets its own plans. A plan names the write by its
//! pattern and by its number among the writes with the same pattern, so that it hits the same write in the next run.

use std::collections::HashMap;

use crate::{
    action::{Action, Answer, Body},
    pattern::{Glob, Pattern},
    plan::{Count, Plan, Rule, Trigger},
    request::{Frame, Request},
    when::When,
};

/// The name of the signal that makes the runner kill the client.
pub const KILL: &str = "kill";

/// Crashes at three points of each write: before the request is sent; after the server has handled it, with the answer lost; and
/// after the client has the answer.
pub fn crashes(record: &[Request]) -> Vec<Plan> {
    let kill = || Action::Signal(KILL.to_owned());
    each_write(record, |write| {
        vec![
            write.plan(When::Before, [kill(), Action::Drop]),
            write.plan(When::After, [kill(), Action::Drop]),
            write.plan(When::Delivered, [kill()]),
        ]
    })
}

/// All errors that an API server, a load balancer or the network may produce, for each write.
pub fn errors(record: &[Request]) -> Vec<Plan> {
    each_write(record, |write| {
        let answers = [409, 429, 500, 502, 503, 504, 401].map(Answer::code);
        let mut plans: Vec<Plan> =
            answers.into_iter().map(|answer| write.plan(When::Before, [Action::Answer(answer)])).collect();
        let bodies = [Body::Html, Body::Empty, Body::Text("{\"kind\":".to_owned())];
        plans.extend(
            bodies
                .into_iter()
                .map(|body| write.plan(When::Before, [Action::Answer(Answer { body, ..Answer::code(503) })])),
        );
        plans.push(write.plan(When::Before, [Action::Drop]));
        plans.push(write.plan(When::After, [Action::Drop]));
        plans.push(write.plan(When::After, [Action::Answer(Answer::code(504))]));
        plans.push(write.plan(When::After, [Action::Truncate(40)]));
        plans.push(write.plan(When::Before, [Action::Duplicate]));
        plans
    })
}

/// The signal `name` before each write is sent, and after the server has handled it. The runner decides what the signal does.
pub fn signals(record: &[Request], name: &str) -> Vec<Plan> {
    let signal = || Action::Signal(name.to_owned());
    each_write(record, |write| vec![write.plan(When::Before, [signal()]), write.plan(When::After, [signal()])])
}

/// Faults for each event of a record of watches: hold, duplicate, cut, expire, delay. Bookmarks get none.
pub fn events(record: &[(Request, Frame)]) -> Vec<Plan> {
    let mut seen: HashMap<Pattern, u32> = HashMap::new();
    let mut all = Vec::new();
    for (watch, _) in record.iter().filter(|(_, frame)| frame.type_ != "BOOKMARK") {
        let pattern = Pattern::like(watch);
        let k = seen.entry(pattern.clone()).and_modify(|k| *k += 1).or_insert(1);
        let frame = Pattern { verb: Glob::any(), ..pattern };
        let actions = [
            Action::Hold,
            Action::Duplicate,
            Action::Cut(0),
            Action::Gone,
            Action::Delay(std::time::Duration::from_millis(300)),
        ];
        all.extend(actions.map(|action| plan(When::Frame, &frame, *k, [action])));
    }
    all
}

/// A sample of the plans, spread evenly, for the usual run of a test suite. The same seed gives the same sample.
pub fn sample<T>(plans: Vec<T>, count: usize, seed: u64) -> Vec<T> {
    let total = plans.len();
    if count == 0 || total == 0 {
        return Vec::new();
    }
    if count >= total {
        return plans;
    }
    // Draw one plan from each stretch; the seed decides its place in the stretch.
    let mut state = seed;
    let mut chosen = (0..count).map(|stretch| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (from, to) = (stretch * total / count, (stretch + 1) * total / count);
        from + usize::try_from(state >> 33).unwrap_or_default() % (to - from)
    });
    let mut next = chosen.next();
    let mut sample = Vec::with_capacity(count);
    for (index, plan) in plans.into_iter().enumerate() {
        if next == Some(index) {
            sample.push(plan);
            next = chosen.next();
        }
    }
    sample
}

/// One write of the record: its pattern, and its number among the writes with this pattern.
struct Write {
    pattern: Pattern,
    k: u32,
}

impl Write {
    fn plan(&self, when: When, actions: impl IntoIterator<Item = Action>) -> Plan {
        plan(when, &self.pattern, self.k, actions)
    }
}

fn plan(when: When, pattern: &Pattern, k: u32, actions: impl IntoIterator<Item = Action>) -> Plan {
    let trigger = Trigger { when, pattern: pattern.clone(), count: Count::nth(k) };
    // Every combination in this file is valid: a test below checks it.
    Plan::new(Rule::new(trigger, actions).ok())
}

fn each_write(record: &[Request], plans: impl Fn(&Write) -> Vec<Plan>) -> Vec<Plan> {
    let mut seen: HashMap<Pattern, u32> = HashMap::new();
    let mut all = Vec::new();
    for request in record.iter().filter(|request| request.is_write()) {
        let pattern = Pattern::like(request);
        let k = seen.entry(pattern.clone()).and_modify(|k| *k += 1).or_insert(1);
        all.extend(plans(&Write { pattern, k: *k }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Vec<Request> {
        [
            ("GET", "/apis/apps/v1/namespaces/shop/deployments", "watch=true"),
            ("GET", "/apis/apps/v1/namespaces/shop/deployments/web", ""),
            ("POST", "/apis/apps/v1/namespaces/shop/deployments", ""),
            ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web", ""),
            ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web", ""),
            ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web", "dryRun=All"),
        ]
        .map(|(method, path, query)| Request::parse(method, path, query).named("web"))
        .to_vec()
    }

    #[test]
    fn each_write_has_three_crash_points() {
        let text: Vec<String> = crashes(&record()).iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "before create deployments.apps */web #1 -> signal kill + drop",
                "after create deployments.apps */web #1 -> signal kill + drop",
                "delivered create deployments.apps */web #1 -> signal kill",
                "before patch deployments.apps */web #1 -> signal kill + drop",
                "after patch deployments.apps */web #1 -> signal kill + drop",
                "delivered patch deployments.apps */web #1 -> signal kill",
                "before patch deployments.apps */web #2 -> signal kill + drop",
                "after patch deployments.apps */web #2 -> signal kill + drop",
                "delivered patch deployments.apps */web #2 -> signal kill",
            ]
        );
    }

    #[test]
    fn enumerated_plans_have_one_rule_and_parse_back() {
        let record = record();
        let frame = |type_: &str| Frame { type_: type_.to_owned(), ..Frame::default() };
        let frames = ["ADDED", "BOOKMARK", "MODIFIED"].map(|type_| (record[0].clone(), frame(type_)));
        let events = events(&frames);
        assert_eq!(events[5].to_string(), "frame * deployments.apps */web #2 -> hold");
        let all = [crashes(&record), errors(&record), signals(&record, "x"), events].concat();
        assert_eq!(all.len(), 3 * (3 + 15 + 2) + 2 * 5);
        for plan in all {
            assert_eq!(plan.rules().len(), 1);
            assert_eq!(plan.to_string().parse(), Ok(plan));
        }
    }

    #[test]
    fn sample_is_evenly_spread_and_deterministic() {
        let all: Vec<usize> = (0..100).collect();
        let some = sample(all.clone(), 10, 7);
        assert_eq!(some, sample(all.clone(), 10, 7));
        assert_ne!(some, sample(all.clone(), 10, 8));
        assert!(some.iter().enumerate().all(|(stretch, index)| index / 10 == stretch), "{some:?}");
        assert_eq!(sample(all.clone(), 100, 7), all);
        assert_eq!(sample(all, 0, 7), Vec::<usize>::new());
    }

    #[test]
    fn different_seeds_sample_every_plan() {
        for (total, count) in [(21, 7), (200, 9), (8, 5)] {
            let drawn: std::collections::BTreeSet<usize> =
                (0..500).flat_map(|seed| sample((0..total).collect(), count, seed)).collect();
            assert_eq!(drawn.len(), total, "{count} of {total}");
        }
    }
}
