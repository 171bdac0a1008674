//! Something that is no function, as users of object-oriented frameworks would pass.

mod greeting;

use greeting::Greeting;
use manager::Controller;

struct Greeter;

fn main() {
    let _ = Controller::of::<Greeting>().reconcile(Greeter);
}
