//! Amounts of resources (`64Mi`, `1500m`): reading them, and writing them as the API server does.
//!
//! The rules are those of `k8s.io/apimachinery/pkg/api/resource`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;

/// One unit. The code counts amounts in billionths, the smallest unit of a quantity (`n`).
const ONE: i128 = 1_000_000_000;
/// One thousandth of a unit. The API server rounds requests and limits up to thousandths.
const MILLI: i128 = ONE / 1000;

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// Returns the quantity of `count` mebibytes.
pub fn mebibytes(count: i64) -> Quantity {
    Quantity(Form::Binary.write(i128::from(count) * (1 << 20) * ONE))
}

/// Returns the amount in whole units (bytes, CPUs), rounded up; `None` if the text is not a quantity.
pub fn whole(quantity: &Quantity) -> Option<i128> {
    let (amount, _) = read(&quantity.0)?;
    Some(amount.div_euclid(ONE) + i128::from(amount.rem_euclid(ONE) > 0))
}

/// Whether both values are the same quantity in any notation: `1000m` is `1`. False if one of them is no quantity.
pub fn same(one: &Value, other: &Value) -> bool {
    match (parse(one), parse(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// The amount in billionths. The API server also takes JSON numbers.
fn parse(value: &Value) -> Option<i128> {
    let number = value.as_number().map(ToString::to_string);
    let (amount, _) = read(number.as_deref().or(value.as_str())?)?;
    Some(amount)
}

/// Returns a quantity in the form in which the API server stores it in a container's requests and limits: `1024Mi` is `1Gi`.
pub(crate) fn normal(text: &str) -> Option<String> {
    let (amount, form) = read(text)?;
    let rounded = (amount.div_euclid(MILLI) + i128::from(amount.rem_euclid(MILLI) > 0)) * MILLI;
    Some(form.write(rounded))
}

/// The notation of a quantity. The API server keeps it.
#[derive(Clone, Copy)]
enum Form {
    Binary,
    Decimal,
    Exponent,
}

impl Form {
    /// Writes `amount` (in billionths) without a fraction, with the largest suffix that allows this.
    fn write(self, amount: i128) -> String {
        match self {
            // The API server writes amounts below 1 Ki, and amounts with a fraction of a unit, in decimal.
            Self::Binary if amount.abs() >= 1024 * ONE && amount % ONE == 0 => {
                let (number, steps) = reduce(amount / ONE, 1024, BINARY.len() - 1);
                format!("{number}{}", BINARY[steps])
            }
            Self::Binary | Self::Decimal => {
                let (number, steps) = reduce(amount, 1000, DECIMAL.len() - 1);
                format!("{number}{}", DECIMAL[if number == 0 { 3 } else { steps }])
            }
            Self::Exponent => {
                let (number, steps) = reduce(amount, 1000, usize::MAX);
                match steps {
                    _ if number == 0 => "0".to_owned(),
                    3 => number.to_string(),
                    0..3 => format!("{number}e-{}", 9 - 3 * steps),
                    _ => format!("{number}e{}", 3 * steps - 9),
                }
            }
        }
    }
}

/// Divides by `base` while there is no remainder, at most `most` times. Returns the quotient and the number of divisions.
fn reduce(mut number: i128, base: i128, most: usize) -> (i128, usize) {
    let mut steps = 0;
    while steps < most && number != 0 && number % base == 0 {
        number /= base;
        steps += 1;
    }
    (number, steps)
}

fn read(text: &str) -> Option<(i128, Form)> {
    let (sign, unsigned) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (scale, form) = suffix_scale(suffix)?;
    let mut digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let mut decimals = i32::try_from(fraction.len()).ok()?;
    match scale {
        Scale::Binary(power) => digits = digits.checked_mul(1_i128.checked_shl(power)?)?,
        Scale::Decimal(power) => decimals -= power,
    }
    // To get billionths, shift the decimal point by nine digits; round up what remains behind it.
    let shift = 9 - decimals;
    let ten_to = 10_i128.checked_pow(shift.unsigned_abs())?;
    let amount =
        if shift >= 0 { digits.checked_mul(ten_to)? } else { digits / ten_to + i128::from(digits % ten_to > 0) };
    Some((sign * amount, form))
}

enum Scale {
    /// A power of two.
    Binary(u32),
    /// A power of ten.
    Decimal(i32),
}

fn suffix_scale(suffix: &str) -> Option<(Scale, Form)> {
    if let Some(steps) = (0_i32..).zip(DECIMAL).find_map(|(steps, it)| (it == suffix).then_some(steps)) {
        return Some((Scale::Decimal(3 * steps - 9), Form::Decimal));
    }
    if let Some(steps) = (0_u32..).zip(BINARY).find_map(|(steps, it)| (it == suffix).then_some(steps)) {
        return Some((Scale::Binary(10 * steps), Form::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((Scale::Decimal(exponent.parse().ok()?), Form::Exponent))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn notations_of_one_quantity_are_the_same() {
        for (one, other, expected) in [
            (json!("1000m"), json!("1"), true),
            (json!("1024Mi"), json!("1Gi"), true),
            (json!(1), json!("1"), true),
            (json!(0.5), json!("500m"), true),
            (json!("9007199254740993"), json!("9007199254740992"), false),
            (json!("1"), json!("1k"), false),
            (json!("many"), json!("many"), false),
            (json!(null), json!("0"), false),
        ] {
            assert_eq!(same(&one, &other), expected, "{one} and {other}");
        }
    }

    #[test]
    fn quantities_are_formatted_as_by_the_api_server() {
        for (given, expected) in [
            ("107Mi", "107Mi"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1000m", "1"),
            ("0.05", "50m"),
            ("1500m", "1500m"),
            ("1000000", "1M"),
            ("1e3", "1e3"),
            ("12E4", "120e3"),
            ("0", "0"),
            ("0Mi", "0"),
            ("-1000", "-1k"),
            (".5", "500m"),
            ("5.", "5"),
            ("1u", "1m"),
        ] {
            assert_eq!(normal(given).as_deref(), Some(expected), "{given}");
        }
        for text in ["", "Mi", ".", "1.2.3", "1 Mi", "1mi", "abc", "1e", "--1"] {
            assert_eq!(normal(text), None, "{text}");
        }
    }

    #[test]
    fn quantities_round_up_to_whole_units() {
        let bytes = |text: &str| whole(&Quantity(text.to_owned()));
        assert_eq!(bytes("96Mi"), Some(96 << 20));
        assert_eq!(bytes("1M"), Some(1_000_000));
        assert_eq!(bytes("1500m"), Some(2), "rounded up");
        assert_eq!(bytes("much"), None);
    }

    #[test]
    fn mebibytes_are_formatted_as_by_the_api_server() {
        assert_eq!(mebibytes(107), Quantity("107Mi".to_owned()));
        assert_eq!(mebibytes(2048), Quantity("2Gi".to_owned()));
    }
}
