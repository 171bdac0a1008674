//! Parts of texts. Pure.

use std::io::Write as _;

use api_errors::{Class, chain, classify};
use jiff::Timestamp;
use tabwriter::TabWriter;

/// Rows in columns, as kubectl prints them.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let mut writer = TabWriter::new(Vec::new()).padding(3);
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| one_line(cell)).collect();
        drop(writeln!(writer, "{}", cells.join("\t")));
    }
    let text = String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default();
    text.lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

/// Values below one another, each after its label, without the empty ones.
pub(crate) fn labelled(values: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let values = values.into_iter().filter(|(_, value)| !value.is_empty());
    columns(&values.map(|(label, value)| vec![format!("{label}:"), value]).collect::<Vec<_>>())
}

/// Rows in columns below their titles.
pub(crate) fn table<const N: usize>(titles: [&str; N], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let titles = Vec::from(titles.map(str::to_owned));
    columns(&[titles].into_iter().chain(rows).collect::<Vec<_>>())
}

/// The text on one line, without control characters: it comes from the cluster, and could change what the terminal shows.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// The time between two moments as in kubectl's column AGE: in one or two units.
pub(crate) fn age(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.as_second().saturating_sub(from.as_second()).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |large: i64, unit: char, small: i64, below: char| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{below}"),
    };
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        _ if days < 730 => format!("{days}d"),
        _ => two(days / 365, 'y', days % 365, 'd'),
    }
}

/// What failed and why, with what the user can do about it.
pub(crate) fn request_error(what: &str, error: &kube::Error) -> String {
    let why = one_line(&chain(error));
    let advice = match classify(error) {
        _ if api_errors::is_unauthorized(error) => "; log in to the cluster again, or choose another --context",
        Class::Forbidden => "; ask for the permission, or choose another --namespace or --context",
        Class::Transient if !matches!(error, kube::Error::Api(_)) => "; is the cluster of this --context running?",
        _ => "",
    };
    format!("{what}: {why}{advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_in_kubectl() {
        let from = Timestamp::UNIX_EPOCH;
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (150, "2m30s"),
            (300, "5m"),
            (3_600, "60m"),
            (10_860, "3h1m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (800 * 86_400, "2y70d"),
        ] {
            assert_eq!(age(from, Timestamp::from_second(seconds).expect("a time")), expected);
        }
        assert_eq!(age(Timestamp::from_second(5).expect("a time"), from), "0s", "clocks differ");
    }

    #[test]
    fn texts_of_the_cluster_cannot_control_the_terminal() {
        let rows = [vec!["A".to_owned(), "B".to_owned()], vec!["a\u{1b}[2J".to_owned(), "b\nc\t".to_owned()]];
        assert_eq!(columns(&rows), "A       B\na [2J   b c\n");
    }
}
