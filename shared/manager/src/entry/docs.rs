//! The command `docs`: a reference of kinds, flags, metrics and permissions as Markdown, made from the code.

use std::fmt::Write as _;

use clap::{Arg, Command};
use k8s_openapi::{
    api::rbac::v1::PolicyRule, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};

use crate::metrics::Described;

/// Returns the whole reference. `run` is the command with the flags of the runtime and of all operators.
pub(super) fn reference(
    run: &Command,
    crds: &[CustomResourceDefinition],
    rules: &[PolicyRule],
    metrics: &[Described],
) -> String {
    let mut text = String::from(
        "# Reference\n\n## Kinds\n\n| Kind | API | Short | Versions | Selectable fields |\n|---|---|---|---|---|\n",
    );
    for crd in crds {
        let names = &crd.spec.names;
        let versions: Vec<_> = crd.spec.versions.iter().map(|version| version.name.as_str()).collect();
        let short = names.short_names.iter().flatten().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let stored = crd.spec.versions.iter().find(|version| version.storage);
        let fields = stored.into_iter().flat_map(|version| version.selectable_fields.iter().flatten());
        let fields: Vec<_> = fields.map(|field| format!("`{}`", field.json_path.trim_start_matches('.'))).collect();
        let (versions, fields) = (versions.join(", "), fields.join(", "));
        let _ = writeln!(text, "| {} | `{}` | {short} | {versions} | {fields} |", names.kind, crd.spec.group);
    }
    text.push_str("\n## Flags of `run`\n");
    let mut heading = None;
    for argument in by_heading(run) {
        if heading != Some(argument.get_help_heading()) {
            heading = Some(argument.get_help_heading());
            let _ = write!(
                text,
                "\n### {}\n\n| Flag | Environment | Default | Meaning |\n|---|---|---|---|\n",
                argument.get_help_heading().unwrap_or("Other")
            );
        }
        flag(&mut text, argument);
    }
    text.push_str("\n## Metrics\n\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n");
    for metric in metrics {
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "| `{}` | {} | {labels} | {} |", metric.name, metric.kind, cell(&metric.help));
    }
    text.push_str("\n## Permissions\n\n| API group | Resources | Verbs |\n|---|---|---|\n");
    for rule in rules {
        let join = |words: Option<&Vec<String>>| words.into_iter().flatten().cloned().collect::<Vec<_>>().join(", ");
        let (groups, resources) = (join(rule.api_groups.as_ref()), join(rule.resources.as_ref()));
        let only = rule.resource_names.as_ref().map(|names| format!(" named {}", names.join(", "))).unwrap_or_default();
        let _ = writeln!(text, "| {groups} | {resources}{only} | {} |", rule.verbs.join(", "));
    }
    text
}

/// Returns the flags in the order of `--help`: groups in the order in which they first appear.
fn by_heading(command: &Command) -> Vec<&Arg> {
    let arguments: Vec<&Arg> = command.get_arguments().filter(|argument| argument.get_long().is_some()).collect();
    let first =
        |argument: &Arg| arguments.iter().position(|other| other.get_help_heading() == argument.get_help_heading());
    let mut sorted = arguments.clone();
    sorted.sort_by_key(|argument| first(argument));
    sorted
}

fn flag(text: &mut String, argument: &Arg) {
    let environment = argument.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    let default =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",");
    let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let long = argument.get_long().unwrap_or_default();
    let _ = writeln!(text, "| `--{long}` | {environment} | {default} | {} |", cell(&help));
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_on_one_object_has_its_name() {
        let rule = |names: Option<&str>| PolicyRule {
            api_groups: Some(vec!["g".to_owned()]),
            resources: Some(vec!["things".to_owned()]),
            resource_names: names.map(|name| vec![name.to_owned()]),
            verbs: vec!["watch".to_owned()],
            ..PolicyRule::default()
        };
        let text = reference(&Command::new("run"), &[], &[rule(None), rule(Some("one"))], &[]);
        assert!(text.contains("| g | things | watch |\n| g | things named one | watch |\n"), "{text}");
    }
}
