//! What users of a HelloApp can rely on, on a real API server. The numbers are those of the operator's list of acceptance
//! tests. Nothing runs pods here: the tests play the other controllers and write what those would.

mod children;
mod kit;
mod lifecycle;
mod rollback;
mod security;
mod status;
