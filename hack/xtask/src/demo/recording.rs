//! Records what a command prints, and when, as an animated picture for documents: an SVG that scrolls like a terminal.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

/// Lines and columns of the picture.
const LINES: usize = 32;
const COLUMNS: usize = 132;
/// Pixels of a line and of a column, at this size of the font.
const HEIGHT: usize = 18;
const WIDTH: usize = 8;
const FONT: usize = 13;
const MARGIN: usize = 12;
/// A longer wait is shortened to this.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// How long a line stays the last one at least, so that a reader can follow.
const SHORTEST_WAIT: Duration = Duration::from_millis(70);
/// How long the end stays before the animation starts again.
const END: Duration = Duration::from_secs(8);

/// A printed line, and the time since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    at: Duration,
    text: String,
}

/// Runs the command, prints what it prints, and returns its lines.
pub(super) fn record(mut command: Command) -> Result<Vec<Line>> {
    let (reader, writer) = std::io::pipe().context("could not open a pipe")?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let begun = Instant::now();
    let mut child = command.spawn().context("could not start the command to record")?;
    drop(command); // and with it this process's ends of the pipe, so that reading ends with the child
    let home = std::env::var("HOME").unwrap_or_default();
    let mut lines = Vec::new();
    for line in BufReader::new(reader).lines() {
        let line = line?;
        println!("{line}");
        // A document names no folder of the machine that made it.
        let text = if home.len() > 1 { line.replace(&home, "~") } else { line };
        lines.push(Line { at: begun.elapsed(), text });
    }
    ensure!(child.wait()?.success(), "the command to record failed, see above");
    Ok(lines)
}

/// The picture of these lines, below the command that printed them.
pub(super) fn svg(command: &str, lines: &[Line]) -> String {
    let width = COLUMNS * WIDTH + 2 * MARGIN;
    let height = (LINES + 1) * HEIGHT + 2 * MARGIN;
    let mut texts = String::new();
    for (n, Line { text, .. }) in lines.iter().enumerate() {
        let class = if text.starts_with("== ") { " class=\"heading\"" } else { "" };
        let y = n * HEIGHT;
        let _ = writeln!(texts, "<text y=\"{y}\"{class}>{}</text>", escaped(&cut(text)));
    }
    let (frames, seconds) = frames(lines);
    let last = offset(lines.len().saturating_sub(1));
    let (top, left) = (MARGIN + HEIGHT, MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>What {command} prints</title>\n<style>\n\
         text {{ font: {FONT}px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #d0d7de; white-space: pre; }}\n\
         .heading {{ fill: #7ee787; font-weight: bold; }}\n\
         .lines {{ transform: translateY({last}px); animation: scroll {seconds:.2}s step-end infinite; }}\n\
         @media (prefers-reduced-motion: reduce) {{ .lines {{ animation: none; }} }}\n\
         @keyframes scroll {{\n{frames}}}\n</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n\
         <svg x=\"{left}\" y=\"{MARGIN}\"><text y=\"{FONT}\" class=\"heading\">$ {command}</text></svg>\n\
         <svg x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{}\">\n<g class=\"lines\">\n{texts}</g>\n</svg>\n</svg>\n",
        COLUMNS * WIDTH,
        LINES * HEIGHT,
    )
}

/// How far the lines are moved down while line `n` is the last: it is the lowest line of the picture.
fn offset(n: usize) -> i64 {
    let pixels = |lines: usize| i64::try_from(lines * HEIGHT).unwrap_or(i64::MAX);
    pixels(LINES) - pixels(n) - i64::try_from(HEIGHT - FONT).unwrap_or_default()
}

/// The frames of the animation, and its length in seconds.
fn frames(lines: &[Line]) -> (String, f64) {
    let mut begins = Vec::new();
    let (mut at, mut before) = (Duration::ZERO, Duration::ZERO);
    for line in lines {
        at += line.at.saturating_sub(before).clamp(SHORTEST_WAIT, LONGEST_WAIT);
        before = line.at;
        begins.push(at);
    }
    let length = (at + END).as_secs_f64();
    let mut frames = format!("0% {{ transform: translateY({}px); }}\n", (LINES + 1) * HEIGHT);
    for (n, begin) in begins.iter().enumerate() {
        let percent = begin.as_secs_f64() / length * 100.0;
        let _ = writeln!(frames, "{percent:.3}% {{ transform: translateY({}px); }}", offset(n));
    }
    (frames, length)
}

fn cut(text: &str) -> String {
    let text = text.trim_end().replace('\t', "    ");
    if text.chars().count() <= COLUMNS { text } else { text.chars().take(COLUMNS - 1).chain(['…']).collect() }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn line(seconds: f64, text: &str) -> Line {
        Line { at: Duration::from_secs_f64(seconds), text: text.to_owned() }
    }

    /// The picture in the README.
    const PICTURE: &str = include_str!("../../../../docs/demo.svg");
    const DEMO: &str = include_str!("../demo.rs");
    const ADVICE: &str =
        "docs/demo.svg is no longer what the demo prints: as root, `cargo xtask demo --record docs/demo.svg`";

    /// The lines in the picture, escaped.
    fn shown(picture: &str) -> Vec<&str> {
        let texts = picture.lines().filter_map(|line| line.strip_prefix("<text y=")?.strip_suffix("</text>"));
        texts.filter_map(|text| text.split_once('>')).map(|(_, text)| text).collect()
    }

    /// The columns of a kind that kubectl shows by default.
    fn columns(definition: &Value) -> Vec<&str> {
        let versions = definition["spec"]["versions"].as_array().expect("versions");
        let stored = versions.iter().find(|version| version["storage"] == true).expect("a stored version");
        let all = stored["additionalPrinterColumns"].as_array().expect("columns").iter();
        let by_default = all.filter(|column| column["priority"].as_i64().unwrap_or_default() == 0);
        by_default.map(|column| column["name"].as_str().expect("a name")).collect()
    }

    /// Whether the line, which may be cut, is the head of a table with these columns.
    fn is_head(line: &str, columns: &[&str]) -> bool {
        let head = format!("NAME {}", columns.join(" "));
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.strip_suffix('…') {
            Some(begin) => head.starts_with(begin.trim_end()),
            None => line == head,
        }
    }

    #[test]
    fn picture_has_the_headings_of_the_demo() {
        let calls = DEMO.split("heading(\"").skip(1).filter_map(|rest| rest.split('"').next());
        let lines = DEMO.lines().filter_map(|line| line.strip_prefix("== "));
        let printed: Vec<String> = calls.chain(lines).map(escaped).collect();
        let shown = shown(PICTURE);
        let shown: Vec<&str> = shown.iter().filter_map(|line| line.strip_prefix("== ")).collect();
        assert_eq!(shown, printed, "{ADVICE}");
    }

    #[test]
    fn picture_has_the_tables_of_the_kinds() {
        let shown = shown(PICTURE);
        let mut tables = 0;
        for definition in controller_manager::manifests::definitions() {
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            let (kind, group) = (text(&definition["spec"]["names"]["kind"]), text(&definition["spec"]["group"]));
            let (columns, object) = (columns(&definition), format!("{}.{group}/", kind.to_lowercase()));
            if let Some(table) = shown.windows(2).find(|lines| lines[1].starts_with(&object)) {
                assert!(is_head(table[0], &columns), "{ADVICE}\n{kind} has {columns:?}, not {}", table[0]);
                tables += 1;
            } else {
                // An operator that is new has a table only after the next recording. Until then, it may have no other columns.
                let is_shown = |column: &&str| shown.iter().any(|line| line.contains(*column));
                assert!(columns.iter().all(is_shown), "{ADVICE}\n{kind} has {columns:?}");
            }
        }
        assert!(tables >= 5, "{ADVICE}\nit has {tables} tables");
    }

    #[test]
    fn head_of_a_table_may_be_cut_but_not_differ() {
        let columns = ["STATUS", "LAST RUN", "AGE"];
        for (line, is_its) in [
            ("NAME   STATUS   LAST RUN   AGE", true),
            ("NAME   STATUS   LAST…", true),
            ("NAME   STATUS   LAST RUN   …", true),
            ("NAME   STATUS   LAST RUN", false),
            ("NAME   STATUS   NEXT…", false),
            ("NAME   STATUS   AGE", false),
        ] {
            assert_eq!(is_head(line, &columns), is_its, "{line}");
        }
    }

    #[test]
    fn both_outputs_are_recorded_in_their_order() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; echo $HOME/three"]);
        let lines = record(command).expect("a recording");
        let texts: Vec<_> = lines.iter().map(|line| &*line.text).collect();
        assert_eq!(texts, ["one", "two", "~/three"]);
        assert!(lines.is_sorted_by_key(|line| line.at));
    }

    #[test]
    fn failed_command_gives_no_picture() {
        assert!(record(Command::new("false")).is_err());
    }

    #[test]
    fn long_waits_are_shortened_and_short_ones_are_readable() {
        let (frames, length) = frames(&[line(0.0, "a"), line(60.0, "b"), line(60.001, "c")]);
        let expected = SHORTEST_WAIT + LONGEST_WAIT + SHORTEST_WAIT + END;
        assert!((length - expected.as_secs_f64()).abs() < 1e-9, "{length}");
        assert_eq!(frames.lines().count(), 4);
    }

    #[test]
    fn last_line_is_the_lowest_and_text_is_escaped() {
        let picture = svg("make demo", &[line(0.0, "== <a> & b"), line(1.0, &"x".repeat(300))]);
        assert!(picture.contains("<text y=\"0\" class=\"heading\">== &lt;a&gt; &amp; b</text>"), "{picture}");
        assert!(picture.contains(&format!(">{}…</text>", "x".repeat(COLUMNS - 1))), "{picture}");
        assert_eq!(offset(0) - offset(1), i64::try_from(HEIGHT).expect("small"));
        assert!(offset(0) < i64::try_from(LINES * HEIGHT).expect("small"), "the line is within the picture");
    }
}
