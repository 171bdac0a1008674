//! The execution state of a plan: counts matching requests and frames, and returns the actions that are due.

use crate::{
    action::Action,
    plan::{Plan, Rule},
    request::{Frame, Request},
    when::When,
};

/// The execution state of a plan.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    rules: Vec<Counted>,
}

#[derive(Debug, Clone)]
struct Counted {
    rule: Rule,
    /// Number of requests or frames that have matched.
    seen: u32,
    /// Number of these to which the rule was applied.
    applied: u32,
}

/// The actions that are due for one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Due {
    /// Before the runner forwards the request.
    pub before: Vec<Action>,
    /// After the server has handled it, before the client gets the answer.
    pub after: Vec<Action>,
    /// After the client has the answer.
    pub delivered: Vec<Action>,
}

impl Progress {
    /// Starts this plan.
    pub fn new(plan: &Plan) -> Self {
        let rules = plan.rules().iter().cloned();
        Self { rules: rules.map(|rule| Counted { rule, seen: 0, applied: 0 }).collect() }
    }

    /// Counts this request, and returns the actions that are due for it.
    pub fn request(&mut self, request: &Request) -> Due {
        let mut due = Due::default();
        for counted in &mut self.rules {
            let trigger = counted.rule.trigger();
            let actions = match trigger.when {
                When::Before => &mut due.before,
                When::After => &mut due.after,
                When::Delivered => &mut due.delivered,
                When::Frame => continue,
            };
            if trigger.pattern.matches(request) && counted.count() {
                actions.extend_from_slice(counted.rule.actions());
            }
        }
        due
    }

    /// Counts this event of that watch, and returns the actions that are due for it.
    pub fn frame(&mut self, watch: &Request, frame: &Frame) -> Vec<Action> {
        let mut due = Vec::new();
        for counted in &mut self.rules {
            let trigger = counted.rule.trigger();
            if trigger.when == When::Frame && trigger.pattern.matches_frame(watch, frame) && counted.count() {
                due.extend_from_slice(counted.rule.actions());
            }
        }
        due
    }

    /// Returns the rules that were never applied. If a rule never applied, the test has tested nothing.
    pub fn unused(&self) -> Vec<&Rule> {
        self.rules.iter().filter(|counted| counted.applied == 0).map(|counted| &counted.rule).collect()
    }
}

impl Counted {
    fn count(&mut self) -> bool {
        self.seen += 1;
        let applies = self.rule.trigger().count.includes(self.seen);
        self.applied += u32::from(applies);
        applies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(plan: &str) -> Progress {
        Progress::new(&plan.parse().expect(plan))
    }

    fn patch(name: &str) -> Request {
        Request::parse("PATCH", &format!("/apis/apps/v1/namespaces/shop/deployments/{name}"), "")
    }

    #[test]
    fn count_selects_among_matching_requests() {
        for (count, expected) in [
            ("#2", [false, true, false, false]),
            ("#2..", [false, true, true, true]),
            ("#2..3", [false, true, true, false]),
            ("", [true, true, true, true]),
        ] {
            let mut progress = progress(&format!("before patch deployments.apps */web {count} -> drop"));
            let mut applied = Vec::new();
            for _ in 0..4 {
                assert_eq!(progress.request(&patch("other")), Due::default(), "the rule does not count another object");
                applied.push(!progress.request(&patch("web")).before.is_empty());
            }
            assert_eq!(applied, expected, "{count}");
        }
    }

    #[test]
    fn rules_count_independently_and_combine() {
        let mut progress =
            progress("before patch * #1 -> delay 1s; after patch * #1 -> drop; delivered patch * #2 -> signal kill");
        let first = progress.request(&patch("web"));
        assert_eq!((first.before.len(), first.after.len(), first.delivered.len()), (1, 1, 0));
        let unused: Vec<String> = progress.unused().iter().map(ToString::to_string).collect();
        assert_eq!(unused, ["delivered patch * #2 -> signal kill"]);
        assert_eq!(progress.request(&patch("web")).delivered, [Action::Signal("kill".to_owned())]);
        assert!(progress.unused().is_empty());
    }

    #[test]
    fn frames_are_counted_by_type_and_object() {
        let mut progress = progress("frame MODIFIED deployments.apps */web own #2 -> hold");
        let watch = Request::parse("GET", "/apis/apps/v1/deployments", "watch=true");
        let mut due = |type_: &str, name: &str, own| {
            let frame = Frame { type_: type_.to_owned(), namespace: "shop".to_owned(), name: name.to_owned(), own };
            !progress.frame(&watch, &frame).is_empty()
        };
        assert!(!due("MODIFIED", "web", true));
        assert!(!due("ADDED", "web", true));
        assert!(!due("MODIFIED", "web", false), "the write of another client");
        assert!(!due("MODIFIED", "db", true));
        assert!(due("MODIFIED", "web", true), "the second match");
        assert!(progress.request(&watch).before.is_empty(), "a rule for frames ignores requests");
    }
}
