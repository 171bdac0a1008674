//! The status page: bookings, routes and recent requests. Pure: values in, HTML out. `maud` escapes every text.

use std::time::Duration;

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};

use crate::{
    audit::Audit,
    booking::{Booking, Seat, State},
    books::Taken,
    faults::Armed,
    recent::Seen,
};

/// The style of the page.
pub(crate) const STYLE: &str = include_str!("status.css");

/// Its icon.
pub(crate) const ICON: &str = include_str!("status.svg");

/// What the page shows.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) audit: Audit,
    pub(crate) routes: Vec<Taken>,
    /// The newest first.
    pub(crate) bookings: Vec<Booking>,
    /// Cursor of the page with older bookings, if there are any.
    pub(crate) older: Option<String>,
    pub(crate) search: Search,
    pub(crate) requests: Vec<Seen>,
    /// `None` without `--fault-injection`.
    pub(crate) faults: Option<Vec<Armed>>,
    pub(crate) running: Duration,
}

/// The search of the user, as typed.
#[derive(Debug, Default)]
pub(crate) struct Search {
    pub(crate) state: Option<State>,
    pub(crate) reference: Option<String>,
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
}

/// The whole page.
pub(crate) fn render(view: &View, now: Timestamp) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Bookings" }
                link rel="stylesheet" href="status.css";
                link rel="icon" href="status.svg";
            }
            body {
                header {
                    h1 { "Bookings" }
                    p { "booking-server " (env!("CARGO_PKG_VERSION")) ", up " (duration(view.running)) }
                    nav { a href="booking-api.yaml" { "API" } " " a href="metrics" { "Metrics" } " " a href="readyz" { "Readiness" } }
                }
                main {
                    @for violation in &view.audit.violations { p.alarm role="alert" { "Inconsistent data: " (violation) } }
                    @if let Some(faults) = &view.faults { (fault_notice(faults)) }
                    (totals(&view.audit))
                    (bookings(view, now))
                    @if !view.routes.is_empty() { (routes(&view.routes)) }
                    (requests(&view.requests, now))
                }
            }
        }
    }
}

fn fault_notice(faults: &[Armed]) -> Markup {
    html! {
        section.notice aria-label="Faults" {
            p { strong { "Faults can be injected." } " This server is for tests." }
            @if !faults.is_empty() {
                ul {
                    @for armed in faults {
                        li {
                            code { (armed.fault.op) " " (armed.fault.mode.name()) }
                            @if let Some(subject) = &armed.fault.subject { " for " code { (subject) } }
                            ": hit " (armed.fired) " of " (armed.seen) " requests"
                            @if armed.fault.times > 0 { ", at most " (armed.fault.times) }
                        }
                    }
                }
            }
        }
    }
}

fn totals(audit: &Audit) -> Markup {
    html! {
        dl.totals {
            @for state in State::ALL {
                div class=(state.name()) {
                    dt { (words(state)) }
                    dd { (audit.bookings.get(state.name()).copied().unwrap_or(0)) }
                }
            }
            div { dt { "Seats taken" } dd { (audit.seats_taken) } }
        }
    }
}

fn words(state: State) -> &'static str {
    match state {
        State::Confirmed => "Confirmed",
        State::Pending => "Pending",
        State::Cancelled => "Cancelled",
        State::Rejected => "Rejected",
    }
}

fn bookings(view: &View, now: Timestamp) -> Markup {
    let Search { state, reference, from, to } = &view.search;
    let field = |name: &str, label: &str, value: &Option<String>| {
        html! { label { (label) input type="search" name=(name) value=[value.as_deref()] autocomplete="off"; } }
    };
    html! {
        section aria-labelledby="bookings" {
            h2 id="bookings" { "Bookings" }
            form.search method="get" {
                label {
                    "State"
                    select name="state" {
                        option value="" { "Any" }
                        @for each in State::ALL { option value=(each.name()) selected[*state == Some(each)] { (words(each)) } }
                    }
                }
                (field("from", "From", from)) (field("to", "To", to)) (field("reference", "Reference", reference))
                button { "Search" }
            }
            @if view.bookings.is_empty() { p.empty { "No bookings." } } @else { (booking_table(&view.bookings, now)) }
            @if let Some(older) = &view.older {
                form.older method="get" {
                    @if let Some(state) = state { input type="hidden" name="state" value=(state.name()); }
                    @for (name, value) in [("from", from), ("to", to), ("reference", reference)] {
                        @if let Some(value) = value { input type="hidden" name=(name) value=(value); }
                    }
                    input type="hidden" name="before" value=(older);
                    button { "Older" }
                }
            }
        }
    }
}

fn booking_table(bookings: &[Booking], now: Timestamp) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="List of bookings" {
            table {
                thead { tr { th { "Booking" } th { "State" } th { "Trip" } th.number { "Seats" } th { "Code" } th { "For" } th { "Booked" } } }
                tbody {
                    @for booking in bookings {
                        @let order = &booking.order;
                        tr {
                            td { code { (booking.id) } br; small { code.reference title=(order.reference) { (order.reference) } } }
                            td {
                                span.state.(booking.state.name()) { (words(booking.state)) }
                                @if let Some(message) = &booking.message { br; small { bdi { (message) } } }
                            }
                            td.trip {
                                bdi { (order.from) } " → " bdi { (order.to) }
                                br; small { (order.cabin.name()) @if let Some(date) = order.date { ", " (date) } }
                            }
                            td.number { (order.number) br; small { (seats(&booking.seats)) } }
                            td { @if let Some(code) = &booking.confirmation { code { (code) } } }
                            td { @if let Some(contact) = &order.contact { bdi { (contact.namespace) } "/" wbr; bdi { (contact.name) } } }
                            td { (moment(booking.created_at, now)) }
                        }
                    }
                }
            }
        }
    }
}

/// "12A–12C" for adjacent seats, otherwise a list.
fn seats(seats: &[Seat]) -> String {
    match seats {
        [first, .., last] if last.0 - first.0 + 1 == u32::try_from(seats.len()).unwrap_or(0) => {
            format!("{first}–{last}")
        }
        _ => seats.iter().map(Seat::to_string).collect::<Vec<_>>().join(" "),
    }
}

fn routes(routes: &[Taken]) -> Markup {
    html! {
        section aria-labelledby="routes" {
            h2 id="routes" { "Fullest routes" }
            ul.routes {
                @for route in routes {
                    li {
                        span { bdi { (route.from) } " → " bdi { (route.to) } @if !route.day.is_empty() { small { " " (route.day) } } }
                        meter min="0" max=(route.total) value=(route.held) {}
                        span.number { (route.held) " of " (route.total) }
                    }
                }
            }
        }
    }
}

fn requests(requests: &[Seen], now: Timestamp) -> Markup {
    html! {
        section aria-labelledby="requests" {
            h2 id="requests" { "Recent requests" }
            @if requests.is_empty() { p.empty { "No requests yet." } } @else {
                div.scroll tabindex="0" role="region" aria-label="List of requests" {
                    table {
                        thead { tr { th { "Time" } th { "Request" } th { "About" } th { "Answer" } th.number { "Took" } } }
                        tbody {
                            @for seen in requests {
                                tr {
                                    td { (moment(seen.at, now)) }
                                    td { (seen.op) }
                                    td { code.reference title=(seen.subject) { (seen.subject) } }
                                    td {
                                        span.answer.(class(seen.status)) { @match seen.status { Some(status) => (status), None => "none" } }
                                        @if let Some(code) = seen.code { " " small { (code.name()) } }
                                        @if let Some(fault) = seen.fault { " " small.fault { "fault: " (fault) } }
                                    }
                                    td.number { (format!("{:.1}", seen.took.as_secs_f64() * 1000.0)) " ms" }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn class(status: Option<u16>) -> &'static str {
    match status {
        Some(..400) => "good",
        Some(400..500) => "refused",
        _ => "failed",
    }
}

/// The age of a time, with the exact time as a tooltip.
fn moment(at: Timestamp, now: Timestamp) -> Markup {
    let ago = Duration::try_from(now.duration_since(at)).unwrap_or_default();
    html! { time datetime=(at) title=(at) { (duration(ago)) " ago" } }
}

fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_seats_are_shown_as_range() {
        let told = |numbers: &[u32]| seats(&numbers.iter().copied().map(Seat).collect::<Vec<_>>());
        assert_eq!(told(&[]), "");
        assert_eq!(told(&[0]), "1A");
        assert_eq!(told(&[0, 1, 2]), "1A–1C");
        assert_eq!(told(&[0, 2]), "1A 1C");
    }

    #[test]
    fn durations_are_shown_in_one_unit() {
        let told = |seconds| duration(Duration::from_secs(seconds));
        assert_eq!([59, 60, 7199, 86400].map(told), ["59 s", "1 min", "1 h", "1 d"]);
    }
}
