//! Mistake: the reconciler is an object and not a function, as in object-oriented frameworks.

mod greeting;

use greeting::Greeting;
use manager::Controller;

struct Greeter;

fn main() {
    let _ = Controller::of::<Greeting>().reconcile(Greeter);
}
