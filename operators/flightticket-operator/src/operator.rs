//! Registers the operator with the runtime: CRD, flags and controller.

use std::sync::Arc;

use clap::{Args, Command};
use futures::channel::mpsc::unbounded;
use http::Uri;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use manager::{Controller, DeclaredController, Manager, Operator};

use crate::{
    Config, FlightTicket,
    booking::{Client, Https, Settings, Token, Trust},
    controller, metrics,
    polling::Polling,
    ticket::FINALIZER,
};

/// The operator of [`FlightTicket`].
#[derive(Debug, Clone, Copy)]
pub struct FlightTicketOperator;

impl Operator for FlightTicketOperator {
    fn name(&self) -> &'static str {
        "flightticket"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![FlightTicket::crd()]
    }

    fn args(&self, command: Command) -> Command {
        Config::augment_args(command)
    }

    fn sample(&self) -> &'static str {
        include_str!("../samples/flights_v1_flightticket.yaml")
    }

    /// Without the chart, there is no booking server.
    fn sample_needs_chart(&self) -> bool {
        true
    }

    fn chart_values(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("booking-url", "provider.url"),
            ("booking-allow-plain-http", "provider.allowPlainHttp"),
            ("booking-token-file", "provider.tokenFile"),
            ("booking-token-secret", "provider.secretName"),
            ("booking-ca-file", "provider.caFile"),
            ("booking-certificate-secret", "provider.certificateSecretName"),
            ("booking-timeout", "provider.timeout"),
            ("booking-poll-interval", "provider.pollInterval"),
            ("booking-concurrency", "provider.concurrency"),
        ]
    }

    fn setup(&self, manager: &mut Manager) {
        let config: Config = manager.args();
        let token = match (&config.token_file, &config.token_secret) {
            (Some(file), _) => Token::File(file.clone()),
            (None, Some(secret)) => Token::Shared(manager.shared_token(secret)),
            (None, None) => Token::None,
        };
        let client = config.provider().ok().cloned().map(|url| {
            let trust = match (&config.ca_file, &config.certificate_secret) {
                (Some(file), _) => Trust::File(file.clone()),
                (None, Some(secret)) => Trust::Shared(manager.shared_certificate(secret, names(&url))),
                (None, None) => Trust::System,
            };
            let transport = Https::new(trust, config.timeout);
            let places = config.concurrency.into();
            Client::new(Settings { url, token, places }, transport, manager.metrics())
        });
        if client.is_none() {
            // The same metrics exist with and without a provider, and so they are in the reference, which has no flags.
            Client::register_metrics(manager.metrics());
        }
        let declared = declare(manager, &config, client);
        manager.add(declared);
    }
}

// ANCHOR: declare
/// Returns the controller of [`FlightTicket`] with this client. Without a client, it books nothing.
pub fn declare(manager: &Manager, config: &Config, client: Option<Client>) -> DeclaredController {
    let polling = Arc::new(Polling::every(config.poll_interval));
    let left = polling.clone();
    let (wake, woken) = unbounded();
    let (gauges, former) = (metrics::gauges(manager.metrics(), client.clone()), client.clone());
    Controller::of::<FlightTicket>()
        .config(controller::Booking { client: client.ok_or_else(|| lack(config)), polling, wake })
        .index(controller::SHOWN, |ticket| {
            ticket.status.iter().filter_map(|status| status.booking_id.clone()).collect()
        })
        .wakes_from(move || woken)
        .wakes_on(FlightTicket::intent)
        .workers(config.concurrency.into())
        .on_delete(FINALIZER, controller::clean_up)
        .on_gone(move |key| left.forget(key))
        .on_scrape(gauges)
        .on_demotion(move || former.iter().for_each(Client::forget))
        .reconcile(controller::reconcile)
}
// ANCHOR_END: declare

/// Returns the names of the provider for its certificate: the host of its address.
fn names(url: &Uri) -> Vec<String> {
    url.host().map(|host| host.trim_matches(['[', ']']).to_owned()).into_iter().collect()
}

/// Returns why there is no provider, for users.
fn lack(config: &Config) -> String {
    config.provider().err().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_lists_the_metrics_about_requests() {
        let reference = manager::reference(&[&FlightTicketOperator]);
        for metric in ["requests_total", "request_seconds", "circuit_open", "credentials_refused"] {
            assert!(reference.contains(&format!("| `flightticket_operator_provider_{metric}` |")), "{metric}");
        }
    }
}
