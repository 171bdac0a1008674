//! What users of a Memcached can rely on, on a real API server. The numbers are those of the operator's list of
//! acceptance tests. Nothing runs pods here: the tests play the other controllers and write what those would.

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
