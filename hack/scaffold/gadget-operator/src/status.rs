//! The status of one `Gadget`.

use manager::{Health, Report, Verdict};

use crate::api::GadgetStatus;

manager::standard_status!(GadgetStatus);

/// Returns the status of an object. If the API server refuses the child, the runtime reports the reason beside it.
pub fn of(has_child: bool) -> Report<GadgetStatus> {
    let ready = if has_child {
        Verdict::yes("Ready", "the ConfigMap is up to date")
    } else {
        Verdict::no("NoConfigMap", "there is no ConfigMap")
    };
    Report { status: GadgetStatus::default(), health: Health::of(ready) }
}
