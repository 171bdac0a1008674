//! The reconciler of [`FlightTicket`]: keeps one booking per object, and cancels it when the object is deleted.

use std::sync::Arc;

use manager::{Action, Context, Deletion, Error, Event};

use crate::{
    FlightTicket,
    booking::Client,
    cancellation::{Cancellation, End},
    course::{Course, Step},
    polling::Polling,
    status::{self, StatusUpdate},
    ticket::BOOKING_ID,
};

/// How the operator reaches the provider.
pub(crate) struct Booking {
    /// `None` if no provider is configured.
    pub(crate) client: Option<Client>,
    pub(crate) polling: Arc<Polling>,
}

/// Carries out the steps of a [`Course`] until it has nothing more to request from the provider for now.
///
/// Every step is idempotent: after a crash, the next reconcile takes the same steps again.
pub(crate) async fn reconcile(ticket: Arc<FlightTicket>, ctx: Context<FlightTicket, Booking>) -> Result<Action, Error> {
    let Booking { client, polling } = ctx.config();
    let Some(provider) = client else {
        publish(&ctx, &status::not_configured(&ticket), Vec::new()).await?;
        return Ok(Action::Done);
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
                let outcome = provider.ask(&request).await;
                course.handle(request, outcome, ctx.now());
            }
            Step::Note(id) => drop(ctx.annotate(&[(BOOKING_ID, id.as_deref())]).await?),
            Step::Remember => {
                publish(&ctx, course.update(), Vec::new()).await?;
                if ctx.object().status.as_ref().map(|it| it.attempt) != Some(course.update().status.attempt) {
                    return Ok(Action::Done); // the object is gone
                }
            }
            Step::Rest(wait) => break wait,
        }
    };
    publish(&ctx, course.update(), course.events()).await?;
    Ok(polling.rest(&ctx.object(), wait, ctx.random()))
}

/// Cancels the booking of a deleted ticket, and closes its references so that no late request can book.
pub(crate) async fn clean_up(_: Arc<FlightTicket>, ctx: Context<FlightTicket, Booking>) -> Result<Deletion, Error> {
    let Booking { client: provider, polling } = ctx.config();
    let Some(ticket) = ctx.refresh_status().await? else { return Ok(Deletion::Pending(Action::Done)) };

    let mut cancellation = Cancellation::of(&ticket, polling.so_far(&ticket), provider.is_some());
    while let (Some(provider), Some(request)) = (provider, cancellation.request()) {
        let outcome = provider.ask(&request).await;
        cancellation.handle(&request, outcome);
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
