//! `flights.com/v1`.
//!
//! Doc comments here are what `kubectl explain` prints. All defaults are in the schema, so that they are stored: they decide
//! about money.

#![expect(unreachable_pub, reason = "KubeSchema derives through a hidden copy of the struct")]
#![expect(clippy::duplicated_attributes, reason = "columns have a type each")]

use std::fmt;

use jiff::{Timestamp, civil::Date};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use workloads::{Fence, schemas};

/// The trip, how many fly, and what becomes of the booking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "flights.com",
    version = "v1",
    kind = "FlightTicket",
    plural = "flighttickets",
    shortname = "ft",
    category = "all",
    namespaced,
    doc = "Seats on a flight, booked once at the booking provider that the operator is connected to.",
    derive = "PartialEq",
    status = "FlightTicketStatus",
    printcolumn(name = "STATUS", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "FROM", type_ = "string", json_path = ".spec.from"),
    printcolumn(name = "TO", type_ = "string", json_path = ".spec.to"),
    printcolumn(name = "NUMBER", type_ = "integer", json_path = ".spec.number"),
    printcolumn(name = "BOOKING", type_ = "string", json_path = ".status.bookingId"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
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
    /// The city at the start. It cannot be changed.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^\S(.*\S)?$"), extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf", "message": "from cannot be changed; delete this FlightTicket and create another",
    }]))]
    pub from: String,

    /// The city at the end. It cannot be changed.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^\S(.*\S)?$"), extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf", "message": "to cannot be changed; delete this FlightTicket and create another",
    }]))]
    pub to: String,

    /// How many seats. The booking follows a change. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10))]
    pub number: i32,

    /// The day, such as 2030-05-04. It cannot be changed. Default: any day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "date")]
    pub departure_date: Option<Date>,

    /// Where one sits. It cannot be changed. Default: Economy.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf", "message": "cabin cannot be changed; delete this FlightTicket and create another",
    }]))]
    pub cabin: Cabin,

    /// What becomes of the booking when this object is deleted: it is cancelled or kept. Default: Cancel.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,

    /// Whether the seats are bought once more when the provider has cancelled or lost the booking, up to ten times. Default:
    /// Never.
    #[serde(default)]
    pub rebook_policy: RebookPolicy,
}

/// Where one sits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum Cabin {
    #[default]
    Economy,
    Business,
    First,
}

/// What becomes of the booking.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum DeletionPolicy {
    #[default]
    Cancel,
    Retain,
}

/// Whether to buy once more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum RebookPolicy {
    #[default]
    Never,
    Always,
}

/// What is known of the booking.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend(
    "default" = {"phase": "Pending"},
    "x-kubernetes-validations" = [{"rule": Fence::RULE, "message": Fence::MESSAGE}],
))]
pub struct FlightTicketStatus {
    /// Pending: nothing is confirmed yet. Booked. Modifying: a change is on its way. Rejected: it cannot be booked as it is.
    /// Cancelled: the booking was lost. Cancelling: this object is being deleted, and the booking has to go first.
    pub phase: Phase,

    /// The provider's name of the booking.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub booking_id: Option<String>,

    /// What the passengers show.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub confirmation_code: Option<String>,

    /// Seats that are really booked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<i64>,

    /// Our name of the booking, under which it can be asked for again and again and is made once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub reference: Option<String>,

    /// How often it was bought anew.
    #[serde(skip_serializing_if = "is_zero")]
    pub attempt: u32,

    /// Since when it is known to be confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub booked_at: Option<Timestamp>,

    /// What the provider says of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub provider_message: Option<String>,

    /// Set when the provider's answer made an end of it: what the object asked for by then. It is asked for again when spec or
    /// annotations have changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub settled: Option<String>,

    /// The last value of the annotation flights.com/reconcile-requested-at that was acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub last_handled_reconcile_at: Option<String>,

    /// The leadership under which this was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,

    /// The generation of the object that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready and Synced; Reconciling or Stalled while one is true.
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
}

/// Where a ticket stands.
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
    /// All of them.
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

/// A day. Without bounds of its own: the format has them.
fn date(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date", "x-kubernetes-validations": [{
        "rule": "self == oldSelf",
        "message": "departureDate cannot be changed; delete this FlightTicket and create another",
    }]})
}

/// An instant. Without bounds of its own: the format has them.
fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}
