//! Injected faults, for testing clients of this server. Each fault selects requests by operation and subject, skips some of them,
//! and hits a limited number. The choice is deterministic: it depends only on the order of the requests.

use serde::{Deserialize, Serialize};

use crate::{
    op::Op,
    problem::{Code, Problem},
};

/// A fault: what goes wrong, and for which requests. Its JSON form is the body of `POST /admin/faults`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// An operation, or `any`.
    pub op: String,
    /// What goes wrong.
    pub mode: Mode,
    /// The status of a `status` fault, or of a `hostile` one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The code of a `status` fault; by default the usual one of the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// `Retry-After`, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// Delay before the server does anything, in milliseconds.
    #[serde(default)]
    pub delay_ms: u64,
    /// Whether the server executes the request before a `status`, `hang` or `hostile` fault.
    #[serde(default)]
    pub commit: bool,
    /// The kind of a `hostile` answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Hostile>,
    /// Limits the fault to requests with this reference (in the key or the path) or this booking's id (in the path).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Matching requests that pass before the first hit.
    #[serde(default)]
    pub skip: u64,
    /// Requests that the fault hits; 0 for all that follow.
    #[serde(default = "once")]
    pub times: u64,
}

fn once() -> u64 {
    1
}

/// The kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Ends the connection without executing the request.
    BeforeCommitDrop,
    /// Executes the request, then ends the connection without an answer.
    AfterCommitDrop,
    /// Sends no answer, and keeps the connection open.
    Hang,
    /// Executes the request late, even if the client has disconnected by then.
    Delay,
    /// Answers with another status.
    Status,
    /// Sends an answer that harms a client that trusts it.
    Hostile,
}

impl Mode {
    /// The name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BeforeCommitDrop => "before-commit-drop",
            Self::AfterCommitDrop => "after-commit-drop",
            Self::Hang => "hang",
            Self::Delay => "delay",
            Self::Status => "status",
            Self::Hostile => "hostile",
        }
    }
}

/// The kinds of `hostile` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hostile {
    /// A redirect to another host.
    Redirect,
    /// 100 MB of JSON.
    Huge,
    /// 100 MB, compressed to 100 kB of gzip, even if the client does not accept gzip.
    GzipBomb,
    /// A booking whose texts contain escape sequences, line breaks and HTML.
    ControlCharacters,
    /// A booking whose fields have wrong types.
    WrongTypes,
    /// JSON that ends too soon.
    Malformed,
    /// A body that ends, with the connection, before its announced length.
    Truncated,
    /// A byte per second, for ever.
    Trickle,
    /// Headers, and then no body.
    HeadersOnly,
}

/// A fault in the list of a server, with its counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Armed {
    /// Its number, counted from 1.
    pub id: u64,
    /// What it does.
    #[serde(flatten)]
    pub fault: Fault,
    /// Requests that matched it so far.
    pub seen: u64,
    /// Requests that it has hit so far.
    pub fired: u64,
}

/// All faults of a server, in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    armed: Vec<Armed>,
    next_id: u64,
}

impl Faults {
    /// Adds a fault. Refuses one whose fields are invalid or contradict each other.
    pub(crate) fn arm(&mut self, fault: Fault) -> Result<Armed, Problem> {
        check(&fault)?;
        self.next_id += 1;
        let armed = Armed { id: self.next_id, fault, seen: 0, fired: 0 };
        self.armed.push(armed.clone());
        Ok(armed)
    }

    pub(crate) fn list(&self) -> &[Armed] {
        &self.armed
    }

    /// Removes all faults.
    pub(crate) fn clear(&mut self) {
        self.armed.clear();
    }

    /// Returns the fault that hits this request: the first matching one that is ready. Every matching fault counts the request.
    pub(crate) fn strike(&mut self, op: Op, subjects: &[&str]) -> Option<Fault> {
        let mut hit = None;
        for armed in self.armed.iter_mut().filter(|armed| armed.fault.is_for(op, subjects)) {
            armed.seen += 1;
            let is_ready = armed.seen > armed.fault.skip && (armed.fault.times == 0 || armed.fired < armed.fault.times);
            if is_ready && hit.is_none() {
                armed.fired += 1;
                hit = Some(armed.fault.clone());
            }
        }
        hit
    }
}

impl Fault {
    fn is_for(&self, op: Op, subjects: &[&str]) -> bool {
        (self.op == "any" || self.op == op.name())
            && self.subject.as_deref().is_none_or(|subject| subjects.contains(&subject))
    }

    /// The code of the answer that a `status` fault gives to this operation.
    pub(crate) fn code(&self, op: Op) -> Code {
        let named = self.code.as_deref().and_then(|name| Code::ALL.iter().find(|code| code.name() == name));
        if let Some(code) = named {
            return *code;
        }
        match (self.status(), op) {
            (404, Op::Create) => Code::RouteNotFound,
            (404, Op::Lookup) => Code::ReferenceNotFound,
            (404, _) => Code::BookingNotFound,
            (409, Op::Modify) => Code::NotModifiable,
            (409, Op::Cancel) => Code::NotCancellable,
            (409, Op::Adopt) => Code::ReferenceTaken,
            (400, _) => Code::Malformed,
            (422, _) => Code::Invalid,
            (status, _) => {
                let usual = Code::ALL.iter().find(|code| code.status().as_u16() == status);
                usual.copied().unwrap_or(Code::Internal)
            }
        }
    }

    /// `Retry-After` of the answer, in seconds. 429 and 503 always have one, as the contract requires.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.retry_after.or([429, 503].contains(&self.status()).then_some(1))
    }

    /// The status of the answer.
    pub(crate) fn status(&self) -> u16 {
        let usual = if self.mode == Mode::Hostile { 200 } else { 503 };
        self.status.unwrap_or(usual)
    }
}

fn check(fault: &Fault) -> Result<(), Problem> {
    let is_known = |code: &String| Code::ALL.iter().any(|known| known.name() == code);
    if fault.op != "any" && Op::parse(&fault.op).is_none() {
        let known = Op::ALL.map(Op::name).join(", ");
        return Err(Problem::invalid("op", format!("op must be any or one of {known}")));
    }
    if !(200..=599).contains(&fault.status()) {
        return Err(Problem::invalid("status", "status must be between 200 and 599"));
    }
    if !fault.code.as_ref().is_none_or(is_known) {
        return Err(Problem::invalid("code", "code must be one of the API's codes"));
    }
    if (fault.mode == Mode::Hostile) != fault.body.is_some() {
        return Err(Problem::invalid("body", "mode hostile needs body, and no other mode takes it"));
    }
    if fault.mode == Mode::Delay && fault.delay_ms == 0 {
        return Err(Problem::invalid("delayMs", "mode delay needs delayMs"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(json: &str) -> Fault {
        serde_json::from_str(json).unwrap()
    }

    /// The status of the fault that hits each request, or 0 without a fault.
    fn met(faults: &mut Faults, requests: &[(Op, &str)]) -> Vec<u16> {
        requests.iter().map(|(op, subject)| faults.strike(*op, &[subject]).map_or(0, |fault| fault.status())).collect()
    }

    #[test]
    fn fault_hits_kth_matching_request_then_expires() {
        let mut faults = Faults::default();
        faults.arm(fault(r#"{"op":"create","mode":"status","status":500,"skip":1,"times":2}"#)).unwrap();
        let create = (Op::Create, "r");
        assert_eq!(met(&mut faults, &[create, (Op::Get, "r"), create, create, create]), [0, 0, 500, 500, 0]);
        assert_eq!((faults.list()[0].seen, faults.list()[0].fired), (4, 2));
    }

    #[test]
    fn fault_hits_only_its_subject() {
        let mut faults = Faults::default();
        faults.arm(fault(r#"{"op":"any","mode":"status","status":500,"subject":"b","times":0}"#)).unwrap();
        assert_eq!(met(&mut faults, &[(Op::Create, "a"), (Op::Create, "b"), (Op::Cancel, "b")]), [0, 500, 500]);
        faults.clear();
        assert_eq!(met(&mut faults, &[(Op::Create, "b")]), [0]);
    }

    #[test]
    fn first_fault_fires_and_all_count_the_request() {
        let mut faults = Faults::default();
        faults.arm(fault(r#"{"op":"create","mode":"status","status":500}"#)).unwrap();
        faults.arm(fault(r#"{"op":"any","mode":"status","status":501,"skip":1}"#)).unwrap();
        let create = (Op::Create, "r");
        assert_eq!(met(&mut faults, &[create, create, create]), [500, 501, 0]);
    }

    #[test]
    fn invalid_faults_are_rejected() {
        let refused = |json: &str| Faults::default().arm(fault(json)).unwrap_err().field.unwrap();
        assert_eq!(refused(r#"{"op":"buy","mode":"hang"}"#), "op");
        assert_eq!(refused(r#"{"op":"any","mode":"status","status":99}"#), "status");
        assert_eq!(refused(r#"{"op":"any","mode":"status","code":"NO"}"#), "code");
        assert_eq!(refused(r#"{"op":"any","mode":"hostile"}"#), "body");
        assert_eq!(refused(r#"{"op":"any","mode":"hang","body":"huge"}"#), "body");
        assert_eq!(refused(r#"{"op":"any","mode":"delay"}"#), "delayMs");
        assert!(serde_json::from_str::<Fault>(r#"{"op":"any","mode":"hang","tims":1}"#).is_err());
    }

    #[test]
    fn fault_status_implies_error_code() {
        let code = |status, op| fault(&format!(r#"{{"op":"any","mode":"status","status":{status}}}"#)).code(op);
        assert_eq!(code(404, Op::Get), Code::BookingNotFound);
        assert_eq!(code(404, Op::Lookup), Code::ReferenceNotFound);
        assert_eq!(code(409, Op::Cancel), Code::NotCancellable);
        assert_eq!(code(409, Op::Create), Code::InProgress);
        assert_eq!(code(429, Op::Create), Code::TooManyRequests);
        assert_eq!(code(502, Op::Create), Code::Internal);
        let named = fault(r#"{"op":"create","mode":"status","status":409,"code":"INSUFFICIENT_SEATS"}"#);
        assert_eq!(named.code(Op::Create), Code::InsufficientSeats);
    }
}
