//! The registry of operators. The binary, the permissions, the CRDs, and the tests that all operators must pass, including future
//! ones, derive from it.

pub mod manifests;

use crontab_operator::CronTabOperator;
use flightticket_operator::FlightTicketOperator;
use foo_operator::FooOperator;
use helloapp_operator::HelloAppOperator;
use manager::Operator;
use memcached_operator::MemcachedOperator;

/// Every operator of this workspace.
pub const OPERATORS: &[&dyn Operator] =
    &[&CronTabOperator, &FlightTicketOperator, &FooOperator, &HelloAppOperator, &MemcachedOperator];
