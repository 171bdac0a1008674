//! Actions: the faults that a rule injects into a request, its answer, or an event of a watch.

use std::{fmt, time::Duration};

use crate::{
    invalid::InvalidPlan,
    lexer::{Quoted, Tokens},
    when::When,
};

/// One fault. The runner executes the actions of a rule in their order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Resets the connection. `before`: the server does not handle the request. `after`: the server has handled it, and the
    /// client gets no answer. On a frame: the event is lost and the stream continues; no real API server does this.
    Drop,
    /// Sends this answer instead of the real one. `before`: the server does not handle the request. `after`: it has handled it.
    Answer(Answer),
    /// Delays the request or answer by this time. On a frame: delays this event and all later ones of the stream.
    Delay(Duration),
    /// Sends the bytes in pieces of this size, with this pause between them.
    Trickle(usize, Duration),
    /// Sends only this many bytes of the body. An answer then ends as if it were complete; a stream ends inside the frame.
    Truncate(usize),
    /// Sends the request twice; the client gets the second answer. On a frame: sends the event twice.
    Duplicate,
    /// Holds the event back until a newer event of the same object replaces it, or until the runner releases it.
    Hold,
    /// Ends the stream. In a rule for a watch: after this many frames. In a rule for a frame: after this frame.
    Cut(u32),
    /// Sends an `ERROR` with code 410 instead of the event, and ends the stream.
    Gone,
    /// Sends nothing more and keeps the connection open, until the runner releases it.
    Stall,
    /// Sends the frame twice on one line.
    Join,
    /// Sends this text instead of the frame.
    Replace(String),
    /// Calls the runner's signal handler with this name, and waits until it has finished.
    Signal(String),
}

/// An answer that the runner makes up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The HTTP status code.
    pub code: u16,
    /// Additional headers. A content type among them overrides that of the body.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
}

/// The body of an [`Answer`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Body {
    /// A Kubernetes `Status` for the code.
    Status,
    /// The HTML error page of a load balancer.
    Html,
    /// An empty body.
    Empty,
    /// This text, with the content type of JSON.
    Text(String),
}

impl Answer {
    /// The answer with this code and a `Status`.
    pub fn code(code: u16) -> Self {
        Self { code, headers: Vec::new(), body: Body::Status }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The body's content type and text.
    pub fn content(&self) -> (&'static str, String) {
        match &self.body {
            Body::Status => ("application/json", self.status()),
            Body::Html => {
                ("text/html", format!("<html><body><h1>{} from a load balancer</h1></body></html>\n", self.code))
            }
            Body::Empty => ("application/json", String::new()),
            Body::Text(text) => ("application/json", text.clone()),
        }
    }

    fn status(&self) -> String {
        let code = self.code;
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            410 => "Expired",
            413 => "RequestEntityTooLarge",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "Unknown",
        };
        format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"injected by a fault plan","reason":"{reason}","code":{code}}}"#
        )
    }
}

impl Action {
    /// Whether a rule may have this action at this point.
    pub(crate) fn fits(&self, when: When) -> bool {
        match self {
            Self::Signal(_) => true,
            Self::Drop | Self::Delay(_) | Self::Stall => when != When::Delivered,
            Self::Answer(_) => matches!(when, When::Before | When::After),
            Self::Trickle(..) | Self::Truncate(_) | Self::Cut(_) => matches!(when, When::After | When::Frame),
            Self::Duplicate => matches!(when, When::Before | When::Frame),
            Self::Hold | Self::Gone | Self::Join | Self::Replace(_) => when == When::Frame,
        }
    }

    pub(crate) fn parse(tokens: &mut Tokens) -> Result<Self, InvalidPlan> {
        let word = tokens.word("an action")?;
        Ok(match word.as_str() {
            "drop" => Self::Drop,
            "answer" => Self::Answer(Answer::parse(tokens)?),
            "delay" => Self::Delay(duration(tokens)?),
            "trickle" => Self::Trickle(number(tokens)?, duration(tokens)?),
            "truncate" => Self::Truncate(number(tokens)?),
            "duplicate" => Self::Duplicate,
            "hold" => Self::Hold,
            "cut" => Self::Cut(tokens.word_if(is_number).and_then(|word| word.parse().ok()).unwrap_or_default()),
            "gone" => Self::Gone,
            "stall" => Self::Stall,
            "join" => Self::Join,
            "replace" => Self::Replace(tokens.text("the text that replaces the frame")?),
            "signal" => Self::Signal(tokens.word("the signal's name")?),
            other => {
                return Err(InvalidPlan(format!(
                    "unknown action `{other}`: the actions are drop, answer, delay, trickle, truncate, duplicate, \
                     hold, cut, gone, stall, join, replace and signal"
                )));
            }
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drop => f.write_str("drop"),
            Self::Answer(answer) => answer.fmt(f),
            Self::Delay(time) => write!(f, "delay {}", Time(*time)),
            Self::Trickle(bytes, time) => write!(f, "trickle {bytes} {}", Time(*time)),
            Self::Truncate(bytes) => write!(f, "truncate {bytes}"),
            Self::Duplicate => f.write_str("duplicate"),
            Self::Hold => f.write_str("hold"),
            Self::Cut(0) => f.write_str("cut"),
            Self::Cut(frames) => write!(f, "cut {frames}"),
            Self::Gone => f.write_str("gone"),
            Self::Stall => f.write_str("stall"),
            Self::Join => f.write_str("join"),
            Self::Replace(text) => write!(f, "replace {}", Quoted(text)),
            Self::Signal(name) => write!(f, "signal {name}"),
        }
    }
}

impl Answer {
    fn parse(tokens: &mut Tokens) -> Result<Self, InvalidPlan> {
        let code = tokens.word("a status code")?;
        let code = code.parse().ok().filter(|code| (200..600).contains(code));
        let mut answer = Self::code(code.ok_or_else(|| InvalidPlan("a status code is 200 to 599".to_owned()))?);
        loop {
            if tokens.keyword("html") {
                answer.body = Body::Html;
            } else if tokens.keyword("empty") {
                answer.body = Body::Empty;
            } else if tokens.keyword("body=") {
                answer.body = Body::Text(tokens.text("the body")?);
            } else if let Some(name) = tokens.word_if(|word| word.ends_with('=')) {
                answer = answer.header(name.trim_end_matches('='), &tokens.text("the header's value")?);
            } else {
                return Ok(answer);
            }
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "answer {}", self.code)?;
        for (name, value) in &self.headers {
            write!(f, " {name}={}", Quoted(value))?;
        }
        match &self.body {
            Body::Status => Ok(()),
            Body::Html => f.write_str(" html"),
            Body::Empty => f.write_str(" empty"),
            Body::Text(text) => write!(f, " body={}", Quoted(text)),
        }
    }
}

/// A duration, written in the largest unit that expresses it exactly.
struct Time(Duration);

const UNITS: [(&str, u128); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let (unit, size) = UNITS.into_iter().find(|(_, size)| nanos.is_multiple_of(*size)).unwrap_or(("ns", 1));
        write!(f, "{}{unit}", nanos / size)
    }
}

fn duration(tokens: &mut Tokens) -> Result<Duration, InvalidPlan> {
    let word = tokens.word("a time")?;
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: Option<u64> = word.strip_suffix(unit).and_then(|digits| digits.parse().ok());
    let size = UNITS.into_iter().find(|(name, _)| *name == unit).and_then(|(_, size)| u64::try_from(size).ok());
    let nanos = number.zip(size).and_then(|(number, size)| number.checked_mul(size));
    nanos.map(Duration::from_nanos).ok_or_else(|| InvalidPlan(format!("`{word}` is not a time such as 5s or 300ms")))
}

fn number(tokens: &mut Tokens) -> Result<usize, InvalidPlan> {
    let word = tokens.word("a number")?;
    word.parse().map_err(|_| InvalidPlan(format!("`{word}` is not a number")))
}

fn is_number(word: &str) -> bool {
    word.parse::<u32>().is_ok()
}
