//! Tests of the text form: a plan is written as one line, and parsing the line gives the same plan.

use std::time::Duration;

use fault_plan::{Action, Answer, Body, Count, Glob, Pattern, Plan, Rule, Trigger, When};
use proptest::prelude::*;

#[test]
fn examples_round_trip() {
    for line in [
        "",
        "before create deployments.apps */web #2 -> signal kill + drop",
        "after patch memcacheds.cache.example.com/status shop/web -> drop",
        "before write * as operator:* #1..5 -> answer 429 retry-after=\"1\"",
        "before get services.core #3.. -> answer 502 html",
        "after POST /v1/bookings #1 -> answer 200 content-type=\"text/plain\" body=\"say \\\"no\\\";\\n\"",
        "after watch pods.core -> cut 3; before list pods.core #1 -> delay 1500ms",
        "frame MODIFIED deployments.apps */web own #1 -> delay 500ms; frame * pods.core #2 -> gone",
        "frame DELETED pods.core /web -> hold; frame ADDED * -> replace \"{\" + cut; delivered patch * -> signal kill",
        "after get * -> trickle 1 1ms + truncate 10; before delete */status -> duplicate",
    ] {
        let plan: Plan = line.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(plan.to_string(), line);
        let json = serde_json::to_string(&plan).expect("JSON");
        assert_eq!(serde_json::from_str::<Plan>(&json).expect("a plan"), plan);
    }
}

#[test]
fn invalid_plan_is_rejected_with_a_reason() {
    for (line, why) in [
        ("create deployments.apps -> drop", "a rule begins with before, after, delivered or frame, not with `create`"),
        ("before create", "expected a resource such as deployments.apps, or a path, found the end"),
        ("before create deployments.apps", "expected `->`, found the end"),
        ("before create deployments.apps #0 -> drop", "`#0` is not a count such as #2, #2.. or #1..5"),
        ("before create deployments.apps #3..2 -> drop", "`#3..2` is not a count such as #2, #2.. or #1..5"),
        ("before create deployments.apps -> explode", "unknown action `explode`: the actions are drop, "),
        ("before create deployments.apps -> hold", "`hold` is not possible at `before`"),
        ("frame ADDED pods.core -> answer 500", "`answer 500` is not possible at `frame`"),
        ("delivered create pods.core -> drop", "`drop` is not possible at `delivered`"),
        ("before create pods.core -> answer 99", "a status code is 200 to 599"),
        ("before create pods.core -> delay soon", "`soon` is not a time such as 5s or 300ms"),
        ("before create pods.core -> drop drop", "expected `;`, `+` or the end, found `drop`"),
        ("frame ADDED pods.core -> replace \"x", "a text without its closing quote"),
    ] {
        let error = line.parse::<Plan>().expect_err(line).to_string();
        assert!(error.starts_with(&format!("not a fault plan: {why}")), "{line}: {error}");
    }
}

fn word() -> impl Strategy<Value = String> {
    "[a-z*][a-z0-9.-]{0,6}"
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let target = prop_oneof![
        word(),
        (word(), word()).prop_map(|(a, b)| format!("{a}.x/{b}")),
        word().prop_map(|path| format!("/{path}/x"))
    ];
    (word(), target, word(), word(), word(), any::<bool>()).prop_map(|(verb, target, namespace, name, who, own)| {
        Pattern {
            namespace: Glob::new(namespace),
            name: Glob::new(name),
            identity: Glob::new(who),
            own,
            ..Pattern::new(&verb, &target)
        }
    })
}

fn answer() -> impl Strategy<Value = Answer> {
    let body =
        prop_oneof![Just(Body::Status), Just(Body::Html), Just(Body::Empty), any::<String>().prop_map(Body::Text),];
    let headers = prop::collection::vec(("x-[a-z]{1,5}", any::<String>()), 0..3);
    (200..600_u16, headers, body).prop_map(|(code, headers, body)| Answer { code, headers, body })
}

fn action() -> impl Strategy<Value = Action> {
    let time = || any::<u64>().prop_map(Duration::from_nanos);
    prop_oneof![
        Just(Action::Drop),
        answer().prop_map(Action::Answer),
        time().prop_map(Action::Delay),
        (any::<usize>(), time()).prop_map(|(bytes, time)| Action::Trickle(bytes, time)),
        any::<usize>().prop_map(Action::Truncate),
        Just(Action::Duplicate),
        Just(Action::Hold),
        any::<u32>().prop_map(Action::Cut),
        Just(Action::Gone),
        Just(Action::Stall),
        Just(Action::Join),
        any::<String>().prop_map(Action::Replace),
        word().prop_map(Action::Signal),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let when = prop_oneof![Just(When::Before), Just(When::After), Just(When::Delivered), Just(When::Frame)];
    let count = prop_oneof![
        Just(Count::EVERY),
        (1..9_u32).prop_map(Count::nth),
        (1..9_u32).prop_map(Count::from),
        (1..9_u32).prop_map(Count::first)
    ];
    (when, pattern(), count, prop::collection::vec(action(), 1..4))
        .prop_filter_map("actions that are not possible there", |(when, pattern, count, actions)| {
            Rule::new(Trigger { when, pattern, count }, actions).ok()
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(17), ..ProptestConfig::default() })]

    #[test]
    fn any_plan_round_trips_through_one_line(rules in prop::collection::vec(rule(), 0..4)) {
        let plan = Plan::new(rules);
        let line = plan.to_string();
        prop_assert_eq!(line.lines().count(), usize::from(!line.is_empty()));
        prop_assert_eq!(line.parse::<Plan>(), Ok(plan), "{}", line);
    }

    #[test]
    fn parser_never_panics(text in "\\PC{0,60}", words in prop::collection::vec("(before|after|frame|create|pods\\.core|\\*|#1|->|drop|answer|503|delay|1s|\\+|;|\"|a/b|as|own){1}", 0..12)) {
        drop(text.parse::<Plan>());
        drop(words.join(" ").parse::<Plan>());
    }
}
