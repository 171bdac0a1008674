//! Mistake: the reconciler is not async.

mod greeting;

use std::sync::Arc;

use greeting::Greeting;
use manager::{Action, Context, Controller, Error};

fn reconcile(_: Arc<Greeting>, _: Context<Greeting>) -> Result<Action, Error> {
    Ok(Action::Done)
}

fn main() {
    let _ = Controller::of::<Greeting>().reconcile(reconcile);
}
