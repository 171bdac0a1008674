//! The command-line program: flags, log, signals, exit codes.

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
};

use clap::{Parser as _, error::ErrorKind};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::{
    server::{BookingServer, Options},
    settings::{LogFormat, Settings},
};

/// The whole `main` of the binary. Returns its exit code: 0, 1 for a failure, 2 for wrong flags.
pub fn main() -> ExitCode {
    let settings = match Settings::try_parse() {
        Ok(settings) => settings,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => error.exit(),
        Err(error) => return complain(&first_line(&error.to_string()), 2),
    };
    let options = match settings.options().and_then(|options| start_log(&settings).map(|()| options)) {
        Ok(options) => options,
        Err(error) => return complain(&error, 2),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("cannot start threads: {error}"), 1),
    };
    let ended = runtime.block_on(run(options));
    // Do not wait for tasks of requests that were cut.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error, "The server failed");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), String> {
    let signals = |kind| signal(kind).map_err(|error| format!("cannot listen for signals: {error}"));
    let (mut terminate, mut interrupt) = (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
    let server = BookingServer::bind(options).await.map_err(|error| error.to_string())?;
    let stop = server.stop_handle();
    let mut running = std::pin::pin!(server.run());
    tokio::select! {
        () = &mut running => return Ok(()),
        () = either(&mut terminate, &mut interrupt) => stop.cancel(),
    }
    tokio::select! {
        () = running => Ok(()),
        () = either(&mut terminate, &mut interrupt) => Err("a second signal: stopping at once".to_owned()),
    }
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! { _ = one.recv() => {}, _ = other.recv() => {} }
}

fn start_log(settings: &Settings) -> Result<(), String> {
    let of_clients = serving::WARN_OF_CLIENTS.map(|target| format!("{target}=error")).join(",");
    let directives = format!("{of_clients},{}", settings.log_level);
    let filter = EnvFilter::builder().parse(directives).map_err(|error| format!("--log-level: {error}"))?;
    let builder = tracing_subscriber::fmt().with_writer(io::stderr).with_env_filter(filter);
    let started = match settings.log_format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
    };
    started.map_err(|error| format!("cannot start logging: {error}"))
}

/// The first paragraph of an error of clap, without the usage that follows it.
fn first_line(text: &str) -> String {
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{}; see --help", line.trim_start_matches("error: "))
}

fn complain(message: &str, code: u8) -> ExitCode {
    drop(writeln!(io::stderr(), "error: {message}"));
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_error_is_one_line() {
        let text = "error: invalid value 'x' for '--a <A>'\n  [possible values: y, z]\n\nFor more information, try '--help'.\n";
        assert_eq!(first_line(text), "invalid value 'x' for '--a <A>' [possible values: y, z]; see --help");
    }
}
