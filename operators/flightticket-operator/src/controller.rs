//! The reconciler of [`FlightTicket`]: keeps one booking per object, and cancels it when the object is deleted.

use std::sync::Arc;

use manager::{Action, Context, Deletion, Error};

use crate::{
    FlightTicket,
    booking::Client,
    course::{Course, Step},
    ending::{End, Ending},
    status::{self, News, Told},
    ticket::BOOKING_ID,
    visits::Visits,
};

/// Carries out the steps of a [`Course`] until it has nothing more to request from the provider for now.
///
/// Every step is idempotent: after a crash, the next reconcile takes the same steps again.
pub(crate) async fn reconcile(ticket: Arc<FlightTicket>, ctx: Context<FlightTicket>) -> Result<Action, Error> {
    let visits = ctx.config::<Arc<Visits>>();
    let Some(provider) = ctx.config::<Option<Client>>() else {
        tell(&ctx, &status::not_configured(&ticket), Vec::new()).await?;
        return Ok(Action::Done);
    };
    let is_told = Told::stored(&ticket).ready.is_some();
    if let Some(wait) = visits.wait(&ticket).filter(|_| is_told) {
        return Ok(Action::After(wait));
    }
    // No booking without a finalizer, which would otherwise remain after the object's deletion. No decision on a cached status
    // that a former leader may have changed since.
    if ctx.ensure_finalizer().await?.is_none() {
        return Ok(Action::Done);
    }
    let Some(ticket) = ctx.recall().await? else { return Ok(Action::Done) };

    let mut course = Course::of(&ticket, visits.so_far(&ticket));
    let wait = loop {
        match course.step() {
            Step::Ask(request) => {
                let outcome = provider.ask(&request).await;
                course.hear(request, outcome, ctx.now());
            }
            Step::Note(id) => drop(ctx.annotate(&[(BOOKING_ID, id.as_deref())]).await?),
            Step::Remember => {
                tell(&ctx, course.told(), Vec::new()).await?;
                if ctx.object().status.as_ref().map(|it| it.attempt) != Some(course.told().status.attempt) {
                    return Ok(Action::Done); // the object is gone
                }
            }
            Step::Rest(wait) => break wait,
        }
    };
    tell(&ctx, course.told(), course.news()).await?;
    Ok(visits.rest(&ctx.object(), wait, ctx.random()))
}

/// Cancels the booking of a deleted ticket, and closes its references so that no late request can book.
pub(crate) async fn clean_up(ticket: Arc<FlightTicket>, ctx: Context<FlightTicket>) -> Result<Deletion, Error> {
    let visits = ctx.config::<Arc<Visits>>();
    if let Some(wait) = visits.wait(&ticket) {
        return Ok(Deletion::Pending(Action::After(wait)));
    }
    let Some(ticket) = ctx.recall().await? else { return Ok(Deletion::Pending(Action::Done)) };
    let provider = ctx.config::<Option<Client>>();

    let mut ending = Ending::of(&ticket, visits.so_far(&ticket), provider.is_some());
    while let (Some(provider), Some(request)) = (provider, ending.request()) {
        let outcome = provider.ask(&request).await;
        ending.hear(&request, outcome);
    }
    match ending.end() {
        End::Finished(news) => {
            say(&ctx, news);
            Ok(Deletion::Finished)
        }
        End::Waiting(told, wait) => {
            let trouble = told.trouble().filter(|_| visits.remind(&ticket));
            tell(&ctx, &told, trouble.into_iter().collect()).await?;
            Ok(Deletion::Pending(visits.rest(&ctx.object(), wait, ctx.random())))
        }
    }
}

/// Writes the status, and then emits the events.
async fn tell(ctx: &Context<FlightTicket>, told: &Told, news: Vec<News>) -> Result<(), Error> {
    ctx.apply_external(told.status.clone(), &told.external()).await?;
    say(ctx, news);
    Ok(())
}

fn say(ctx: &Context<FlightTicket>, news: Vec<News>) {
    for News { type_, reason, message } in news {
        ctx.event(type_, reason, message);
    }
}
