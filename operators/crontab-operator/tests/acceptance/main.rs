//! What users of a CronTab can rely on, on a real API server. The numbers are those of the operator's list of acceptance
//! tests; those that are about the clock alone are beside the controller, in the time of a model. Nothing runs pods here
//! (but in `node`): the tests play the other controllers, and move the operator's clock.

mod campaign;
mod commands;
mod crowd;
mod fence;
mod kit;
mod node;
mod runs;
mod schedules;
