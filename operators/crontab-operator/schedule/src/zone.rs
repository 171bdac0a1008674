//! Time zones by their names in the IANA database, which is built in, and the changes of their offsets.

use std::fmt::{Display, Formatter};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};

use crate::error::shown;

/// The advice about a name that is near to none.
const ANY: &str = "use a name of the IANA time zone database, such as Europe/Berlin";
/// No name of the database is longer.
const LONGEST: usize = 64;

/// A time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

/// The error for a text that is not the name of a time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownZone {
    name: String,
    advice: String,
}

/// A change of a zone's offset, as at the beginning of daylight saving time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The first instant with the new offset.
    pub at: Timestamp,
    /// The local time at that instant with the old offset.
    pub from: DateTime,
    /// The local time at that instant with the new offset.
    pub to: DateTime,
}

impl Zone {
    /// Returns UTC, the default zone of a schedule.
    pub fn utc() -> Self {
        Self { name: "UTC".to_owned(), zone: TimeZone::UTC }
    }

    /// Returns the zone with a name of the IANA database, which is case-sensitive. It does not read the host's zone data, so all
    /// machines agree.
    ///
    /// ```
    /// use schedule::Zone;
    ///
    /// assert!(Zone::named("Europe/Berlin").is_ok());
    /// let error = Zone::named("europe/berlin").unwrap_err();
    /// assert_eq!(error.to_string(), "unknown time zone \"europe/berlin\"; write Europe/Berlin");
    /// ```
    ///
    /// # Errors
    ///
    /// If the database has no such name.
    pub fn named(name: &str) -> Result<Self, UnknownZone> {
        let unknown = |advice: String| UnknownZone { name: name.to_owned(), advice };
        if name.len() > LONGEST {
            // Do not look for what is meant: this takes long for megabytes.
            let beginning = &name[..name.floor_char_boundary(LONGEST)];
            return Err(UnknownZone { name: format!("{beginning}…"), advice: ANY.to_owned() });
        }
        if name.eq_ignore_ascii_case("local") {
            return Err(unknown("use the name of a place, such as Europe/Berlin".to_owned()));
        }
        let Ok(zone) = TimeZoneDatabase::bundled().get(name) else {
            return Err(unknown(match (offset(name), meant(name)) {
                (Some(_), _) => "a fixed offset has no name; use UTC or a place".to_owned(),
                (None, Some(meant)) => format!("perhaps you mean {meant}"),
                (None, None) => ANY.to_owned(),
            }));
        };
        match zone.iana_name() {
            Some(correct) if correct == name => Ok(Self { name: name.to_owned(), zone }),
            Some(correct) => Err(unknown(format!("write {correct}"))),
            None => Err(unknown(ANY.to_owned())),
        }
    }

    /// Like [`named`](Self::named), but also takes a fixed offset such as `+05:30`.
    ///
    /// # Errors
    ///
    /// If the text is neither an offset nor a name in the database.
    pub fn named_or_offset(text: &str) -> Result<Self, UnknownZone> {
        match offset(text) {
            Some(offset) => Ok(Self { name: text.to_owned(), zone: TimeZone::fixed(offset) }),
            None => Self::named(text),
        }
    }

    /// Returns the name or the offset, as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the zone as jiff's type.
    pub fn time_zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Iterates over the changes of the offset after one instant, up to and including another. Transitions that do not change the
    /// offset are skipped.
    pub fn changes(&self, after: Timestamp, until: Timestamp) -> impl Iterator<Item = Change> {
        let before = |at: Timestamp| Timestamp::from_second(at.as_second() - 1).ok();
        let transitions = self.zone.following(after).take_while(move |it| it.timestamp() <= until);
        transitions.filter_map(move |it| {
            let from = self.zone.to_offset(before(it.timestamp())?).to_datetime(it.timestamp());
            let to = it.offset().to_datetime(it.timestamp());
            (from != to).then_some(Change { at: it.timestamp(), from, to })
        })
    }

    /// Returns the offset from UTC in seconds, and the next second at which it changes. `None` outside the range of `Timestamp`.
    pub(crate) fn stretch_from(&self, second: i64) -> Option<(i64, i64)> {
        let from = Timestamp::from_second(second).ok()?;
        let end = self.zone.following(from).next().map_or(i64::MAX, |it| it.timestamp().as_second());
        Some((self.zone.to_offset(from).seconds().into(), end))
    }

    /// Returns the offset from UTC in seconds, and the first second of the period with this offset. `None` outside the range of
    /// `Timestamp`.
    pub(crate) fn stretch_until(&self, second: i64) -> Option<(i64, i64)> {
        let until = Timestamp::from_second(second).ok()?;
        let after = Timestamp::from_second(second + 1).unwrap_or(Timestamp::MAX);
        let start = self.zone.preceding(after).next().map_or(i64::MIN, |it| it.timestamp().as_second());
        Some((self.zone.to_offset(until).seconds().into(), start))
    }
}

impl Display for Zone {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Display for UnknownZone {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "unknown time zone \"{}\"; {}", shown(&self.name), self.advice)
    }
}

impl std::error::Error for UnknownZone {}

/// Returns the zone that a name with a mistake stands for: one whose city it is, or else the nearest one, with one mistake in five
/// characters at most. A short name, such as an abbreviation, has too many near ones.
fn meant(name: &str) -> Option<String> {
    let written = name.trim().replace(' ', "_").to_lowercase();
    if !(5..=LONGEST).contains(&written.len()) {
        return None;
    }
    let distance = |zone: &str| {
        let lower = zone.to_lowercase();
        let is_city = lower.rsplit('/').next() == Some(&written);
        if is_city { 0 } else { strsim::osa_distance(&written, &lower) }
    };
    let all = TimeZoneDatabase::bundled();
    let zones = all.available().map(|zone| (distance(zone.as_str()), zone.to_string()));
    zones.filter(|(distance, _)| distance * 5 <= written.len()).min().map(|(_, zone)| zone)
}

/// Parses a fixed offset: `+05:30`, `-0300` or `+14`.
fn offset(text: &str) -> Option<Offset> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match rest.len() {
        2 => (rest, "0"),
        4 => rest.split_at_checked(2)?,
        5 => rest.split_once(':').filter(|(hours, _)| hours.len() == 2)?,
        _ => return None,
    };
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<i32>().ok())?;
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let fits = hours < 24 && minutes < 60;
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok().filter(|_| fits)
}
