//! The status of one `Gadget`.

use manager::{Health, Report, Verdict};

use crate::api::GadgetStatus;

manager::standard_status!(GadgetStatus);

/// Returns the status of an object. If the API server refuses the child, the runtime reports the reason beside it.
pub fn of(is_up_to_date: bool) -> Report<GadgetStatus> {
    let ready = if is_up_to_date {
        Verdict::yes("Ready", "the ConfigMap is up to date")
    } else {
        Verdict::no("NotUpToDate", "the ConfigMap is missing or not up to date")
    };
    Report { status: GadgetStatus::default(), health: Health::of(ready) }
}
