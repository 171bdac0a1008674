//! The registry of operators. Everything else is derived from it: the binary, the permissions, the definitions, and the
//! tests that hold for every operator, also for the one that nobody has written yet.

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
