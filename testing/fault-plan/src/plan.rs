//! Plans, their rules, and their text form.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{action::Action, invalid::InvalidPlan, lexer::Tokens, pattern::Pattern, when::When};

/// A list of rules that inject faults. The empty plan injects none.
///
/// As text: rules separated by `;`, each `WHEN PATTERN [#COUNT] -> ACTION [+ ACTION]…`. WHEN is `before` (the runner has not yet
/// forwarded the request), `after` (the server has handled it, and the client has no answer yet), `delivered` (the client has the
/// answer) or `frame` (an event of a watch; the verb of the pattern is then the type of the event). See [`Pattern`], [`Count`]
/// and [`Action`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Plan(Vec<Rule>);

/// A trigger, and the actions to execute when it fires.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    trigger: Trigger,
    actions: Vec<Action>,
}

/// The condition under which a rule applies. It never depends on time, because a plan must do the same on a slow machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Trigger {
    /// The point in the life of a request, or `Frame`.
    pub when: When,
    /// Selects the requests or frames to count.
    pub pattern: Pattern,
    /// Selects among the counted ones.
    pub count: Count,
}

/// Selects among the matching requests or frames, counted from one: `#3`, `#3..`, `#3..5`. Without a count, all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Count {
    first: u32,
    last: Option<u32>,
}

impl Plan {
    /// A plan with these rules. If several rules apply to one request, all their actions are executed, in this order.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self(rules.into_iter().collect())
    }

    /// The rules of the plan.
    pub fn rules(&self) -> &[Rule] {
        &self.0
    }

    /// Combines both plans.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

impl Rule {
    /// A rule with these actions.
    ///
    /// # Errors
    ///
    /// There is no action, or an action is not possible at the trigger's point.
    pub fn new(trigger: Trigger, actions: impl IntoIterator<Item = Action>) -> Result<Self, InvalidPlan> {
        let actions: Vec<Action> = actions.into_iter().collect();
        match actions.iter().find(|action| !action.fits(trigger.when)) {
            Some(action) => Err(InvalidPlan(format!("`{action}` is not possible at `{}`", trigger.when))),
            None if actions.is_empty() => Err(InvalidPlan("a rule without an action".to_owned())),
            None => Ok(Self { trigger, actions }),
        }
    }

    /// The condition under which the rule applies.
    pub fn trigger(&self) -> &Trigger {
        &self.trigger
    }

    /// The actions of the rule; never empty.
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }
}

impl Count {
    /// Selects all.
    pub const EVERY: Self = Self { first: 1, last: None };

    /// Selects only the k-th.
    pub const fn nth(k: u32) -> Self {
        Self { first: k, last: Some(k) }
    }

    /// Selects the k-th and all later ones.
    pub const fn from(k: u32) -> Self {
        Self { first: k, last: None }
    }

    /// Selects the first k.
    pub const fn first(k: u32) -> Self {
        Self { first: 1, last: Some(k) }
    }

    pub(crate) fn includes(self, k: u32) -> bool {
        self.first <= k && self.last.is_none_or(|last| k <= last)
    }

    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('#')?;
        let (first, last) = match text.split_once("..") {
            None => (text.parse().ok()?, Some(text.parse().ok()?)),
            Some((first, "")) => (first.parse().ok()?, None),
            Some((first, last)) => (first.parse().ok()?, Some(last.parse().ok()?)),
        };
        (first >= 1 && last.is_none_or(|last| last >= first)).then_some(Self { first, last })
    }
}

impl FromStr for Plan {
    type Err = InvalidPlan;

    fn from_str(text: &str) -> Result<Self, InvalidPlan> {
        let mut tokens = Tokens::of(text)?;
        let mut rules = Vec::new();
        while !tokens.is_empty() {
            rules.push(Rule::parse(&mut tokens)?);
            if !tokens.semicolon() && !tokens.is_empty() {
                let found = tokens.word("`;`")?;
                return Err(InvalidPlan(format!("expected `;`, `+` or the end, found `{found}`")));
            }
        }
        Ok(Self(rules))
    }
}

impl Rule {
    fn parse(tokens: &mut Tokens) -> Result<Self, InvalidPlan> {
        let when = match tokens.word("before, after, delivered or frame")?.as_str() {
            "before" => When::Before,
            "after" => When::After,
            "delivered" => When::Delivered,
            "frame" => When::Frame,
            other => {
                return Err(InvalidPlan(format!(
                    "a rule begins with before, after, delivered or frame, not with `{other}`"
                )));
            }
        };
        let pattern = Pattern::parse(tokens)?;
        let count = match tokens.word_if(|word| word.starts_with('#')) {
            Some(word) => Count::parse(&word)
                .ok_or_else(|| InvalidPlan(format!("`{word}` is not a count such as #2, #2.. or #1..5")))?,
            None => Count::EVERY,
        };
        if !tokens.keyword("->") {
            let found = tokens.word("`->`")?;
            return Err(InvalidPlan(format!("expected `->` and an action, found `{found}`")));
        }
        let mut actions = vec![Action::parse(tokens)?];
        while tokens.keyword("+") {
            actions.push(Action::parse(tokens)?);
        }
        Self::new(Trigger { when, pattern, count }, actions)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rule) in self.0.iter().enumerate() {
            write!(f, "{}{rule}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trigger { when, pattern, count } = &self.trigger;
        write!(f, "{when} {pattern}{count} ->")?;
        for (index, action) in self.actions.iter().enumerate() {
            write!(f, "{} {action}", if index == 0 { "" } else { " +" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (1, None) => Ok(()),
            (first, None) => write!(f, " #{first}.."),
            (first, Some(last)) if first == last => write!(f, " #{first}"),
            (first, Some(last)) => write!(f, " #{first}..{last}"),
        }
    }
}

impl From<Plan> for String {
    fn from(plan: Plan) -> Self {
        plan.to_string()
    }
}

impl TryFrom<String> for Plan {
    type Error = InvalidPlan;

    fn try_from(text: String) -> Result<Self, InvalidPlan> {
        text.parse()
    }
}
