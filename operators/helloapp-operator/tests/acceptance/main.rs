//! Acceptance tests of the operator on a real API server. The numbers in test names are those of the operator's list of
//! acceptance tests. Except in `node`, the cluster runs no pods: the tests play the other controllers, and write the objects of those.

mod children;
mod kit;
mod lifecycle;
mod node;
mod rollback;
mod security;
mod status;
