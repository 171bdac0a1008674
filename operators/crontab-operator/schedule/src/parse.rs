//! The parser of schedules.

use std::str::FromStr;

use crate::cron::Cron;
use crate::crons::Crons;
use crate::error::Error;
use crate::every;
use crate::field::{Field, Set};
use crate::part::Part;
use crate::schedule::{Schedule, When};

/// The longest text, as in the CRD's schema.
const LONGEST: usize = 256;
/// What divides expressions.
const SEPARATOR: char = ';';
const FIVE: &str = "write five fields: minute, hour, day of month, month, day of week";
/// The descriptors, and the expressions that they stand for.
pub(crate) const DESCRIPTORS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

impl Schedule {
    /// Parses a schedule, and also refuses one that [never fires](Self::never_fires), or of which one expression never does. For
    /// places where users write schedules.
    ///
    /// ```
    /// let error = schedule::Schedule::parse_firing("0 0 30 2 *").unwrap_err();
    /// assert_eq!(error.why(), "day of month, character 5: never fires; none of these months has such a day");
    /// ```
    ///
    /// # Errors
    ///
    /// If the text is not a valid schedule, or one of its expressions never fires.
    pub fn parse_firing(text: &str) -> Result<Self, Error> {
        parse_firing(text)
    }
}

impl FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text)
    }
}

/// What one expression is.
enum Expression {
    Cron(Cron),
    Every(u64),
}

/// Parses one expression or descriptor, or several, divided by semicolons.
pub(crate) fn parse(text: &str) -> Result<Schedule, Error> {
    let all = Part::all(text);
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        let shortened = Part::all(&text[..end]);
        return Err(shortened.error("is too long", format!("use at most {LONGEST} characters")));
    }
    if let Some(at) = text.find("TZ=") {
        let start = text[..at].rfind(char::is_whitespace).map_or(0, |blank| blank + 1);
        let start = (start..=at).find(|start| text.is_char_boundary(*start)).unwrap_or(at);
        let end = text[at..].find(char::is_whitespace).map_or(text.len(), |blank| at + blank);
        let advice = "write the schedule without it";
        return Err(all.slice(start..end).error("cannot use TZ or CRON_TZ in cronSpec, use timeZone instead", advice));
    }
    if text.contains(SEPARATOR) {
        return several(all).map(|crons| Schedule(When::Crons(crons)));
    }
    Ok(Schedule(match expression(all)? {
        Expression::Cron(cron) => When::Crons(Crons::one(cron)),
        Expression::Every(period) => When::Every(period),
    }))
}

/// Parses expressions divided by semicolons.
fn several(all: Part<'_>) -> Result<Crons, Error> {
    let parts: Vec<_> = all.split(|c| c == SEPARATOR).collect();
    let crons = parts.iter().zip(1..).map(|(part, n)| one_of_several(*part).map_err(|error| error.in_expression(n)));
    Crons::new(crons.collect::<Result<_, _>>()?).ok_or_else(|| {
        let start = parts.get(Crons::MOST).map_or(all.end, |surplus| surplus.start);
        let what = format!("has {} expressions", parts.len());
        all.slice(start..all.end).error(what, format!("use at most {}", Crons::MOST))
    })
}

fn one_of_several(part: Part<'_>) -> Result<Cron, Error> {
    if part.words().is_empty() {
        return Err(part.error("is empty", "remove a semicolon"));
    }
    match expression(part)? {
        Expression::Cron(cron) => Ok(cron),
        // Each run would move the grid of the period, also one of another expression.
        Expression::Every(_) => Err(part.error("@every cannot be one of several expressions", "use it alone")),
    }
}

fn expression(part: Part<'_>) -> Result<Expression, Error> {
    let words = part.words();
    let Some(first) = words.first() else {
        return Err(part.error("is empty", FIVE));
    };
    if first.text().starts_with('@') {
        return descriptor(*first, &words[1..]);
    }
    let words: &[Part<'_>; 5] = match words.as_slice().try_into() {
        Ok(words) => words,
        Err(_) => return Err(not_five(part, &words)),
    };
    cron(*words).map(Expression::Cron)
}

fn cron(words: [Part<'_>; 5]) -> Result<Cron, Error> {
    let [minutes, hours, days, months, weekdays] = words;
    let (minutes, _) = list(minutes, Field::Minute)?;
    let (hours, _) = list(hours, Field::Hour)?;
    let (days, any_day) = list(days, Field::DayOfMonth)?;
    let (months, _) = list(months, Field::Month)?;
    let (weekdays, any_weekday) = list(weekdays, Field::DayOfWeek)?;
    Ok(Cron { minutes, hours, days, months, weekdays, any_day, any_weekday })
}

fn not_five(part: Part<'_>, words: &[Part<'_>]) -> Error {
    let fields = if words.len() == 1 { "field" } else { "fields" };
    let what = format!("has {} {fields}", words.len());
    let advice = if words.len() == 6 { format!("{FIVE}; there is none for seconds or years") } else { FIVE.to_owned() };
    let end = words.last().map_or(part.start, |last| last.end);
    // Points to the surplus fields, or to the end, where a field is missing.
    let start = words.get(5).map_or(end, |sixth| sixth.start);
    Part { start, end, ..part }.error(what, advice)
}

fn descriptor(name: Part<'_>, arguments: &[Part<'_>]) -> Result<Expression, Error> {
    let known = "use @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly or @every <duration>";
    if name.text() == "@every" {
        let Some((first, last)) = arguments.first().zip(arguments.last()) else {
            return Err(name.error("@every needs a duration", "such as @every 1h30m"));
        };
        let duration = Part { end: last.end, ..*first };
        return every::period(duration).map(Expression::Every);
    }
    let Some((_, meaning)) = DESCRIPTORS.into_iter().find(|(it, _)| *it == name.text()) else {
        let lower = name.text().to_ascii_lowercase();
        let advice = match DESCRIPTORS.into_iter().map(|(it, _)| it).chain(["@every"]).find(|it| *it == lower) {
            Some(meant) => format!("write {meant}"),
            None => known.to_owned(),
        };
        let what = match lower.as_str() {
            "@reboot" => "@reboot is not supported".to_owned(),
            _ => format!("\"{}\" is unknown", name.text()),
        };
        return Err(name.error(what, advice));
    };
    match arguments.first().zip(arguments.last()) {
        Some((first, last)) => {
            let surplus = Part { end: last.end, ..*first };
            Err(surplus.error(format!("\"{}\" is too much", surplus.text()), format!("write {} alone", name.text())))
        }
        None => expression(Part::all(meaning)),
    }
}

/// Parses elements separated by commas. Returns their numbers, and whether one of them is a star without a step.
fn list(word: Part<'_>, field: Field) -> Result<(Set, bool), Error> {
    let word = Part { field: Some(field), ..word };
    let mut set = Set::default();
    let mut any = false;
    for part in word.split(|c| c == ',') {
        if part.text().is_empty() {
            return Err(part.error("has an empty element", "remove a comma"));
        }
        let (numbers, is_any) = element(part, field)?;
        set = set | numbers;
        any |= is_any;
    }
    Ok((set, any))
}

/// Parses `*`, `?`, `a` or `a-b`, each with or without `/step`.
fn element(part: Part<'_>, field: Field) -> Result<(Set, bool), Error> {
    let mut parts = part.split(|c| c == '/');
    let (range, step, more) = (parts.next().unwrap_or(part), parts.next(), parts.next());
    if more.is_some() {
        return Err(part.error("has too many slashes", "write one step, such as */5"));
    }
    let interval = step.map(self::step).transpose()?;
    let is_star = matches!(range.text(), "*" | "?");
    let (first, last) = if is_star {
        (field.min(), field.max())
    } else {
        let mut ends = range.split(|c| c == '-');
        let (first, last, more) = (ends.next().unwrap_or(range), ends.next(), ends.next());
        if more.is_some() {
            return Err(range.error("has too many hyphens", "write a range as from-to"));
        }
        let (from, to) = (number(first, field)?, last.map(|last| number(last, field)).transpose()?);
        if to.is_some_and(|to| to < from) {
            let advice = format!("write it as two: {from}-{},{}-{}", field.max(), field.min(), to.unwrap_or_default());
            return Err(range.error(format!("{} runs backwards", range.text()), advice));
        }
        // A single number with a step means a range to the end of the field.
        (from, to.unwrap_or(if interval.is_some() { field.max() } else { from }))
    };
    let interval = interval.unwrap_or(1);
    Ok((Set::range(first, last, interval), is_star && interval == 1))
}

fn step(part: Part<'_>) -> Result<u64, Error> {
    match digits(part.text()) {
        Some(0) => Err(part.error("a step of 0 is not allowed", "use 1 or more")),
        Some(step) => Ok(step),
        None => {
            let what = match part.text() {
                "" => "lacks the number after /".to_owned(),
                text => format!("\"{text}\" is not a step"),
            };
            Err(part.error(what, "use 1 or more"))
        }
    }
}

fn number(part: Part<'_>, field: Field) -> Result<u8, Error> {
    let text = part.text();
    let takes = || format!("use {}", field.allowed());
    if let Some(n) = field.named(text) {
        return Ok(n);
    }
    let Some(n) = digits(text) else { return Err(no_number(part, field)) };
    let small = u8::try_from(n).unwrap_or(u8::MAX);
    if small > field.max() {
        let advice = if field == Field::DayOfWeek && n == 7 { "use 0 for Sunday".to_owned() } else { takes() };
        return Err(part.error(format!("{n} is too large"), advice));
    }
    if small < field.min() {
        return Err(part.error(format!("{n} is too small"), takes()));
    }
    Ok(small)
}

fn no_number(part: Part<'_>, field: Field) -> Error {
    let text = part.text();
    let takes = format!("use {}", field.allowed());
    if text.is_empty() {
        return part.error("a number is missing", takes);
    }
    if text.starts_with(['*', '?']) {
        return part.error(format!("\"{text}\" is not a number"), "write * alone, or with a step such as */5");
    }
    // A full name such as Monday instead of mon.
    if let Some(short) = text.get(..3).filter(|short| text.is_ascii() && field.named(short).is_some()) {
        return part.error(format!("\"{text}\" is unknown"), format!("write {}", short.to_ascii_lowercase()));
    }
    let of_quartz = text.contains(['L', 'W', '#']) && text.chars().all(|c| c.is_ascii_digit() || "LW#".contains(c));
    if of_quartz {
        return part.error(format!("\"{text}\": L, W and # are not supported"), takes);
    }
    part.error(format!("\"{text}\" is unknown"), takes)
}

/// Parses a number, which may have leading zeros. A number that does not fit becomes the maximum, which is too large too.
fn digits(text: &str) -> Option<u64> {
    let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Parses a schedule, and refuses one that never fires, also if it is one of several expressions.
pub(crate) fn parse_firing(text: &str) -> Result<Schedule, Error> {
    let schedule = parse(text)?;
    let all = Part::all(text);
    match &schedule.0 {
        When::Every(_) if schedule.never_fires() => return Err(all.error("never fires", "use at most ten years")),
        When::Every(_) => {}
        When::Crons(crons) => {
            for ((part, cron), n) in all.split(|c| c == SEPARATOR).zip(crons.all()).zip(1..) {
                if let ([_, _, days, months, _], true) = (part.words().as_slice(), cron.never_fires()) {
                    let dates = Part { end: months.end, field: Some(Field::DayOfMonth), ..*days };
                    let error = dates.error("never fires", "none of these months has such a day");
                    return Err(if crons.all().len() > 1 { error.in_expression(n) } else { error });
                }
            }
        }
    }
    Ok(schedule)
}
