//! Random expressions, zones and instants, from a seed.

use std::ops::RangeInclusive;

use fastrand::Rng;
use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;
use schedule::Zone;

/// Returns the number of cases: `SCHEDULE_CASES`, or `usual`.
pub(crate) fn cases(usual: u64) -> u64 {
    std::env::var("SCHEDULE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// An element of a field: its text and its meaning.
#[derive(Clone, Debug)]
pub(crate) struct Element {
    text: String,
    first: i8,
    last: i8,
    step: i8,
}

/// A field: its elements, and whether one of them is a star.
#[derive(Clone, Debug)]
pub(crate) struct Elements {
    elements: Vec<Element>,
    is_star: bool,
}

impl Elements {
    pub(crate) fn take(&self, n: i8) -> bool {
        self.elements.iter().any(|it| n >= it.first && n <= it.last && (n - it.first) % it.step == 0)
    }
}

/// An expression: its text and its meaning.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pub(crate) text: String,
    pub(crate) minute: Elements,
    pub(crate) hour: Elements,
    day: Elements,
    month: Elements,
    weekday: Elements,
}

impl Expression {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        // Many stars, because otherwise most expressions would not fire in a window.
        let stars = [0.3, 0.4, 0.5, 0.7, 0.5];
        let ranges = [0..=59, 0..=23, 1..=31, 1..=12, 0..=6];
        let mut fields = stars.iter().zip(ranges).enumerate().map(|(n, (star, range))| field(rng, n, *star, range));
        let mut next = || fields.next().expect("five");
        let (minute, hour, day, month, weekday) = (next(), next(), next(), next(), next());
        let text: Vec<String> = [&minute, &hour, &day, &month, &weekday].into_iter().map(written).collect();
        Self { text: text.join(" "), minute, hour, day, month, weekday }
    }

    pub(crate) fn fires_on(&self, date: jiff::civil::Date) -> bool {
        let day = self.day.take(date.day());
        let weekday = self.weekday.take(date.weekday().to_sunday_zero_offset());
        let days = if self.day.is_star || self.weekday.is_star { day && weekday } else { day || weekday };
        days && self.month.take(date.month())
    }

    pub(crate) fn fires(&self, wall: jiff::civil::DateTime) -> bool {
        self.minute.take(wall.minute()) && self.hour.take(wall.hour()) && self.fires_on(wall.date())
    }
}

/// One expression, or several divided by semicolons: the text and its meaning.
#[derive(Clone, Debug)]
pub(crate) struct Expressions {
    pub(crate) text: String,
    pub(crate) all: Vec<Expression>,
}

impl Expressions {
    /// Returns one expression in most cases, and otherwise up to eight, some of them the same.
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let mut all = vec![Expression::random(rng)];
        if rng.u8(..4) == 0 {
            for _ in 0..rng.u8(1..8) {
                let again = all[rng.usize(..all.len())].clone();
                all.push(if rng.u8(..5) == 0 { again } else { Expression::random(rng) });
            }
        }
        let texts: Vec<_> = all.iter().map(|it| it.text.clone()).collect();
        let text = texts.join([";", "; ", " ;\t"][rng.usize(..3)]);
        // The text has at most 256 characters.
        if text.len() > 256 { Self::random(rng) } else { Self { text, all } }
    }

    pub(crate) fn fires(&self, wall: jiff::civil::DateTime) -> bool {
        self.all.iter().any(|it| it.fires(wall))
    }
}

fn written(field: &Elements) -> String {
    field.elements.iter().map(|it| it.text.as_str()).collect::<Vec<_>>().join(",")
}

fn field(rng: &mut Rng, n: usize, star: f64, range: RangeInclusive<i8>) -> Elements {
    let (min, max) = (*range.start(), *range.end());
    let name = |n_of: i8, rng: &mut Rng| {
        const MONTHS: [&str; 12] = ["jan", "feb", "MAR", "Apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
        const DAYS: [&str; 7] = ["sun", "mon", "TUE", "Wed", "thu", "fri", "sat"];
        let names: &[&str] = match n {
            3 => &MONTHS,
            4 => &DAYS,
            _ => &[],
        };
        let name = names.get(usize::try_from(n_of - min).expect("in range"));
        name.filter(|_| rng.bool()).map_or_else(|| n_of.to_string(), |name| (*name).to_owned())
    };
    let mut is_star = false;
    let mut element = |rng: &mut Rng, star: f64| {
        let step = if rng.u8(..3) == 0 { Some(rng.i8(1..=max)) } else { None };
        let suffix = step.map(|step| format!("/{step}")).unwrap_or_default();
        if rng.f64() < star {
            is_star |= step.unwrap_or(1) == 1;
            let sign = if rng.u8(..4) == 0 { '?' } else { '*' };
            return Element { text: format!("{sign}{suffix}"), first: min, last: max, step: step.unwrap_or(1) };
        }
        let first = rng.i8(range.clone());
        if rng.bool() {
            let last = if step.is_some() { max } else { first };
            let text = format!("{}{suffix}", name(first, rng));
            return Element { text, first, last, step: step.unwrap_or(1) };
        }
        let last = rng.i8(first..=max);
        let text = format!("{}-{}{suffix}", name(first, rng), name(last, rng));
        Element { text, first, last, step: step.unwrap_or(1) }
    };
    let mut elements = vec![element(rng, star)];
    while rng.u8(..4) == 0 {
        elements.push(element(rng, 0.05));
    }
    Elements { elements, is_star }
}

/// Returns all zones, and a few fixed offsets.
pub(crate) fn zones() -> Vec<Zone> {
    let names: Vec<String> = TimeZoneDatabase::bundled().available().map(|name| name.to_string()).collect();
    let offsets = ["+05:30", "-00:01", "+14:00", "-2359"].map(str::to_owned);
    names.iter().chain(&offsets).map(|name| crate::zone(name)).collect()
}

/// Returns an instant. Half of all instants are shortly before or after a change of the zone's offset.
pub(crate) fn instant(rng: &mut Rng, zone: &Zone) -> Timestamp {
    let years = |n: i64| n * 31_556_952;
    let second = rng.i64(years(-90)..years(500));
    let any = Timestamp::new(second, rng.i32(0..1_000_000_000)).expect("in range");
    let change = zone.time_zone().following(any).next().map(|it| it.timestamp());
    match change {
        Some(change) if rng.bool() => {
            Timestamp::from_second(change.as_second() + rng.i64(-2 * 86_400..86_400)).expect("in range")
        }
        _ => any,
    }
}
