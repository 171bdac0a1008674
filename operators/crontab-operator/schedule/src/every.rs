//! The period of `@every`, in the syntax of Go's durations.

use crate::error::Error;
use crate::part::Part;

/// The shortest period, in seconds.
const SHORTEST: u64 = 10;
/// The longest duration in nanoseconds: Go stores it in 64 bits.
const LONGEST: u128 = i64::MAX as u128;
/// The units, with their length in nanoseconds.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
const ADVICE: &str = "write hours, minutes and seconds without blanks, such as 1h30m or 45s";

/// Parses a duration, and returns its whole seconds.
pub(crate) fn period(part: Part<'_>) -> Result<u64, Error> {
    let text = part.text();
    if text.starts_with('-') {
        return Err(part.error(format!("the period {text} is negative"), format!("use at least {SHORTEST}s")));
    }
    let mut at = usize::from(text.starts_with('+'));
    let mut nanoseconds = 0;
    if &text[at..] != "0" {
        loop {
            let (length, summand) = element(part, at)?;
            at += length;
            nanoseconds += summand;
            if nanoseconds > LONGEST {
                return Err(too_long(part));
            }
            if at == text.len() {
                break;
            }
        }
    }
    match u64::try_from(nanoseconds / 1_000_000_000) {
        Ok(seconds) if seconds >= SHORTEST => Ok(seconds),
        _ => Err(part.error(format!("the period {text} is too short"), format!("use at least {SHORTEST}s"))),
    }
}

fn too_long(part: Part<'_>) -> Error {
    part.error(format!("the period {} is too long", part.text()), "use at most ten years")
}

/// Parses a number with its unit at byte `at`. Returns their length in bytes, and the nanoseconds.
fn element(part: Part<'_>, at: usize) -> Result<(usize, u128), Error> {
    let rest = &part.text()[at..];
    let whole = digits(rest);
    let fraction = rest[whole.len()..].strip_prefix('.').map(digits);
    let length = whole.len() + fraction.map_or(0, |it| it.len() + 1);
    let to_the_end = part.slice(at..part.text().len());
    if whole.is_empty() && fraction.is_none_or(str::is_empty) {
        return Err(to_the_end.error(format!("\"{rest}\" is not a duration"), ADVICE));
    }
    let unit =
        rest[length..].split(|c: char| c.is_ascii_digit() || c == '.' || c.is_whitespace()).next().unwrap_or_default();
    let Some((_, size)) = UNITS.into_iter().find(|(name, _)| *name == unit) else {
        let what = match unit {
            "" => format!("\"{rest}\" lacks a unit"),
            _ => format!("\"{unit}\" is not a unit"),
        };
        return Err(to_the_end.error(what, ADVICE));
    };
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u128>().map_err(|_| too_long(part))? };
    let mut nanoseconds = whole.checked_mul(size).filter(|it| *it <= LONGEST).ok_or_else(|| too_long(part))?;
    // Digits after the 18th are far below a nanosecond.
    let mut place = 1;
    let mut of_fraction = 0;
    let digits = fraction.unwrap_or_default().bytes().take(18).map(|digit| u128::from(digit - b'0'));
    for digit in digits {
        of_fraction = of_fraction * 10 + digit;
        place *= 10;
    }
    nanoseconds += of_fraction * size / place;
    Ok((length + unit.len(), nanoseconds))
}

fn digits(text: &str) -> &str {
    &text[..text.bytes().take_while(u8::is_ascii_digit).count()]
}

/// Formats a period in the syntax of `@every`.
pub(crate) fn written(seconds: u64) -> String {
    let parts = [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let parts: Vec<_> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    parts.concat()
}
