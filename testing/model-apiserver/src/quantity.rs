//! The canonical form of resource quantities: `1024Mi` is `1Gi`, `1000m` is `1`. Pure.

/// The decimal suffixes, with their factors in thousandths. The server rounds up to thousandths.
const UNIT: i128 = 1000;
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// The first one stands for a thousandth.
const DECIMAL: [&str; 8] = ["m", "", "k", "M", "G", "T", "P", "E"];

/// The quantity in the server's form. `None` if the text is not a quantity, or has an exponent.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let decimals = u32::try_from(fraction.len()).ok()?;
    let binary = BINARY.iter().position(|it| *it == suffix);
    // Compute in millionths of a thousandth, so that `n` and `u` are whole numbers too.
    let fine = 1_000_000_i128;
    let scale = match (suffix, binary) {
        ("n", _) => 1,
        ("u", _) => 1000,
        (_, Some(power)) if power > 0 => (UNIT * fine).checked_mul(1024_i128.pow(u32::try_from(power).ok()?))?,
        _ => {
            let power = DECIMAL.iter().position(|it| *it == suffix)?;
            fine * 1000_i128.pow(u32::try_from(power).ok()?)
        }
    };
    let exact = mantissa.checked_mul(scale)?;
    let divisor = 10_i128.pow(decimals) * fine;
    let thousandths = exact.div_euclid(divisor) + i128::from(exact.rem_euclid(divisor) > 0);
    let is_binary = binary.is_some_and(|power| power > 0);
    if is_binary && thousandths % UNIT == 0 && thousandths.abs() >= 1024 * UNIT {
        return Some(shorten(thousandths / UNIT, 1024, &BINARY));
    }
    if thousandths == 0 {
        return Some("0".to_owned());
    }
    Some(shorten(thousandths, 1000, &DECIMAL))
}

fn shorten(mut number: i128, base: i128, suffixes: &[&str]) -> String {
    let mut steps = 0;
    while steps + 1 < suffixes.len() && number % base == 0 && number != 0 {
        number /= base;
        steps += 1;
    }
    format!("{number}{}", suffixes[steps])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        for (sent, kept) in [
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("64Mi", "64Mi"),
            ("1.5", "1500m"),
            ("0.5Gi", "512Mi"),
            ("100u", "1m"),
            ("0", "0"),
            ("1000", "1k"),
            ("1500m", "1500m"),
            ("512", "512"),
            ("1536Ki", "1536Ki"),
            ("1e3", ""),
        ] {
            assert_eq!(canonical(sent).unwrap_or_default(), kept, "{sent}");
        }
    }
}
