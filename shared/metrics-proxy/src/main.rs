//! The sidecar: runs [`Program`] until SIGTERM or SIGINT. Exits with 2 for invalid flags or files, with 1 at a second signal.

use std::{io::IsTerminal as _, process::ExitCode};

use clap::{Parser as _, error::ErrorKind};
use metrics_proxy::{EACH_FAILED_REQUEST, Fatal, Flags, Program};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let flags = match Flags::try_parse() {
        Ok(flags) => flags,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => error.exit(),
        Err(error) => {
            let text = error.to_string();
            let first = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect::<Vec<_>>().join(" ");
            eprintln!("{first}; see --help");
            return ExitCode::from(WRONG_USAGE);
        }
    };
    start_log(&flags);
    // One thread is enough: most of the work is waiting.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(run(&flags));
    // A thread may hang in the read of a certificate file; the process must end all the same.
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            if error.is_usage() { ExitCode::from(WRONG_USAGE) } else { ExitCode::FAILURE }
        }
    }
}

async fn run(flags: &Flags) -> Result<ExitCode, Fatal> {
    let program = Program::start(flags).await?;
    let stop = CancellationToken::new();
    let twice = {
        let stop = stop.clone();
        async move {
            let (Ok(mut terminate), Ok(mut interrupt)) =
                (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
            else {
                return std::future::pending().await;
            };
            for _ in 0..2 {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                stop.cancel();
            }
        }
    };
    tokio::select! {
        () = program.run(stop) => Ok(ExitCode::SUCCESS),
        () = twice => Ok(ExitCode::FAILURE),
    }
}

/// What is logged. Details only of our own crates: libraries could log the requests that they send, with tokens.
fn logged(verbosity: u8) -> Targets {
    let level = match verbosity {
        0..2 => LevelFilter::INFO,
        2..5 => LevelFilter::DEBUG,
        5.. => LevelFilter::TRACE,
    };
    Targets::new()
        .with_default(LevelFilter::WARN)
        .with_targets(serving::WARN_OF_CLIENTS.map(|target| (target, LevelFilter::ERROR)))
        .with_target(EACH_FAILED_REQUEST, LevelFilter::OFF)
        .with_target("metrics_proxy", level)
        .with_target("serving", level)
}

fn start_log(flags: &Flags) {
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = match flags.log_format {
        metrics_proxy::LogFormat::Json => layer.json().flatten_event(true).boxed(),
        metrics_proxy::LogFormat::Text => layer.with_ansi(std::io::stderr().is_terminal()).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(logged(flags.verbosity))).init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_cannot_fill_the_log_with_warnings_of_libraries() {
        let logs = |verbosity, target, level: LevelFilter| {
            level.into_level().is_some_and(|level| logged(verbosity).would_enable(target, &level))
        };
        for verbosity in [0, 2, 5] {
            assert!(!logs(verbosity, "h2::proto::streams::recv", LevelFilter::WARN), "{verbosity}");
            assert!(!logs(verbosity, "rustls::msgs::handshake", LevelFilter::WARN), "{verbosity}");
            assert!(!logs(verbosity, "kube_client::client::builder", LevelFilter::ERROR), "{verbosity}");
            assert!(logs(verbosity, "hyper", LevelFilter::WARN), "{verbosity}");
        }
        assert!(
            logs(2, "serving::connection", LevelFilter::DEBUG) && !logs(0, "serving::connection", LevelFilter::DEBUG)
        );
    }
}
