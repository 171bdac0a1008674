//! The second port. It serves probes, metrics, the status page, the audit and the journal. With `--fault-injection`, it also
//! serves the endpoints for tests: the actions of the airline, and the faults.

use std::{collections::BTreeMap, sync::Arc, sync::atomic::Ordering};

use axum::{
    Router,
    extract::{Path, Query, Request, State},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::json;

use crate::{
    api,
    app::{App, json as respond},
    audit, body,
    booking::{self, Fresh, Reference, RouteKey, State as BookingState, folded},
    books::{Books, Filter},
    clock,
    faults::Fault,
    ledger::{self, Airline, Decision},
    page,
    problem::{Code, Problem},
    wire,
};

type Answer = Result<Response, Problem>;

/// Bookings on one page.
const ON_A_PAGE: u32 = 50;

/// The routes of the second port.
pub(crate) fn routes(app: Arc<App>) -> Router {
    let routes = Router::new()
        .route("/", get(status))
        .route("/status.css", get(style))
        .route("/status.svg", get(icon))
        .route("/booking-api.yaml", get(api::document))
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/admin/audit", get(audited))
        .route("/admin/journal", get(journal))
        .fallback(api::nothing);
    let routes = if app.faults.is_some() {
        routes
            .route("/admin/faults", get(faults).post(arm).delete(disarm))
            .route("/admin/bookings/{id}/{act}", post(act))
            .route("/admin/seats", post(set_seats))
    } else {
        routes
    };
    routes.with_state(app)
}

async fn alive(State(app): State<Arc<App>>) -> Response {
    let lives = app.writer_lives.load(Ordering::Relaxed);
    probe("healthz", &[("writer", lives.then_some(()).ok_or_else(|| "the writing thread has ended".to_owned()))])
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    let going = !app.stopping.is_cancelled();
    let going = going.then_some(()).ok_or_else(|| "the server is stopping".to_owned());
    let tokens = app.guard.is_ready().then_some(()).ok_or_else(|| "the token file does not exist yet".to_owned());
    probe("readyz", &[("database", app.store.check().await), ("shutdown", going), ("tokens", tokens)])
}

/// Formats a probe's answer as Kubernetes components do: `ok`, or one line per check.
fn probe(name: &str, checks: &[(&str, Result<(), String>)]) -> Response {
    if checks.iter().all(|(_, result)| result.is_ok()) {
        return "ok".into_response();
    }
    let line = |(check, result): &(&str, Result<(), String>)| match result {
        Ok(()) => format!("[+]{check} ok\n"),
        Err(why) => format!("[-]{check} failed: {why}\n"),
    };
    let lines: String = checks.iter().map(line).collect();
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{name} check failed\n")).into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> Answer {
    let writer = Arc::clone(&app);
    app.store.read_for_anyone(move |books| Ok(writer.metrics.refresh(books.0)?)).await?;
    let text = app.metrics.render().map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response())
}

async fn audited(State(app): State<Arc<App>>, headers: HeaderMap) -> Answer {
    app.authorise(&headers)?;
    Ok(respond(StatusCode::OK, &app.store.read(|books| Ok(audit::of(books.0)?)).await?))
}

async fn journal(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Query(mut parameters): Query<BTreeMap<String, String>>,
) -> Answer {
    app.authorise(&headers)?;
    let reference = parameters.remove("reference").map(|text| wire::reference("reference", &text)).transpose()?;
    let after = parameters.remove("after").and_then(|text| text.parse().ok()).unwrap_or(0);
    let entries = app.store.read(move |books| Ok(books.journal(reference.as_ref(), after)?)).await?;
    Ok(respond(StatusCode::OK, &json!({"items": entries})))
}

async fn faults(State(app): State<Arc<App>>, headers: HeaderMap) -> Answer {
    app.authorise(&headers)?;
    let armed = app.faults().map(|faults| faults.list().to_vec()).unwrap_or_default();
    Ok(respond(StatusCode::OK, &json!({"items": armed})))
}

async fn arm(State(app): State<Arc<App>>, request: Request) -> Answer {
    app.authorise(request.headers())?;
    let fault: Fault = serde_json::from_value(body::json(request).await?)
        .map_err(|error| Problem::new(Code::Invalid, format!("not a fault: {error}")))?;
    let Some(mut faults) = app.faults() else { return Err(api::nothing().await) };
    let armed = faults.arm(fault)?;
    tracing::warn!(id = armed.id, op = armed.fault.op, mode = armed.fault.mode.name(), "Fault armed");
    Ok(respond(StatusCode::CREATED, &armed))
}

async fn disarm(State(app): State<Arc<App>>, headers: HeaderMap) -> Answer {
    app.authorise(&headers)?;
    if let Some(mut faults) = app.faults() {
        faults.clear();
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn act(State(app): State<Arc<App>>, Path((id, act)): Path<(String, String)>, headers: HeaderMap) -> Answer {
    app.authorise(&headers)?;
    let act = match act.as_str() {
        "confirm" => Airline::Confirm,
        "reject" => Airline::Reject,
        "cancel" => Airline::Cancel,
        "depart" => Airline::Depart,
        _ => return Err(Problem::new(Code::NotFound, "the airline can confirm, reject, cancel and depart")),
    };
    let decide = move |books: Books<'_>| {
        let booking = books.booking(&id)?.ok_or_else(|| booking::no_such_booking(&id))?;
        Ok(ledger::airline(act, booking, Fresh::draw().confirmation, clock::now())?)
    };
    Ok(respond(StatusCode::OK, &wire::booking(&app.store.write(decide).await?)))
}

async fn set_seats(State(app): State<Arc<App>>, request: Request) -> Answer {
    app.authorise(request.headers())?;
    let seats = wire::seats(body::json(request).await?)?;
    let document = json!({"from": seats.from, "to": seats.to, "seats": seats.total});
    let route = RouteKey::new(&seats.from, &seats.to, seats.date);
    let decide = move |books: Books<'_>| {
        if books.set_seats(&route, seats.total)? {
            return Ok(Decision { answer: (), changes: Vec::new() });
        }
        Err(Problem::invalid("seats", "seats with higher numbers are taken").into())
    };
    app.store.write(decide).await?;
    Ok(respond(StatusCode::OK, &document))
}

async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], page::STYLE)
}

async fn icon() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "image/svg+xml")], page::ICON)
}

async fn status(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Query(parameters): Query<BTreeMap<String, String>>,
) -> Response {
    if let Err(problem) = app.authorise_browser(&headers) {
        let mut response = problem.into_response();
        if response.status() == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Basic realm=\"booking-server: any name, a token as password\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        return response;
    }
    let view = match view(&app, &parameters).await {
        Ok(view) => view,
        Err(problem) => return problem.into_response(),
    };
    let mut response = Html(page::render(&view, clock::now()).into_string()).into_response();
    // Defence in depth: with this policy, unescaped text from a client could not run scripts either.
    let policy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn view(app: &App, parameters: &BTreeMap<String, String>) -> Result<page::View, Problem> {
    let text = |name: &str| parameters.get(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let search = page::Search {
        state: text("state").and_then(|name| BookingState::parse(&name)),
        reference: text("reference"),
        from: text("from"),
        to: text("to"),
    };
    let filter = Filter {
        state: search.state,
        // Text that is not a valid reference must match no booking, rather than switch the filter off.
        reference: search.reference.as_deref().map(|text| Reference::parse(text).unwrap_or_else(Reference::of_nobody)),
        from: search.from.as_deref().map(folded),
        to: search.to.as_deref().map(folded),
    };
    let before = text("before").and_then(|place| i64::from_str_radix(&place, 16).ok()).unwrap_or(i64::MAX);
    let (audit, mut bookings, routes) = app
        .store
        .read(move |books| Ok((audit::of(books.0)?, books.newest(&filter, before, ON_A_PAGE + 1)?, books.fullest()?)))
        .await?;
    let is_last = bookings.len() <= ON_A_PAGE as usize;
    bookings.truncate(ON_A_PAGE as usize);
    let older = bookings.last().filter(|_| !is_last).map(|(place, _)| format!("{place:x}"));
    Ok(page::View {
        audit,
        routes,
        bookings: bookings.into_iter().map(|(_, booking)| booking).collect(),
        older,
        search,
        requests: app.recent.list(),
        faults: app.faults().map(|faults| faults.list().to_vec()),
        running: app.started.elapsed(),
    })
}
