//! The registry of operators. The binary, the permissions, the CRDs, and the tests that all operators must pass, including future
//! ones, derive from it.

pub mod manifests;

use manager::Operator;

/// Every operator of this workspace, one line each.
pub const OPERATORS: &[&dyn Operator] = &[
    &crontab_operator::CronTabOperator,
    &flightticket_operator::FlightTicketOperator,
    &foo_operator::FooOperator,
    &helloapp_operator::HelloAppOperator,
    &memcached_operator::MemcachedOperator,
];
