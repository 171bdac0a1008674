//! Keeps one booking per [`FlightTicket`], and none for one that is gone.

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

/// Takes the ticket a step further, until the provider has said all that there is to say for now.
///
/// Whatever is lost on the way, the same steps are taken again: each of them can be repeated.
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
    // Nothing is booked that could be forgotten, and nothing by what a former leader has left in the cache.
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

/// Gives back what was booked, and closes the door behind it.
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

/// Writes the status, and then tells what is new.
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
