//! The kinds to measure, and the spec of an object of each.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use clap::ValueEnum;
use kube::api::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

/// The number of objects to create in a second. An API server on two cores handles it without effort.
const CREATED_A_SECOND: u64 = 200;

/// A full minute before which this number of objects can be created, and the schedule of `CronTab`s that run then, once a day.
pub(crate) fn due_after_creating(objects: usize) -> Result<(SystemTime, String)> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let due = (now + objects as u64 / CREATED_A_SECOND + 30).div_ceil(60) * 60;
    let schedule = format!("{} {} * * *", due / 60 % 60, due / 3_600 % 24);
    Ok((SystemTime::UNIX_EPOCH + Duration::from_secs(due), schedule))
}

/// A kind, by the name of its operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Memcached,
    Helloapp,
    /// `CronTab`s, all due in the same minute, on simulated nodes.
    Crontab,
    /// `FlightTicket`s, with a provider that takes 200 ms for each answer.
    Flightticket,
    Foo,
}

impl Kind {
    pub(crate) fn operator(self) -> &'static str {
        match self {
            Self::Memcached => "memcached",
            Self::Helloapp => "helloapp",
            Self::Crontab => "crontab",
            Self::Flightticket => "flightticket",
            Self::Foo => "foo",
        }
    }

    pub(crate) fn resource(self) -> ApiResource {
        let (group, version, kind) = match self {
            Self::Memcached => ("memcached.cache.example.com", "v1", "Memcached"),
            Self::Helloapp => ("apps.anupam.com", "v1", "HelloApp"),
            Self::Crontab => ("stable.example.com", "v1", "CronTab"),
            Self::Flightticket => ("flights.com", "v1", "FlightTicket"),
            Self::Foo => ("samplecontroller.k8s.io", "v1alpha1", "Foo"),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    }

    /// Whether an object has a Deployment of its name with as many replicas as its size.
    pub(crate) fn has_deployment(self) -> bool {
        matches!(self, Self::Memcached | Self::Helloapp | Self::Foo)
    }

    /// The field of the spec with the size.
    pub(crate) fn size_field(self) -> &'static str {
        if self == Self::Foo { "replicas" } else { "size" }
    }

    /// A short spec, as users write it. `schedule` is for a CronTab.
    pub(crate) fn spec(self, name: &str, schedule: &str) -> Value {
        match self {
            Self::Memcached => json!({"size": 3}),
            Self::Helloapp => json!({"size": 3, "image": "registry.example.com/hello:1"}),
            Self::Crontab => json!({"cronSpec": schedule, "image": "registry.example.com/report:1"}),
            Self::Flightticket => json!({"from": "Mumbai", "to": "London", "number": 1}),
            Self::Foo => json!({"deploymentName": name, "replicas": 3}),
        }
    }
}
