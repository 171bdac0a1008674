//! The commands in the pages: in the code blocks of a shell, and between back-ticks. The parsers of the programs decide whether a
//! command and its flags exist.

use std::collections::BTreeSet;
use std::fmt::Display;

use anyhow::Result;
use clap::Command;
use clap::builder::ValueParser;
use clap::error::ErrorKind;
use serde_json::Value;

use super::{File, blocks};

/// The languages of blocks that hold commands.
pub(super) const SHELLS: &[&str] = &["sh", "bash", "console"];

/// What exists.
struct Known {
    xtask: Command,
    manager: Command,
    plugin: Command,
    /// The targets of the Makefile.
    targets: BTreeSet<String>,
    /// The packages of the workspace.
    packages: BTreeSet<String>,
    /// The paths of the chart's values, such as `webhooks.enabled`.
    values: BTreeSet<String>,
    /// The JSON schema of the values.
    schema: Value,
}

/// One line for each command that does not exist.
pub(super) fn check(pages: &[&File], files: &[File]) -> Result<Vec<String>> {
    let commands = pages.iter().flat_map(|page| {
        commands(&page.text).into_iter().map(|(line, command)| (format!("{}:{line}", page.path), command))
    });
    unknown(files, commands)
}

/// One line for each of these commands that does not exist. Each has its place before it. `files` is the whole checkout.
pub(crate) fn unknown(
    files: &[File],
    commands: impl IntoIterator<Item = (impl Display, impl AsRef<str>)>,
) -> Result<Vec<String>> {
    let makefile = files.iter().find(|file| file.path == "Makefile").map_or("", |file| &file.text);
    let known = Known {
        xtask: crate::command(),
        manager: manager::command(controller_manager::OPERATORS),
        plugin: kubectl_operators::command(),
        targets: makefile.lines().filter_map(target).map(str::to_owned).collect(),
        packages: files.iter().filter_map(package).map(str::to_owned).collect(),
        values: chart::document::paths()?.into_iter().collect(),
        schema: serde_json::from_str(&chart::document::values_schema()?)?,
    };
    let mut findings = Vec::new();
    for (place, command) in commands {
        let command = command.as_ref();
        if let Err(why) = known.check(command) {
            findings.push(format!("{place}: `{command}`: {why}"));
        }
    }
    Ok(findings)
}

fn target(line: &str) -> Option<&str> {
    let (name, _) = line.split_once(':')?;
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || b"-0123456789".contains(&byte));
    is_name.then_some(name)
}

/// The package of a manifest in the workspace. A folder with a workspace of its own has none.
fn package(manifest: &File) -> Option<&str> {
    let is_other = manifest.name() != "Cargo.toml" || manifest.text.lines().any(|line| line.trim() == "[workspace]");
    let (_, section) = manifest.text.split_once("[package]").filter(|_| !is_other)?;
    section.lines().find_map(|line| line.strip_prefix("name = "))?.split('"').nth(1)
}

impl Known {
    fn check(&self, command: &str) -> Result<(), String> {
        // What a shell cannot divide into words is text.
        let words = shlex::split(command).unwrap_or_default();
        let words = words.iter().map(String::as_str).skip_while(|word| is_assignment(word));
        // `…` is what the document leaves out, `&` starts the command in the background.
        let words: Vec<&str> = words.filter(|word| !matches!(*word, "…" | "&")).collect();
        match words.as_slice() {
            ["make", targets @ ..] => self.make(targets),
            ["cargo", "xtask", ..] => parse(&self.xtask, &words[1..]),
            ["cargo", arguments @ ..] => self.cargo(arguments),
            ["controller-manager", flags @ ..]
                if flags.first().is_some_and(|it| it.starts_with("--") && !is_of_all(it)) =>
            {
                parse(&self.manager, &[&["controller-manager", "run"], flags].concat())
            }
            ["controller-manager", ..] => parse(&self.manager, &words),
            ["kubectl", "operators", ..] => parse(&self.plugin, &words[1..]),
            ["helm", "install" | "upgrade" | "template", rest @ ..] => self.helm(rest),
            _ => Ok(()),
        }
    }

    fn make(&self, targets: &[&str]) -> Result<(), String> {
        let unknown = targets.iter().find(|word| !word.contains('=') && !self.targets.contains(**word));
        unknown.map_or(Ok(()), |unknown| Err(format!("the Makefile has no target \"{unknown}\"")))
    }

    /// Whether the packages after `-p` exist. The tutorial writes `--package` for the crate of a project of its own.
    fn cargo(&self, arguments: &[&str]) -> Result<(), String> {
        let own = arguments.split(|word| *word == "--").next().unwrap_or_default(); // the others are those of the program
        let mut named = own.windows(2).filter(|pair| pair[0] == "-p").map(|pair| pair[1]);
        let unknown = named.find(|name| !name.contains('$') && !self.packages.contains(*name));
        unknown.map_or(Ok(()), |unknown| Err(format!("the workspace has no package \"{unknown}\"")))
    }

    fn helm(&self, words: &[&str]) -> Result<(), String> {
        for pair in words.windows(2).filter(|pair| matches!(pair[0], "--set" | "--set-string" | "--set-json")) {
            let settings = if pair[0] == "--set-json" { vec![pair[1]] } else { pair[1].split(',').collect() };
            for setting in settings {
                let path = setting.split(['=', '[', '{']).next().unwrap_or_default();
                // Below a value that is no group of values, users choose the names themselves.
                let is_group = |value: &str| self.values.iter().any(|it| it.starts_with(&format!("{value}.")));
                let exists =
                    |value: &String| path == value || (path.starts_with(&format!("{value}.")) && !is_group(value));
                if !self.values.iter().any(exists) {
                    return Err(format!("the chart has no value \"{path}\""));
                }
                if pair[0] == "--set" {
                    self.has_type(setting)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a setting of `--set`, such as `a.b=1`, has the type that the schema wants. Lists are not checked.
    fn has_type(&self, setting: &str) -> Result<(), String> {
        let Some((path, value)) = setting.split_once('=') else { return Ok(()) };
        let wanted = path.split('.').fold(&self.schema, |schema, name| &schema["properties"][name])["type"].clone();
        let given = type_of(value);
        let fits = |wanted: &Value| wanted == given || (wanted == "number" && given == "integer") || given == "null";
        let is_wrong = match &wanted {
            Value::String(_) => !fits(&wanted),
            Value::Array(types) => !types.iter().any(fits),
            _ => false, // the schema leaves the type open, or the path goes through a list
        };
        if is_wrong && !value.starts_with('{') {
            return Err(format!("Helm makes {given} of \"{value}\", but {path} is {wanted}"));
        }
        Ok(())
    }
}

/// Whether a flag belongs to the program as a whole, and not to its command `run`, which is the default.
fn is_of_all(flag: &str) -> bool {
    matches!(flag, "--help" | "--version")
}

/// The type that Helm gives to a value of `--set`, as JSON schema names it.
fn type_of(value: &str) -> &'static str {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match value {
        "true" | "false" => "boolean",
        "null" => "null",
        _ if is_number && (digits == "0" || !digits.starts_with('0')) => "integer",
        _ => "string",
    }
}

/// Gives the words to the program's own parser. A command that only lacks what the page leaves out, such as a required flag of a
/// command that the text names, exists.
fn parse(program: &Command, words: &[&str]) -> Result<(), String> {
    let incomplete = [
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayVersion,
        ErrorKind::MissingRequiredArgument,
        ErrorKind::MissingSubcommand,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    let is_known = words.iter().all(|word| !word.contains('$'));
    let program = if is_known { program.clone() } else { with_any_value(program.clone()) };
    match program.try_get_matches_from(words) {
        Err(error) if !incomplete.contains(&error.kind()) => {
            let text = error.to_string();
            Err(text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned())
        }
        _ => Ok(()),
    }
}

/// The program, with flags that take any value: what a shell puts into `$VERSION` cannot be checked, unlike the flag before it.
fn with_any_value(program: Command) -> Command {
    let program = program.mut_args(|arg| {
        let has_value = arg.get_action().takes_values();
        if has_value { arg.value_parser(ValueParser::string()) } else { arg }
    });
    program.mut_subcommands(with_any_value)
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

/// The commands of a page, each with its line.
fn commands(text: &str) -> Vec<(usize, String)> {
    let mut commands = Vec::new();
    for block in blocks::of(text).iter().filter(|block| SHELLS.contains(&block.language.as_str())) {
        let is_console = block.language == "console";
        let found = of_lines(&block.text, |line| if is_console { line.trim().strip_prefix("$ ") } else { Some(line) });
        commands.extend(found.into_iter().map(|(line, command)| (block.line + line, command)));
    }
    let mut in_block = false;
    for (line, content) in (1..).zip(text.lines()) {
        if content.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            commands.extend(content.split('`').skip(1).step_by(2).map(|code| (line, plain(code))));
        }
    }
    commands
}

/// The commands of a script, each with its line.
pub(crate) fn of_script(script: &str) -> Vec<(usize, String)> {
    of_lines(script, |line| Some(line))
}

/// The commands in the lines that `command` selects. A line that ends with a backslash continues on the next one.
fn of_lines(text: &str, command: impl for<'a> Fn(&'a str) -> Option<&'a str>) -> Vec<(usize, String)> {
    let joined = text.replace("\\\n", "\u{0}");
    let (mut line, mut commands) = (0, Vec::new());
    for content in joined.lines() {
        let parts = command(content).into_iter().flat_map(|it| it.split(" && ").flat_map(|it| it.split(" | ")));
        commands.extend(parts.map(|part| (line + 1, plain(part))));
        line += 1 + content.matches('\u{0}').count();
    }
    commands
}

/// The command without its comment, its redirection and what encloses it.
fn plain(text: &str) -> String {
    let text = text.replace('\u{0}', " ");
    let text = text.split(" #").next().unwrap_or_default();
    text.split(" > ").next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<String> {
        let page = File { path: "docs/book/src/page.md".to_owned(), text: page.to_owned() };
        let makefile = File { path: "Makefile".to_owned(), text: ".PHONY: demo\ndemo: ## Try\n\ttrue\n".to_owned() };
        let manifest = |path: &str, text: &str| File { path: format!("{path}/Cargo.toml"), text: text.to_owned() };
        let ours =
            manifest("shared/manager", "[package]\nname = \"operators-manager\"\n\n[[bin]]\nname = \"manager\"\n");
        let other = manifest("hack/leader-race", "[package]\nname = \"leader-race\"\n\n[workspace]\n");
        check(&[&page], &[makefile, ours, other]).unwrap()
    }

    #[test]
    fn existing_commands_pass() {
        let page = "`make demo &` `cargo xtask test … --only tidy` `controller-manager --operators foo` `controller-manager --version` `kubectl operators status -A`\n\
                    ```console\n$ IMG=x make demo | tail   # a comment\nmake nothing\n$ helm install o charts/operators \\\n\
                    \x20   --set image.tag=v1,operators.foo.enabled=true,replicas=2\n```\n`kubectl operators pause` `ls`\n";
        assert_eq!(found(page), Vec::<String>::new());
    }

    #[test]
    fn missing_packages_are_found() {
        let known = "`cargo run -p operators-manager --example minimal -- crds` `cargo build --workspace`\n\
                     ```sh\nSEED=1 cargo test -p operators-manager x | tail\ncargo run -p $NAME -- -p x\n\
                     cargo run --package note-operator\n```\n";
        assert_eq!(found(known), Vec::<String>::new());
        for wrong in ["run -p manager", "nextest run -p leader-race", "test -p operators-manager -p gone"] {
            let found = found(&format!("`cargo {wrong}`"));
            assert!(found.len() == 1 && found[0].contains("has no package"), "{wrong}: {found:?}");
        }
    }

    #[test]
    fn values_that_a_shell_inserts_are_not_checked() {
        let page = |flags: &str| format!("```sh\ncargo xtask release --version {flags}\n```\n");
        assert_eq!(found(&page("\"${NAME#v}\" --registry \"${PLACE,,}\" --keyless")), Vec::<String>::new());
        assert_eq!(found(&page("one --registry localhost --keyless")).len(), 1);
        assert_eq!(found(&page("\"${NAME#v}\" --nothing")).len(), 1);
    }

    #[test]
    fn missing_commands_flags_and_values_are_found() {
        let page = "`make other`\n```sh\ncargo xtask nothing\nls \\\n  x\nkubectl operators status --nothing > file\n```\n\
                    `controller-manager --nothing`\n```sh\nhelm upgrade o x --set image.nothing=1\n\
                    helm upgrade o x --set image.tag=1\nhelm upgrade o x --set replicas=two\n\
                    helm upgrade o x --set-string image.tag=1\n```\n";
        let found = found(page);
        let lines: Vec<&str> = found.iter().filter_map(|it| it.split(':').nth(1)).collect();
        assert_eq!(lines, ["3", "6", "10", "11", "12", "1", "8"], "{found:?}");
    }
}
