//! Mistake: the reconciler takes another type than its controller's.

mod greeting;

use std::sync::Arc;

use greeting::Greeting;
use manager::{Action, Context, Controller, Error};

async fn reconcile(_: Arc<String>, _: Context<Greeting>) -> Result<Action, Error> {
    Ok(Action::Done)
}

fn main() {
    let _ = Controller::of::<Greeting>().reconcile(reconcile);
}
