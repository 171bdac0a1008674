//! Acceptance tests of the operator on a real API server. The numbers in test names are those of the operator's list of
//! acceptance tests. The cluster runs no pods: the tests play the other controllers, and write the objects of those.

mod campaign;
mod children;
mod drain;
mod faults;
mod in_sync;
mod kit;
mod leading;
mod optional;
mod proxied;
mod races;
mod restored;
mod secrets;
mod status;
