//! Faults on demand, for testing those who call this server. A fault is for the requests it names, skips some, and is used
//! up; which request gets which depends on nothing but their order.

use serde::{Deserialize, Serialize};

use crate::{
    op::Op,
    problem::{Code, Problem},
};

/// What goes wrong, and for whom. As JSON it is the body of `POST /admin/faults`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// An operation, or `any`.
    pub op: String,
    /// What happens.
    pub mode: Mode,
    /// The status of a `status` fault, or of a `hostile` one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The code of a `status` fault, where the usual one of that status will not do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// `Retry-After`, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// How long to wait before anything is done.
    #[serde(default)]
    pub delay_ms: u64,
    /// Whether a `status`, `hang` or `hostile` fault comes after the work has been done.
    #[serde(default)]
    pub commit: bool,
    /// What a `hostile` answer looks like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Hostile>,
    /// Only requests with this reference (in the key or the path) or this booking's id in the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Requests that pass first.
    #[serde(default)]
    pub skip: u64,
    /// Requests that are hit; 0 for all that follow.
    #[serde(default = "once")]
    pub times: u64,
}

fn once() -> u64 {
    1
}

/// The ways to go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The connection ends, and nothing was done.
    BeforeCommitDrop,
    /// The work is done, and the connection ends without an answer.
    AfterCommitDrop,
    /// There is no answer, and the connection stays.
    Hang,
    /// The work is done late, also if the caller has gone by then.
    Delay,
    /// An answer with another status.
    Status,
    /// An answer that does harm to who trusts it.
    Hostile,
}

impl Mode {
    /// As plans write it.
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

/// Harmful answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hostile {
    /// A redirect to another host.
    Redirect,
    /// 100 MB of JSON.
    Huge,
    /// 100 MB behind 100 kB of gzip, which nobody asked for.
    GzipBomb,
    /// A booking whose texts contain escape sequences, line breaks and HTML.
    ControlCharacters,
    /// A booking whose fields have other types.
    WrongTypes,
    /// JSON that ends too soon.
    Malformed,
    /// A body that ends before its announced length, with the connection.
    Truncated,
    /// A byte a second, for ever.
    Trickle,
    /// A head, and then nothing.
    HeadersOnly,
}

/// A fault that waits for its requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Armed {
    /// Its number, for removing it.
    pub id: u64,
    /// What it does.
    #[serde(flatten)]
    pub fault: Fault,
    /// Requests that it was for.
    pub seen: u64,
    /// Requests that it hit.
    pub fired: u64,
}

/// All faults of a server, in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    armed: Vec<Armed>,
    next_id: u64,
}

impl Faults {
    /// Adds a fault, if it makes sense.
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

    /// Removes all.
    pub(crate) fn clear(&mut self) {
        self.armed.clear();
    }

    /// The fault that hits this request: the first that has not been used up. All that match count it.
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

    /// When the answer says to come back. Those statuses that come with a time have one.
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
        return Err(Problem::invalid("code", "code must be one of the API's"));
    }
    if (fault.mode == Mode::Hostile) != fault.body.is_some() {
        return Err(Problem::invalid("body", "body goes with mode hostile, and only with it"));
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

    /// What each of these requests meets: the status, or 0.
    fn met(faults: &mut Faults, requests: &[(Op, &str)]) -> Vec<u16> {
        requests.iter().map(|(op, subject)| faults.strike(*op, &[subject]).map_or(0, |fault| fault.status())).collect()
    }

    #[test]
    fn the_kth_request_that_matches_is_hit_and_the_fault_is_used_up() {
        let mut faults = Faults::default();
        faults.arm(fault(r#"{"op":"create","mode":"status","status":500,"skip":1,"times":2}"#)).unwrap();
        let create = (Op::Create, "r");
        assert_eq!(met(&mut faults, &[create, (Op::Get, "r"), create, create, create]), [0, 0, 500, 500, 0]);
        assert_eq!((faults.list()[0].seen, faults.list()[0].fired), (4, 2));
    }

    #[test]
    fn a_subject_is_hit_and_nobody_else() {
        let mut faults = Faults::default();
        faults.arm(fault(r#"{"op":"any","mode":"status","status":500,"subject":"b","times":0}"#)).unwrap();
        assert_eq!(met(&mut faults, &[(Op::Create, "a"), (Op::Create, "b"), (Op::Cancel, "b")]), [0, 500, 500]);
        faults.clear();
        assert_eq!(met(&mut faults, &[(Op::Create, "b")]), [0]);
    }

    #[test]
    fn of_several_the_first_hits_and_all_count() {
        let mut faults = Faults::default();
        faults.arm(fault(r#"{"op":"create","mode":"status","status":500}"#)).unwrap();
        faults.arm(fault(r#"{"op":"any","mode":"status","status":501,"skip":1}"#)).unwrap();
        let create = (Op::Create, "r");
        assert_eq!(met(&mut faults, &[create, create, create]), [500, 501, 0]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
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
    fn a_status_has_its_usual_code() {
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
