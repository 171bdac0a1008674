//! `flights.com/v1`.
//!
//! `kubectl explain` prints the doc comments of this module. All defaults are in the schema, so that the object stores them and
//! the defaults of a later release do not change existing tickets.

#![expect(unreachable_pub, reason = "KubeSchema derives through a hidden copy of the struct")]
#![expect(clippy::duplicated_attributes, reason = "columns have a type each")]

use std::fmt;

use jiff::{Timestamp, civil::Date};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use workloads::{Fence, schemas};

/// The trip, the number of seats, and what happens to the booking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "flights.com",
    version = "v1",
    kind = "FlightTicket",
    plural = "flighttickets",
    shortname = "ft",
    category = "all",
    namespaced,
    doc = "Books seats on a flight, exactly once, at the booking provider that the operator is configured with.",
    derive = "PartialEq",
    status = "FlightTicketStatus",
    printcolumn(name = "STATUS", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "FROM", type_ = "string", json_path = ".spec.from"),
    printcolumn(name = "TO", type_ = "string", json_path = ".spec.to"),
    printcolumn(name = "NUMBER", type_ = "integer", json_path = ".spec.number"),
    printcolumn(name = "BOOKING", type_ = "string", json_path = ".status.bookingId"),
    printcolumn(
        name = "REASON",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    ),
    printcolumn(
        name = "SYNCED",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Synced\")].reason",
        priority = 1
    ),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    // Of `Ready` or else of `Synced`, the first that is not true. The other conditions exist only while they are true.
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = ".status.conditions[?(@.status!=\"True\")].message",
        priority = 1
    ),
    selectable = ".status.phase",
    selectable = ".status.bookingId",
    selectable = ".spec.from",
    selectable = ".spec.to",
    selectable = ".spec.departureDate"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.from.lowerAscii() != self.to.lowerAscii()", "message": "from and to must differ"},
    {
        "rule": "has(self.departureDate) == has(oldSelf.departureDate)",
        "message": "departureDate cannot be changed; delete this FlightTicket and create another",
    },
]))]
pub struct FlightTicketSpec {
    /// The departure city. It cannot be changed.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-validations" = [
        {
            "rule": r"self.matches('^\\S(.*\\S)?$')",
            "message": "from must be one line that does not begin or end with a blank",
        },
        {"rule": "self == oldSelf", "message": "from cannot be changed; delete this FlightTicket and create another"},
    ]))]
    pub from: String,

    /// The destination city. It cannot be changed.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-validations" = [
        {
            "rule": r"self.matches('^\\S(.*\\S)?$')",
            "message": "to must be one line that does not begin or end with a blank",
        },
        {"rule": "self == oldSelf", "message": "to cannot be changed; delete this FlightTicket and create another"},
    ]))]
    pub to: String,

    /// How many seats to book. A change of this field changes the booking. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10))]
    pub number: i32,

    /// The departure date, such as 2030-05-04. It cannot be changed. Default: any day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "date")]
    pub departure_date: Option<Date>,

    /// The cabin class. It cannot be changed. Default: Economy.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf", "message": "cabin cannot be changed; delete this FlightTicket and create another",
    }]))]
    pub cabin: Cabin,

    /// What happens to the booking when this object is deleted. Cancel: it is cancelled. Retain: it is kept. Default: Cancel.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,

    /// What the operator may do. Manage: it books, changes and cancels. Observe: it only reports the booking that the annotation
    /// flights.com/booking-id names, which may belong to another FlightTicket of the namespace. Default: Manage.
    #[serde(default)]
    pub management_policy: ManagementPolicy,

    /// Whether the operator books again when the provider has cancelled or lost the booking. Never, or Always: up to ten times.
    /// Default: Never.
    #[serde(default)]
    pub rebook_policy: RebookPolicy,
}

/// The cabin class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum Cabin {
    #[default]
    Economy,
    Business,
    First,
}

/// What happens to the booking when the object is deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum DeletionPolicy {
    #[default]
    Cancel,
    Retain,
}

/// What the operator may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum ManagementPolicy {
    #[default]
    Manage,
    Observe,
}

/// Whether to book again after a booking is lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum RebookPolicy {
    #[default]
    Never,
    Always,
}

/// What the operator knows of the booking.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend(
    "default" = {"phase": "Pending"},
    "x-kubernetes-validations" = [{"rule": Fence::RULE, "message": Fence::MESSAGE}],
))]
pub struct FlightTicketStatus {
    /// Pending: nothing is confirmed yet. Booked: the booking is confirmed. Modifying: the operator has requested another number
    /// of seats. Rejected: the provider refuses the booking. Cancelled: the provider has cancelled or lost the booking.
    /// Cancelling: this object is being deleted, and its booking is not cancelled yet.
    pub phase: Phase,

    /// The provider's ID of the booking.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub booking_id: Option<String>,

    /// The confirmation code, which the passengers show.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub confirmation_code: Option<String>,

    /// How many seats are booked at the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<i64>,

    /// The operator's name of the booking. The provider makes only one booking per reference, however often a request is
    /// repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub reference: Option<String>,

    /// How many times the operator has booked again.
    #[serde(skip_serializing_if = "is_zero")]
    pub attempt: u32,

    /// Whether the provider has refused to book again. False again as soon as the outcome of another try is unknown.
    #[serde(skip_serializing_if = "is_false")]
    pub purchase_refused: bool,

    /// When the operator first found the booking confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub booked_at: Option<Timestamp>,

    /// The provider's message about the booking.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub provider_message: Option<String>,

    /// Set when the provider's answer was final: identifies the spec and the annotations that the answer was for. The operator
    /// tries again when they have changed; then it is `retry` until the provider has answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub settled: Option<String>,

    /// The value of the annotation flights.com/reconcile-requested-at that the operator has handled last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub last_handled_reconcile_at: Option<String>,

    /// The leadership term under which this status was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,

    /// The generation of the object that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready: a booking is confirmed; it stays True with the former number of seats, which status.number shows, if the provider
    /// refuses another number. Synced: the booking matches the spec. Also Reconciling or Stalled, but only while one of them is
    /// True.
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
}

/// The phase of a ticket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum Phase {
    #[default]
    Pending,
    Booked,
    Modifying,
    Rejected,
    Cancelled,
    Cancelling,
}

impl Phase {
    /// All phases, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Booked, Self::Modifying, Self::Rejected, Self::Cancelled, Self::Cancelling];
}

impl fmt::Display for Cabin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

fn one() -> i32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The schema of a date. It needs no `maxLength`: the format limits the length.
fn date(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date", "x-kubernetes-validations": [{
        "rule": "self == oldSelf",
        "message": "departureDate cannot be changed; delete this FlightTicket and create another",
    }]})
}
