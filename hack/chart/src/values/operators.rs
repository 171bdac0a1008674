//! The values of each operator: the values that all operators have, and one value for each of its own flags.

use clap::{Arg, ArgAction, Command};
use controller_manager::OPERATORS;
use manager::{Operator, permissions};
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Open;

/// The values that every operator has.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Common {
    /// Whether the chart installs and runs the operator.
    enabled: bool,
    /// Number of objects of each of its kinds that the operator reconciles at once. null means the operator's own default, mostly 2.
    #[schemars(range(min = 1, max = 1000))]
    max_concurrent_reconciles: Option<u16>,
    /// Requests and limits of the operator's Deployment, in place of the common `resources`. Needs `topology: separate`.
    resources: Open,
    /// Additional environment variables of the operator's Deployment. Needs `topology: separate`.
    env: Vec<Open>,
}

/// The operator that is an example for writing new ones. The chart disables it by default.
const EXAMPLE: &str = "foo";

/// Prefixes of flags that do not carry the operator's name, and the key under which their values are grouped.
const GROUPS: &[(&str, &str)] = &[("booking-", "provider")];

/// Flags, and the key of their value where other charts have a usual name for it.
const RENAMED: &[(&str, &str)] = &[("booking-token-secret", "secretName")];

/// A flag of one operator, and the value that sets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flag {
    /// Keys below the operator's, such as `["image"]`.
    pub value: Vec<String>,
    /// The flag, such as `--memcached-image`.
    pub flag: String,
    /// The flag's default as text; empty if it has none.
    pub default: String,
    /// The flag's help text.
    #[serde(skip)]
    help: String,
    #[serde(skip)]
    is_switch: bool,
}

/// The flags that the operator declares itself.
pub fn own_flags(operator: &dyn Operator) -> Vec<Flag> {
    let command = operator.args(Command::new("run"));
    command.get_arguments().filter_map(|argument| flag(operator.name(), argument)).collect()
}

fn flag(operator: &str, argument: &Arg) -> Option<Flag> {
    let long = argument.get_long()?;
    let value = match GROUPS.iter().find_map(|(prefix, group)| Some((long.strip_prefix(prefix)?, *group))) {
        Some((rest, group)) => {
            let renamed = RENAMED.iter().find(|(name, _)| *name == long).map(|(_, key)| (*key).to_owned());
            vec![group.to_owned(), renamed.unwrap_or_else(|| camel_case(rest))]
        }
        None => vec![camel_case(long.strip_prefix(&format!("{operator}-")).unwrap_or(long))],
    };
    let defaults: Vec<_> = argument.get_default_values().iter().map(|text| text.to_string_lossy()).collect();
    let is_switch = matches!(argument.get_action(), ArgAction::SetTrue | ArgAction::SetFalse)
        || matches!(&*defaults.join(","), "true" | "false");
    let help = argument.get_help().map(|help| help.to_string().replace('\n', " ") + ".").unwrap_or_default();
    Some(Flag { value, flag: format!("--{long}"), default: defaults.join(","), help, is_switch })
}

/// Converts `exporter-image` to `exporterImage`.
fn camel_case(kebab: &str) -> String {
    let mut words = kebab.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |text, word| {
        let mut letters = word.chars();
        let capital = letters.next().map(|letter| letter.to_ascii_uppercase());
        text.chars().chain(capital).chain(letters).collect()
    })
}

/// Whether the operator's controllers read Secrets. The administrator can withhold that permission with `readSecrets`.
fn reads_secrets(operator: &dyn Operator) -> bool {
    permissions(&[operator]).iter().any(|rule| rule.resources.iter().flatten().any(|resource| resource == "secrets"))
}

/// The default values, by operator.
pub(super) fn defaults() -> Map<String, Value> {
    OPERATORS.iter().map(|operator| (operator.name().to_owned(), default(*operator))).collect()
}

fn default(operator: &dyn Operator) -> Value {
    let common = Common {
        enabled: operator.name() != EXAMPLE,
        max_concurrent_reconciles: None,
        resources: Open::new(),
        env: Vec::new(),
    };
    let mut values = json!(common);
    if reads_secrets(operator) {
        values["readSecrets"] = json!(true);
    }
    for flag in own_flags(operator) {
        let place = flag.value.iter().fold(&mut values, |object, key| &mut object[key.as_str()]);
        *place = match flag.default.parse::<u32>() {
            _ if flag.is_switch => json!(flag.default == "true"),
            Ok(number) => json!(number),
            Err(_) => json!(flag.default),
        };
    }
    values
}

/// The schema of the map of all operators.
pub(super) fn schema(_: &mut SchemaGenerator) -> Schema {
    let of = |operator: &&dyn Operator| (operator.name().to_owned(), operator_schema(*operator));
    let properties: Map<String, Value> = OPERATORS.iter().map(of).collect();
    let schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    Schema::try_from(schema).unwrap_or_default()
}

fn operator_schema(operator: &dyn Operator) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<Common>().to_value();
    let kinds: Vec<_> = operator.crds().into_iter().map(|crd| crd.spec.names.kind).collect();
    schema["description"] = json!(format!("The operator of {}.", kinds.join(", ")));
    if let Some(object) = schema.as_object_mut() {
        object.remove("title");
        object.remove("required"); // a user removes a default with null
    }
    if reads_secrets(operator) {
        schema["properties"]["readSecrets"] = json!({
            "type": "boolean",
            "description": "Whether the operator may get the Secrets that its objects name, in its watched namespaces.",
        });
    }
    for flag in own_flags(operator) {
        let place = flag.value.iter().fold(&mut schema, |object, key| {
            object["type"] = json!("object");
            object["additionalProperties"] = json!(false);
            &mut object["properties"][key.as_str()]
        });
        let types = if flag.is_switch { json!("boolean") } else { json!(["string", "number"]) };
        *place = json!({"description": flag.help, "type": types});
    }
    for (_, group) in GROUPS {
        if let Some(group) = schema.pointer_mut(&format!("/properties/{group}")) {
            group["description"] = json!("The provider outside of the cluster that the operator calls.");
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flag_of(operator: &str, argument: &Arg) -> Flag {
        flag(operator, argument).expect("has a long name")
    }

    #[test]
    fn flag_key_omits_operator_name() {
        let image = flag_of("memcached", &Arg::new("i").long("memcached-exporter-image").default_value("a:1"));
        assert_eq!((image.value, image.default.as_str()), (vec!["exporterImage".to_owned()], "a:1"));
        let url = flag_of("flightticket", &Arg::new("u").long("booking-ca-file"));
        assert_eq!(url.value, ["provider", "caFile"]);
        let secret = flag_of("flightticket", &Arg::new("s").long("booking-token-secret"));
        assert_eq!(secret.value, ["provider", "secretName"]);
        let switch = flag_of("foo", &Arg::new("s").long("foo-fast").action(ArgAction::SetTrue));
        assert!(switch.is_switch);
    }

    #[test]
    fn own_flag_keys_do_not_shadow_common_keys() {
        for operator in OPERATORS {
            let common = ["enabled", "maxConcurrentReconciles", "resources", "env", "readSecrets"];
            for flag in own_flags(*operator) {
                assert!(!common.contains(&flag.value[0].as_str()), "{}: {}", operator.name(), flag.flag);
            }
        }
    }
}
