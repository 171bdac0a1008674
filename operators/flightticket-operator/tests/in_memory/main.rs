//! Tests of the whole operator against a model of the API server and a model of a provider, in one thread and in paused time. So
//! an hour takes no time, and a test can inject a fault at each request in turn.

mod adoption;
mod airline;
mod deletion;
mod hour;
mod interference;
mod mischief;
mod office;
mod plans;
mod restored;
mod rollback;
mod tenants;
mod times;
