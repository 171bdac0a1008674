//! Mistake: the reconciler takes a configuration that its controller does not have.

mod greeting;

use std::sync::Arc;

use greeting::Greeting;
use manager::{Action, Context, Controller, Error};

async fn reconcile(_: Arc<Greeting>, _: Context<Greeting, String>) -> Result<Action, Error> {
    Ok(Action::Done)
}

fn main() {
    let _ = Controller::of::<Greeting>().reconcile(reconcile);
}
