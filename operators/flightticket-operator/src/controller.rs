//! The reconciler of [`FlightTicket`]: keeps one booking per object, and cancels it when the object is deleted.

use std::{sync::Arc, time::Duration};

use futures::channel::mpsc::UnboundedSender;
use manager::{Action, Context, Deletion, Error, Event, ObjectKey};
use tokio::time::timeout;

use crate::{
    FlightTicket,
    booking::{Client, Place},
    cancellation::{Cancellation, End},
    course::{Course, Step},
    polling::Polling,
    status::{self, StatusUpdate},
    ticket::{ADOPT, BOOKING_ID, Claim},
};

/// The index of tickets by the booking that their status shows.
pub(crate) const SHOWN: &str = "booking";

/// How long the deletion by force waits for the provider.
const FORCED: Duration = Duration::from_secs(2);

/// How the operator reaches the provider, and other tickets.
pub(crate) struct Booking {
    /// The client of the provider, or why there is none.
    pub(crate) client: Result<Client, String>,
    pub(crate) polling: Arc<Polling>,
    /// Wakes tickets.
    pub(crate) wake: UnboundedSender<ObjectKey>,
}

// ANCHOR: reconcile
/// Carries out the steps of a [`Course`] until it has nothing more to request from the provider for now.
///
/// Every step is idempotent: after a crash, the next reconcile takes the same steps again.
pub(crate) async fn reconcile(ticket: Arc<FlightTicket>, ctx: Context<FlightTicket, Booking>) -> Result<Action, Error> {
    let Booking { client, polling, wake } = ctx.config();
    let provider = match client {
        Ok(provider) => provider,
        Err(lack) => {
            publish(&ctx, &status::without_provider(&ticket, lack), Vec::new()).await?;
            return Ok(Action::Done);
        }
    };
    // Before any request, also to the API server: many tickets of one namespace must not keep all workers busy.
    let place = match admit(&ticket, provider, polling) {
        Ok(place) => place,
        Err(later) => return Ok(later),
    };
    // No booking without a finalizer, which would otherwise remain after the object's deletion. No decision on a cached status
    // that a former leader may have changed since.
    if ctx.ensure_finalizer().await?.is_none() {
        return Ok(Action::Done);
    }
    let Some(ticket) = ctx.refresh_status().await? else { return Ok(Action::Done) };

    let mut course = Course::of(&ticket, polling.so_far(&ticket));
    let wait = loop {
        match course.step() {
            Step::Ask(request) => {
                let outcome = place.ask(&request, || ctx.now()).await;
                course.handle(request, outcome, ctx.now());
            }
            Step::Note(Claim { id, adopt }) => {
                drop(ctx.annotate(&[(BOOKING_ID, id.as_deref()), (ADOPT, adopt.as_deref())]).await?);
            }
            Step::Remember => {
                publish(&ctx, course.update(), Vec::new()).await?;
                if ctx.object().status.as_ref().map(|it| it.attempt) != Some(course.update().status.attempt) {
                    return Ok(Action::Done); // the object is gone
                }
            }
            Step::Rest(wait) => break wait,
        }
    };
    // The former owner of an adopted booking still shows it. Before the write, whose answer may be lost.
    let former = course.acquired().map(|id| ctx.indexed(SHOWN, id)).unwrap_or_default();
    for former in former.iter().filter(|former| former.metadata.uid != ticket.metadata.uid) {
        drop(wake.unbounded_send(former.key())); // fails only if the process ends
    }
    publish(&ctx, course.update(), course.events()).await?;
    Ok(polling.rest(&ctx.object(), wait, ctx.random()))
}
// ANCHOR_END: reconcile

/// Cancels the booking of a deleted ticket, and closes its references so that no late request can book.
pub(crate) async fn clean_up(
    cached: Arc<FlightTicket>,
    ctx: Context<FlightTicket, Booking>,
) -> Result<Deletion, Error> {
    let Booking { client, polling, .. } = ctx.config();
    let lack = client.as_ref().err().map(String::as_str);
    // As in `reconcile`, tickets without a place send no requests, also not to the API server. The cached ticket is enough to tell
    // whether it needs a place, because all decisions follow from the refreshed one.
    let needs_provider = Cancellation::of(&cached, polling.so_far(&cached), lack).needs_provider();
    let admitted = match client {
        Ok(provider) if needs_provider => Some(provider.enter(&cached.key().namespace)),
        _ => None,
    };
    // The deletion by force does not wait for a place, see below.
    if let Some(Err(wait)) = admitted
        && !cached.is_forced()
    {
        return Ok(Deletion::Pending(Action::NotBefore(wait)));
    }
    let Some(ticket) = ctx.refresh_status().await? else { return Ok(Deletion::Pending(Action::Done)) };

    let mut cancellation = Cancellation::of(&ticket, polling.so_far(&ticket), lack);
    if cancellation.needs_provider()
        && let Ok(provider) = client
    {
        let admitted = admitted.unwrap_or_else(|| provider.enter(&ticket.key().namespace));
        match (admitted, polling.pause(&ticket)) {
            (Ok(place), None) if ticket.is_forced() => {
                if timeout(FORCED, cancel(&mut cancellation, &place, &ctx)).await.is_err() {
                    cancellation.give_up();
                }
            }
            (Ok(place), None) => cancel(&mut cancellation, &place, &ctx).await,
            _ if ticket.is_forced() => cancellation.give_up(),
            (Ok(_place), Some(pause)) => {
                publish(&ctx, &cancellation.postponed(), Vec::new()).await?;
                return Ok(Deletion::Pending(Action::After(pause)));
            }
            (Err(wait), _) => return Ok(Deletion::Pending(Action::NotBefore(wait))),
        }
    }
    match cancellation.end() {
        End::Finished(events) => {
            emit(&ctx, events);
            Ok(Deletion::Finished)
        }
        End::Waiting(update, wait) => {
            let trouble = update.trouble().filter(|_| polling.remind(&ticket));
            publish(&ctx, &update, trouble.into_iter().collect()).await?;
            Ok(Deletion::Pending(polling.rest(&ctx.object(), wait, ctx.random())))
        }
    }
}

/// Lets the ticket use the provider now, or returns when it may try again.
fn admit(ticket: &FlightTicket, provider: &Client, polling: &Polling) -> Result<Place, Action> {
    if let Some(pause) = polling.pause(ticket) {
        return Err(Action::After(pause));
    }
    // The ticket keeps its back-off.
    provider.enter(&ticket.key().namespace).map_err(Action::NotBefore)
}

async fn cancel(cancellation: &mut Cancellation<'_>, place: &Place, ctx: &Context<FlightTicket, Booking>) {
    while let Some(request) = cancellation.request() {
        let outcome = place.ask(&request, || ctx.now()).await;
        cancellation.handle(&request, outcome);
    }
}

/// Writes the status, and then emits the events.
async fn publish(ctx: &Context<FlightTicket, Booking>, update: &StatusUpdate, events: Vec<Event>) -> Result<(), Error> {
    ctx.apply_external(update.status.clone(), &update.external()).await?;
    emit(ctx, events);
    Ok(())
}

fn emit(ctx: &Context<FlightTicket, Booking>, events: Vec<Event>) {
    for Event { type_, reason, message } in events {
        ctx.event(type_, reason, message);
    }
}
