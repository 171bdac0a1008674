//! `status`: all objects in one table, what is wrong first.

use std::fmt::Write as _;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::{
    Api,
    api::{DynamicObject, ListParams},
};
use serde_json::{Value, json};

use crate::{
    Failed, Session,
    cli::{Format, StatusFlags},
    kinds::Kind,
    object::{Health, State, state},
    text::{age, columns, one_line, request_error},
};

/// The number of objects in a page, as in kubectl.
const PAGE: u32 = 500;
/// How many kinds are listed at once.
const AT_ONCE: usize = 4;
/// The longest message in the table, in characters, where no terminal shows it. `describe` shows the rest.
const MESSAGE: usize = 80;
/// The shortest one. A terminal that has no room for it breaks the lines.
const SHORTEST: usize = 20;
/// The spaces between two columns.
const GAP: usize = 3;

/// One object.
struct Row {
    namespace: String,
    kind: String,
    /// As commands name it.
    target: String,
    created: Option<Timestamp>,
    state: State,
}

pub(crate) async fn run(session: &Session, flags: &StatusFlags) -> Result<String, Failed> {
    let lists = stream::iter(chosen(session, &flags.kinds)?).map(async |kind| (kind, list(session, kind).await));
    let lists: Vec<_> = lists.buffered(AT_ONCE).collect().await;
    let (mut rows, mut unreadable) = (Vec::new(), Vec::new());
    for (kind, result) in lists {
        match result {
            Ok(objects) => rows.extend(objects.iter().map(|object| row(kind, object, session.now))),
            Err(error) => unreadable.push(request_error(&format!("cannot list {}", kind.resource.plural), &error)),
        }
    }
    let found = rows.len();
    rows.retain(|row| !flags.not_ready || row.state.health != Health::Ready);
    rows.sort_by(|a, b| (a.state.health, &a.namespace, &a.target).cmp(&(b.state.health, &b.namespace, &b.target)));
    let text = match flags.output {
        // What cannot be read may be there.
        Format::Table if rows.is_empty() && !unreadable.is_empty() => String::new(),
        Format::Table if rows.is_empty() => none(session, found),
        Format::Table => table(&rows, session.all_namespaces, session.now, session.width),
        Format::Json => as_json(&rows),
    };
    if unreadable.is_empty() { Ok(text) } else { Err(Failed { text, error: unreadable.join("\nerror: ") }) }
}

/// The kinds with these names, each once; all kinds without names.
fn chosen<'a>(session: &'a Session, names: &[String]) -> Result<Vec<&'a Kind>, String> {
    if names.is_empty() {
        return Ok(session.kinds.iter().collect());
    }
    let mut kinds = Vec::new();
    for name in names {
        let kind = session.kinds.find(name)?;
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    Ok(kinds)
}

async fn list(session: &Session, kind: &Kind) -> Result<Vec<DynamicObject>, kube::Error> {
    let api =
        if session.all_namespaces { Api::all_with(session.client.clone(), &kind.resource) } else { kind.api(session) };
    let (mut objects, mut parameters) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = api.list(&parameters).await?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

fn row(kind: &Kind, object: &DynamicObject, now: Timestamp) -> Row {
    let metadata = &object.metadata;
    Row {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        kind: kind.resource.kind.clone(),
        target: kind.named(metadata.name.as_deref().unwrap_or_default()),
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        state: state(kind, object, now),
    }
}

/// What to say if the table has no row. `ready` objects are not shown, because the user asks for those that are not ready.
fn none(session: &Session, ready: usize) -> String {
    let place = if session.all_namespaces { String::new() } else { format!(" in namespace {}", session.namespace) };
    match ready {
        0 if session.all_namespaces => "No objects.\n".to_owned(),
        0 => format!("No objects{place}; --all-namespaces shows those of all namespaces.\n"),
        ready => format!("All objects{place} are ready: {ready}.\n"),
    }
}

/// The table, whose lines fit into a terminal of this width if that leaves room for a part of the message.
fn table(rows: &[Row], all_namespaces: bool, now: Timestamp, width: Option<usize>) -> String {
    let since = |time: Option<Timestamp>| time.map_or_else(|| "-".to_owned(), |time| age(time, now));
    let head = ["NAMESPACE", "OBJECT", "READY", "REASON", "SINCE", "AGE", "MESSAGE"].map(str::to_owned).to_vec();
    let cells = rows.iter().map(|row| {
        let State { health, ready, reason, message, since: changed } = &row.state;
        // Nothing is wrong with a ready object, so its message is only noise.
        let message = if *health == Health::Ready { String::new() } else { message.clone() };
        vec![
            row.namespace.clone(),
            row.target.clone(),
            ready.clone(),
            reason.clone(),
            since(*changed),
            since(row.created),
            message,
        ]
    });
    let mut lines: Vec<Vec<String>> = [head].into_iter().chain(cells).collect();
    if !all_namespaces {
        for line in &mut lines {
            line.remove(0);
        }
    }
    let before = lines[0].len() - 1;
    let widest = |column: usize| lines.iter().map(|line| one_line(&line[column]).chars().count()).max().unwrap_or(0);
    let used: usize = (0..before).map(|column| widest(column) + GAP).sum();
    let longest = width.map_or(MESSAGE, |width| width.saturating_sub(used + 1).max(SHORTEST)); // 1: the sign of an omission
    for line in &mut lines {
        line[before] = shortened(&line[before], longest);
    }
    let mut text = columns(&lines);
    let count = |health: Health| rows.iter().filter(|row| row.state.health == health).count();
    let parts = [
        (Health::Wrong, "with problems"),
        (Health::InProgress, "in progress"),
        (Health::Paused, "paused"),
        (Health::Ready, "ready"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .map(|(health, words)| (count(health), words))
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    let _ = writeln!(text, "\n{}", parts.join(", "));
    text
}

fn shortened(message: &str, longest: usize) -> String {
    match message.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

fn as_json(rows: &[Row]) -> String {
    let object = |row: &Row| {
        let State { health, ready, reason, message, since } = &row.state;
        json!({
            "namespace": row.namespace, "kind": row.kind, "object": row.target, "health": health, "ready": ready,
            "reason": reason, "message": message, "since": since.map(|it| it.to_string()),
            "created": row.created.map(|it| it.to_string()),
        })
    };
    let rows: Vec<Value> = rows.iter().map(object).collect();
    serde_json::to_string_pretty(&rows).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::{condition, kind, object};

    fn rows(now: Timestamp) -> Vec<Row> {
        let long = "cannot pull the image registry.example.com/nginx:nope: ".repeat(3);
        let status = |conditions: Value| json!({"observedGeneration": 2, "conditions": conditions});
        let objects = [
            object(
                "broken",
                &json!({}),
                &status(json!([
                    condition("Degraded", "True", "ImagePull", &long),
                    condition("Ready", "False", "ImagePull", &long),
                ])),
            ),
            object("new", &json!({}), &json!({})),
            object(
                "paused",
                &json!({"annotations": {"example.com/paused": "true"}}),
                &status(json!([condition("Ready", "True", "Ready", "3 of 3"),])),
            ),
            object(
                "well",
                &json!({"namespace": "default"}),
                &status(json!([condition("Ready", "True", "Ready", "3 of 3")])),
            ),
        ];
        objects.iter().map(|object| row(&kind(), object, now)).collect()
    }

    #[test]
    fn table_is_short_and_says_what_is_wrong() {
        let now = "2026-01-01T03:00:00Z".parse().expect("a time");
        insta::assert_snapshot!("all_namespaces", table(&rows(now), true, now, None));
        insta::assert_snapshot!("one_namespace", table(&rows(now)[..3], false, now, None));
    }

    #[test]
    fn table_fits_into_the_terminal() {
        let now = "2026-01-01T03:00:00Z".parse().expect("a time");
        let widest = |width: usize| {
            let text = table(&rows(now), false, now, Some(width));
            text.lines().map(|line| line.chars().count()).max().expect("a line")
        };
        assert_eq!([widest(90), widest(120)], [90, 120]);
        let longest = "cannot pull the image registry.example.com/nginx:nope: ".repeat(3).chars().count();
        let row = table(&rows(now), false, now, Some(400)).lines().nth(1).expect("a row").to_owned();
        assert!(row.chars().count() > longest, "the whole message has room: {row}");
        assert!(table(&rows(now), false, now, Some(10)).contains("cannot pull the imag…"), "a part of it stays");
    }
}
