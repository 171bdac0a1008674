//! The way from the operator to the provider of its world. Requests and answers are lost on it, or late.

use std::{future::pending, time::Duration};

use bytes::Bytes;
use clap::Command;
use flightticket_operator::{
    Config, FlightTicketOperator,
    booking::{Client, Failure, Settings, Token, Transport},
    declare,
};
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use manager::{Manager, Operator};
use simulation::Caller;
use tokio::time::sleep;

use super::{Fate, Loss, Provider};

/// How long the provider takes for an answer.
const LATENCY: Duration = Duration::from_millis(20);
/// Delay after which a late request takes effect.
const LATE: Duration = Duration::from_secs(3);
/// For this long, the client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The operator, connected to the provider of its world.
pub(super) struct Clerk {
    pub(super) provider: Provider,
    pub(super) caller: Caller,
}

impl Operator for Clerk {
    fn name(&self) -> &'static str {
        FlightTicketOperator.name()
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        FlightTicketOperator.crds()
    }

    fn args(&self, command: Command) -> Command {
        FlightTicketOperator.args(command)
    }

    fn sample(&self) -> &'static str {
        FlightTicketOperator.sample()
    }

    fn setup(&self, manager: &mut Manager) {
        let config: Config = manager.args();
        let line = Line { provider: self.provider.clone(), caller: self.caller.clone() };
        let url = "http://provider".parse().expect("an address");
        let settings = Settings { url, token: Token::None, places: config.concurrency.into() };
        let client = Client::new(settings, line, manager.metrics());
        let declared = declare(manager, &config, Some(client));
        manager.add(declared);
    }
}

/// The transport of one process to the provider.
struct Line {
    provider: Provider,
    caller: Caller,
}

impl Line {
    /// What the client gets instead of the answer.
    async fn lose(&self) -> Result<Response<Bytes>, Failure> {
        let loss = self.provider.state().loss;
        (self.provider.0.note)(format!("provider ◀ {loss:?} instead of an answer"));
        match loss {
            Loss::Broken => Err(Failure::Broken("the connection was reset".to_owned())),
            Loss::Silence => {
                sleep(PATIENCE).await;
                Err(Failure::Late { phase: "answer", after: PATIENCE })
            }
            Loss::Page => Ok(Response::new(Bytes::from("<html>the provider is being moved</html>"))),
        }
    }

    /// Returns only if the process is alive: a killed process sends nothing and receives nothing.
    async fn lives(&self) {
        if !self.caller.is_alive() {
            pending::<()>().await;
        }
    }
}

impl Transport for Line {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, Failure>> {
        Box::pin(async move {
            self.lives().await;
            if request.method() != Method::GET {
                self.caller.sends_write();
            }
            sleep(LATENCY).await;
            match self.provider.fate() {
                Fate::Lost => self.lose().await,
                Fate::Late => {
                    let provider = self.provider.clone();
                    tokio::spawn(async move {
                        sleep(LATE).await;
                        provider.handle(&request);
                    });
                    self.lose().await
                }
                fate => {
                    let answer = self.provider.handle(&request);
                    self.lives().await;
                    if matches!(fate, Fate::AnswerLost) { self.lose().await } else { Ok(answer) }
                }
            }
        })
    }
}
