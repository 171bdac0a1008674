//! Which faults meet which requests and watch events, and for how long each of them hinders the operator.

use std::collections::{BTreeMap, BTreeSet};

use fault_plan::{Answer, Body};

use super::*;
use crate::{
    disturbance::Phase,
    network::{
        Trouble,
        refusals::{BACK_OFF, POLL},
    },
};

const VERBS: [Verb; 7] = [Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Update, Verb::Patch, Verb::Delete];

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The state of a network with these troubles. Those of one kind concern pods.
fn suffering(acts: &[Act]) -> State {
    let mut state = State::new(7);
    let trouble = |act: &Act| Trouble { act: *act, until: Duration::MAX, seed: 3, about: "pods".to_owned() };
    state.troubles.extend(acts.iter().map(trouble));
    state
}

fn request(verb: Verb, plural: &str) -> RequestInfo {
    RequestInfo {
        client: "operator-0".to_owned(),
        verb,
        method: "GET".parse().expect("a method"),
        path: String::new(),
        group: String::new(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        subresource: String::new(),
        namespace: "shop".to_owned(),
        name: "a".to_owned(),
        query: BTreeMap::new(),
        content_type: String::new(),
        user_agent: String::new(),
        body: Vec::new().into(),
    }
}

fn answered(state: &mut State, verb: Verb, plural: &str) -> Due {
    let mut due = Due::default();
    state.disturb_answer(at(1), &request(verb, plural), &mut due);
    due
}

fn delivered(state: &mut State, now: Duration, plural: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    state.disturb_event(now, &request(Verb::Watch, plural), &mut actions);
    actions
}

fn effects(state: &State, act: Act) -> usize {
    let count = state.effects.get(&(act, Phase::AnyTime)).copied().unwrap_or_default();
    usize::try_from(count).expect("a count")
}

#[test]
fn faults_meet_the_requests_that_can_suffer_them_and_are_counted() {
    let writes: &[Verb] = &[Verb::Create, Verb::Update, Verb::Patch, Verb::Delete];
    let answers: &[Verb] = &[Verb::Get, Verb::List, Verb::Create, Verb::Update, Verb::Patch, Verb::Delete];
    let all: &[Verb] = &VERBS;
    let single: &[Verb] = &[Verb::Get, Verb::Create, Verb::Update, Verb::Patch, Verb::Delete];
    let (reads, get, none): (&[Verb], &[Verb], &[Verb]) = (&[Verb::List, Verb::Watch], &[Verb::Get], &[]);
    for (act, plural, verbs) in [
        (Act::LoadBalancerRefuses, "pods", all),
        (Act::SilentRequests, "pods", single),
        (Act::Conflicts, "pods", writes),
        (Act::Forbidden, "pods", reads),
        (Act::Forbidden, "secrets", none),
        (Act::Denied, "pods", writes),
        (Act::Denied, "secrets", none),
        (Act::Repetitions, "pods", writes),
        (Act::TruncatedAnswers, "pods", answers),
        (Act::TricklingAnswers, "pods", answers),
        (Act::LateLease, "pods", none),
        (Act::LateLease, "leases", get),
    ] {
        for verb in VERBS {
            let mut state = suffering(&[act]);
            let met = (0..100).filter(|_| answered(&mut state, verb, plural) != Due::default()).count();
            assert_eq!(met > 0, verbs.contains(&verb), "{act:?}: {verb:?} of {plural}");
            assert_eq!(met, effects(&state, act), "{act:?}: {verb:?} of {plural}");
        }
    }
}

#[test]
fn refused_request_suffers_and_counts_nothing_else() {
    let mut state = suffering(&[Act::Repetitions, Act::TruncatedAnswers, Act::Conflicts]);
    let all: Vec<Due> = (0..200).map(|_| answered(&mut state, Verb::Patch, "pods")).collect();
    let (refused, handled): (Vec<_>, Vec<_>) = all.iter().partition(|due| !is_handled(due));
    assert!(refused.iter().all(|due| due.before.len() == 1 && due.after.is_empty()), "{refused:?}");
    let twice = handled.iter().filter(|due| due.before.contains(&Action::Duplicate)).count();
    let truncated = handled.iter().filter(|due| !due.after.is_empty()).count();
    let counted = [Act::Conflicts, Act::Repetitions, Act::TruncatedAnswers].map(|act| effects(&state, act));
    assert_eq!(counted, [refused.len(), twice, truncated]);
    assert!(!counted.contains(&0), "{counted:?}");
}

#[test]
fn load_balancer_answers_with_a_page_or_nothing_and_may_tell_the_client_to_wait() {
    let mut state = suffering(&[Act::LoadBalancerRefuses]);
    let mut met = BTreeSet::new();
    for _ in 0..500 {
        for action in answered(&mut state, Verb::Get, "pods").before {
            let Action::Answer(Answer { code, headers, body }) = action else { panic!("not an answer") };
            met.insert((code, !headers.is_empty(), body == Body::Html));
        }
    }
    let forms = [(429, false), (429, true), (502, false), (503, false), (503, true), (504, false)];
    let all = forms.into_iter().flat_map(|(code, waits)| [false, true].map(|is_page| (code, waits, is_page)));
    assert_eq!(met, all.collect::<BTreeSet<(u16, bool, bool)>>());
    assert_eq!(state.troubled_until, at(1) + Duration::from_secs(7), "the operator waits for the longest one");
}

#[test]
fn silent_request_is_handled_or_not_and_is_trouble_until_it_is_given_up() {
    let mut state = suffering(&[Act::SilentRequests]);
    let all: Vec<Due> = (0..200).map(|_| answered(&mut state, Verb::Get, "pods")).collect();
    let lost = all.iter().filter(|due| due.before == [Action::Stall] && due.after.is_empty()).count();
    let unanswered = all.iter().filter(|due| due.before.is_empty() && due.after == [Action::Stall]).count();
    assert!(lost > 0 && unanswered > 0, "{lost} {unanswered}");
    assert_eq!(lost + unanswered, effects(&state, Act::SilentRequests));
    assert_eq!(state.troubled_until, at(1) + UNANSWERED);
    // The operator may not know what a write has done only if the API server has handled it.
    for _ in 0..100 {
        state.lost.clear();
        let due = answered(&mut state, Verb::Patch, "pods");
        assert_eq!(state.lost.is_empty(), due.after.is_empty(), "{due:?}");
    }
}

#[test]
fn late_request_is_given_up_and_arrives_once() {
    for (verb, (plural, group), is_met) in [
        (Verb::Patch, ("pods", ""), true),
        (Verb::Delete, ("pods", ""), true),
        (Verb::Create, ("pods", ""), true),
        (Verb::Create, ("jobs", "batch"), false),
        (Verb::Get, ("pods", ""), false),
    ] {
        let mut state = suffering(&[Act::LateRequests]);
        let asked = RequestInfo { group: group.to_owned(), ..request(verb, plural) };
        let mut send = || state.request(at(5), &asked).before == [Action::Drop];
        let dropped = (0..20).filter(|_| send()).count();
        assert_eq!(dropped > 0, is_met, "{verb:?} of {plural}");
        assert_eq!(dropped, effects(&state, Act::LateRequests));
        let arrivals = [5, 15, 15].map(|second| state.take_late(at(second)).len());
        assert_eq!(arrivals, [0, dropped, 0], "{verb:?}");
        assert_eq!(state.troubled_until == at(15), is_met, "{verb:?} is trouble until it arrives");
    }
}

#[test]
fn refused_write_is_trouble_until_the_operator_tries_again() {
    let told = |seed: u64| {
        let mut state = suffering(&[Act::Denied]);
        state.troubles[0].seed = seed;
        let due = answered(&mut state, Verb::Patch, "pods");
        let [Action::Answer(Answer { code, body: Body::Text(text), .. })] = &due.before[..] else { panic!("{due:?}") };
        (*code, text.clone(), state.troubled_until)
    };
    for (seed, code, part, wait) in [
        (0, 403, "cannot patch resource", POLL),
        (1, 403, "admission webhook", BACK_OFF),
        (2, 422, "ValidatingAdmissionPolicy 'fridays'", BACK_OFF),
        (3, 403, "violates PodSecurity", BACK_OFF),
    ] {
        let (found, text, until) = told(seed);
        assert!(found == code && text.contains(part) && until == at(1) + wait, "{seed}: {found} {text} {until:?}");
    }
}

#[test]
fn some_disturbances_act_at_any_request_and_the_others_at_those_of_reconciles() {
    let acts = |verb: Verb, plural: &str, phase: Phase, at_any_request: bool| {
        let mut state = State::new(7);
        state.armed.push(crate::network::Armed::new(0, phase, None, at_any_request));
        state.request(at(1), &request(verb, plural)) != Due::default()
    };
    for (verb, plural, is_work) in [
        (Verb::Patch, "pods", true),
        (Verb::List, "pods", false),
        (Verb::Watch, "pods", false),
        (Verb::Update, "leases", false),
        (Verb::Create, "events", false),
    ] {
        assert_eq!(acts(verb, plural, Phase::BeforeAnswer, false), is_work, "{verb:?} of {plural}");
        assert!(acts(verb, plural, Phase::BeforeAnswer, true), "{verb:?} of {plural}");
        let is_watch = verb == Verb::Watch;
        assert_eq!(acts(verb, plural, Phase::BeforeDelivery, true), !is_watch, "{verb:?} of {plural}");
    }
}

#[test]
fn event_meets_one_fault_and_none_at_the_end_of_its_watch() {
    let mut state = suffering(&[Act::Repetitions, Act::TricklingAnswers]);
    assert_eq!(delivered(&mut state, at(1), "pods"), [Action::Duplicate]);
    for end in [Action::Cut(0), Action::Gone] {
        let mut actions = vec![end.clone()];
        state.disturb_event(at(1), &request(Verb::Watch, "pods"), &mut actions);
        assert_eq!(actions, [end]);
    }
    assert_eq!((effects(&state, Act::Repetitions), effects(&state, Act::TricklingAnswers)), (1, 0));
    state.troubles[0].seed = 2;
    let all: Vec<Action> = (0..100).flat_map(|_| delivered(&mut state, at(1), "pods")).collect();
    assert!(all.contains(&Action::Join) && all.contains(&Action::Duplicate), "{all:?}");
}

#[test]
fn watch_falls_silent_rarely_and_is_trouble_until_it_is_given_up() {
    let mut state = suffering(&[Act::SilentWatches]);
    assert!(delivered(&mut state, at(1), "secrets").is_empty());
    assert_eq!(delivered(&mut state, at(1), "pods"), [Action::Stall]);
    assert_eq!(state.troubled_until, at(1) + SILENCE);
    assert!(delivered(&mut state, at(300), "pods").is_empty());
    assert_eq!(delivered(&mut state, at(1) + BETWEEN_SILENCES, "pods"), [Action::Stall]);
    assert_eq!(effects(&state, Act::SilentWatches), 2);
}

#[test]
fn lost_answer_is_unknown_until_the_silent_watch_that_would_tell_is_given_up() {
    let unknown_until = |process: &str, silent: Option<(&str, u64)>| {
        let mut state = State::new(7);
        state.lose(at(10), &request(Verb::Patch, "pods"));
        if let Some((resource, since)) = silent {
            state.silent.insert(("operator-0".to_owned(), resource.to_owned()), at(since));
        }
        assert!(!state.may_not_know(at(10), process, "services", "shop/a", at(60)), "another object of that name");
        (0..1_000).find(|second| !state.may_not_know(at(*second), process, "pods", "shop/a", at(60)))
    };
    assert_eq!(unknown_until("operator-0", None), Some(70));
    assert_eq!(unknown_until("operator-0", Some(("pods", 30))), Some(30 + 240 + 60));
    assert_eq!(unknown_until("operator-0", Some(("pods", 80))), Some(70), "the watch has told before");
    assert_eq!(unknown_until("operator-0", Some(("services", 30))), Some(70), "this watch tells of other objects");
    assert_eq!(unknown_until("operator-1", Some(("pods", 30))), Some(70), "this watch tells another process");
}

#[test]
fn trouble_hinders_the_operator_as_long_as_its_effects_last() {
    let mut state = suffering(&[Act::Quota]);
    state.request(at(5), &request(Verb::Create, "secrets"));
    assert_eq!(state.troubled_until, Duration::ZERO, "the quota of pods has met nothing");
    state.request(at(6), &request(Verb::Create, "pods"));
    assert_eq!(state.troubled_until, at(6));

    let mut state = suffering(&[Act::SlowRequests]);
    let due = state.request(at(5), &request(Verb::Get, "pods"));
    let held: Duration = due.before.iter().chain(&due.after).map(delays).sum();
    assert!(!held.is_zero() && state.troubled_until == at(5) + held, "{due:?}: {:?}", state.troubled_until);

    let mut state = suffering(&[Act::LateEvents]);
    state.frame(at(5), &request(Verb::Watch, "secrets"));
    assert_eq!(state.troubled_until, Duration::ZERO, "only events of pods are late");
    let late: Duration = state.frame(at(6), &request(Verb::Watch, "pods")).iter().map(delays).sum();
    assert!(!late.is_zero() && state.troubled_until == at(6) + late, "{late:?}: {:?}", state.troubled_until);
}

#[test]
fn watch_is_silent_until_it_is_given_up() {
    let mut state = suffering(&[Act::SilentWatches]);
    delivered(&mut state, at(10), "pods");
    let is_silent = |second: u64, resource: &str| state.is_silent(at(second), resource);
    assert!(is_silent(10, "pods") && is_silent(249, "pods"));
    assert!(!is_silent(250, "pods") && !is_silent(10, "services"));
}
