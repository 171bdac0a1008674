//! The kinds to measure, and the spec of an object of each.

use clap::ValueEnum;
use kube::api::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

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
