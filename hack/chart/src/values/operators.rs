//! The values of each operator: the values that all operators have, and one value for each of its own flags.

use std::{any::TypeId, time::Duration};

use clap::{Arg, ArgAction, Command};
use controller_manager::OPERATORS;
use manager::{Operator, permissions};
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Open;

/// What the schema requires of a time; the same pattern as for those of the leader election.
const TIME: &str = "^([0-9]+(h|m|s|ms))+$";

/// What the schema requires of an address, which may be empty.
const ADDRESS: &str = "^(https?://.+)?$";

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

/// A flag of one operator, and the value that sets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flag {
    /// Keys below the operator's, such as `["image"]`.
    pub value: Vec<String>,
    /// The flag, such as `--<operator>-image`.
    pub flag: String,
    /// The flag's default as text; empty if it has none.
    pub default: String,
    /// The flag's help text.
    #[serde(skip)]
    help: String,
    #[serde(skip)]
    is_switch: bool,
    /// What the value may be, in JSON Schema.
    #[serde(skip)]
    accepts: Value,
}

/// The flags that the operator declares itself.
pub fn own_flags(operator: &dyn Operator) -> Vec<Flag> {
    let command = operator.args(Command::new("run"));
    command.get_arguments().filter_map(|argument| flag(operator, &command, argument)).collect()
}

fn flag(operator: &dyn Operator, command: &Command, argument: &Arg) -> Option<Flag> {
    let long = argument.get_long()?;
    let value = match operator.chart_values().iter().find(|(flag, _)| *flag == long) {
        Some((_, path)) => path.split('.').map(str::to_owned).collect(),
        None => vec![camel_case(long.strip_prefix(&format!("{}-", operator.name())).unwrap_or(long))],
    };
    let defaults: Vec<_> = argument.get_default_values().iter().map(|text| text.to_string_lossy()).collect();
    let default = defaults.join(",");
    let is_switch = matches!(argument.get_action(), ArgAction::SetTrue | ArgAction::SetFalse)
        || matches!(&*default, "true" | "false");
    let accepts = if is_switch { json!({"type": "boolean"}) } else { accepted(command, argument, long, &default) };
    let help = argument.get_help().map(|help| help.to_string().replace('\n', " ") + ".").unwrap_or_default();
    Some(Flag { value, flag: format!("--{long}"), default, help, is_switch, accepts })
}

/// What a value may be, as far as the flag's parser tells. Otherwise the operator would refuse it, in a pod that then crashes.
fn accepted(command: &Command, argument: &Arg, long: &str, default: &str) -> Value {
    let is_address = argument.get_value_names().is_some_and(|names| names.iter().any(|name| name.as_str() == "URL"));
    if argument.get_value_parser().type_id() == TypeId::of::<Duration>() {
        json!({"type": "string", "pattern": TIME})
    } else if is_address {
        json!({"type": "string", "pattern": ADDRESS})
    } else if let Ok(number) = default.parse::<u32>() {
        let accepts = |other: i64| {
            let words = ["run".to_owned(), format!("--{long}={other}")];
            command.clone().try_get_matches_from(words).is_ok()
        };
        let last = |outside: i64| last_accepted(i64::from(number), outside, accepts);
        json!({"type": "integer", "minimum": last(-1), "maximum": last(1 << 32)})
    } else {
        json!({"type": "string"})
    }
}

/// The last number on the way from `inside` to `outside` that is accepted: clap does not tell the range of a flag.
fn last_accepted(mut inside: i64, mut outside: i64, accepts: impl Fn(i64) -> bool) -> i64 {
    while inside.abs_diff(outside) > 1 {
        let middle = i64::midpoint(inside, outside);
        if accepts(middle) {
            inside = middle;
        } else {
            outside = middle;
        }
    }
    inside
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
        enabled: !operator.is_example(),
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
            "description": "Whether the operator may get the Secrets that its objects name, and create and patch those that they ask it to generate, in its watched namespaces.",
        });
    }
    for flag in own_flags(operator) {
        let place = flag.value.iter().fold(&mut schema, |object, key| {
            object["type"] = json!("object");
            object["additionalProperties"] = json!(false);
            &mut object["properties"][key.as_str()]
        });
        *place = flag.accepts;
        place["description"] = json!(flag.help);
    }
    for flag in own_flags(operator) {
        if let [group, _] = &*flag.value {
            schema["properties"][group.as_str()]["description"] = json!(format!("Settings of the {group}."));
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use manager::Manager;

    use super::*;

    /// An operator of cars.
    struct Cars;

    impl Operator for Cars {
        fn name(&self) -> &'static str {
            "car"
        }

        fn crds(&self) -> Vec<CustomResourceDefinition> {
            Vec::new()
        }

        fn sample(&self) -> &'static str {
            ""
        }

        fn chart_values(&self) -> &'static [(&'static str, &'static str)] {
            &[("garage-key", "garage.secretName")]
        }

        fn setup(&self, _: &mut Manager) {}
    }

    #[test]
    fn value_of_a_flag_omits_the_operators_name_unless_the_operator_names_another() {
        let command = Command::new("run");
        let flag_of = |argument: &Arg| flag(&Cars, &command, argument).expect("has a long name");
        let image = flag_of(&Arg::new("i").long("car-tyre-image").default_value("a:1"));
        assert_eq!((image.value, image.default.as_str()), (vec!["tyreImage".to_owned()], "a:1"));
        assert_eq!(flag_of(&Arg::new("k").long("garage-key")).value, ["garage", "secretName"]);
        assert_eq!(flag_of(&Arg::new("d").long("garage-door")).value, ["garageDoor"]);
        assert!(flag_of(&Arg::new("s").long("car-fast").action(ArgAction::SetTrue)).is_switch);
    }

    #[test]
    fn schema_knows_what_a_flag_accepts() {
        let accepts = |argument: Arg| {
            let command = Command::new("run").arg(argument);
            let argument = command.get_arguments().next().expect("an argument");
            flag(&Cars, &command, argument).expect("has a long name").accepts
        };
        let doors =
            Arg::new("d").long("car-doors").default_value("4").value_parser(clap::value_parser!(u16).range(2..=5));
        assert_eq!(accepts(doors), json!({"type": "integer", "minimum": 2, "maximum": 5}));
        let seats = Arg::new("s").long("car-seats").default_value("0").value_parser(clap::value_parser!(u16));
        assert_eq!(accepts(seats), json!({"type": "integer", "minimum": 0, "maximum": 65_535}));
        let rest = Arg::new("r").long("car-rest").default_value("5m").value_parser(manager::duration);
        assert_eq!(accepts(rest), json!({"type": "string", "pattern": TIME}));
        let shop = Arg::new("u").long("car-shop").value_name("URL");
        assert_eq!(accepts(shop), json!({"type": "string", "pattern": ADDRESS}));
        assert_eq!(accepts(Arg::new("n").long("car-name")), json!({"type": "string"}));
        assert_eq!(accepts(Arg::new("f").long("car-fast").action(ArgAction::SetTrue)), json!({"type": "boolean"}));
    }

    #[test]
    fn operators_name_chart_values_of_flags_that_they_have() {
        for operator in OPERATORS {
            let flags: Vec<String> = own_flags(*operator).into_iter().map(|flag| flag.flag).collect();
            for (flag, _) in operator.chart_values() {
                assert!(flags.contains(&format!("--{flag}")), "{}: {flag}", operator.name());
            }
        }
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
