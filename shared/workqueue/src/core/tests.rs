//! The state machine alone: time is a number.
