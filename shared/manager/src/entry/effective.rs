//! `--dry-run-config`: the configuration that results from flags, environment and defaults.

use std::fmt::Write as _;

use clap::{ArgMatches, Command, parser::ValueSource};

/// Returns one line for each flag, as YAML: its value, and its source if it is not the default.
pub(super) fn effective(command: &Command, matches: &ArgMatches) -> String {
    let mut text = String::new();
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        let Some(flag) = argument.get_long().filter(|flag| !NOT_CONFIGURATION.contains(flag)) else { continue };
        let values: Vec<_> = matches.get_raw(id).into_iter().flatten().map(|value| value.to_string_lossy()).collect();
        let source = match matches.value_source(id) {
            Some(ValueSource::CommandLine) => "  # given",
            Some(ValueSource::EnvVariable) => "  # environment",
            _ => "",
        };
        let value = serde_json::Value::String(values.join(","));
        let _ = writeln!(text, "{flag}: {value}{source}");
    }
    text
}

const NOT_CONFIGURATION: &[&str] = &["dry-run-config", "help", "version"];
