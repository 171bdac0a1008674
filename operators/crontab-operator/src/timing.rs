//! The schedule and the zone of a CronTab, parsed from its spec, or the error in one of them.

use manager::{Problem, ProblemKind};
use schedule::{Schedule, Zone};

use crate::api::v1::CronTabSpec;

/// A schedule and the zone in which it applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// From `cronSpec`.
    pub schedule: Schedule,
    /// From `timeZone`.
    pub zone: Zone,
}

/// Why a spec has no valid schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// `cronSpec` does not parse, or never fires.
    Schedule(schedule::Error),
    /// `timeZone` is not a known zone.
    Zone(schedule::UnknownZone),
}

impl Timing {
    /// Parses the schedule and the zone of `spec`.
    ///
    /// # Errors
    ///
    /// If `cronSpec` does not parse or never fires, or `timeZone` is not a known zone.
    pub fn of(spec: &CronTabSpec) -> Result<Self, Wrong> {
        let schedule = Schedule::parse_firing(&spec.cron_spec).map_err(Wrong::Schedule)?;
        let zone = spec.time_zone.as_deref().map_or_else(|| Ok(Zone::utc()), Zone::named).map_err(Wrong::Zone)?;
        Ok(Self { schedule, zone })
    }
}

impl Wrong {
    /// The reasons of the conditions while a spec has no valid schedule.
    pub const REASONS: [&'static str; 2] = [Self::SCHEDULE, Self::ZONE];
    const SCHEDULE: &'static str = "InvalidSchedule";
    const ZONE: &'static str = "UnknownTimeZone";

    /// Returns the path of the field in the object.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Schedule(_) => "spec.cronSpec",
            Self::Zone(_) => "spec.timeZone",
        }
    }

    /// Returns the error, and what is allowed.
    pub fn why(&self) -> String {
        match self {
            Self::Schedule(error) => error.why(),
            Self::Zone(error) => error.to_string(),
        }
    }

    /// Returns the problem for the conditions.
    pub fn problem(&self) -> Problem {
        match self {
            Self::Schedule(error) => Problem::new(ProblemKind::invalid(Self::SCHEDULE), error.to_string()),
            Self::Zone(error) => Problem::new(ProblemKind::invalid(Self::ZONE), error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples;

    fn problem(cron_spec: &str, zone: &str) -> Option<(&'static str, String)> {
        let spec = samples::with_spec(&json!({"cronSpec": cron_spec, "timeZone": zone, "image": "a"})).spec;
        Timing::of(&spec).err().map(|wrong| (wrong.field(), wrong.problem().message))
    }

    #[test]
    fn errors_name_the_invalid_field() {
        assert_eq!(problem("* * * * */5", "Europe/Berlin"), None);
        let (field, message) = problem("0 0 * * 7", "UTC").expect("wrong");
        assert_eq!(field, "spec.cronSpec");
        assert_eq!(
            message,
            "invalid cronSpec \"0 0 * * 7\": day of week, character 9: 7 is too large; use 0 for Sunday"
        );
        let (_, message) = problem("0 0 30 2 *", "UTC").expect("wrong");
        assert!(message.contains("never fires"), "{message}");
        let (field, message) = problem("@daily", "Europe/Belrin").expect("wrong");
        let words = "unknown time zone \"Europe/Belrin\"; perhaps you mean Europe/Berlin";
        assert_eq!((field, &*message), ("spec.timeZone", words));
    }
}
