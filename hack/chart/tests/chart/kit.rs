//! Helpers for all tests of the chart: rendering it, and sets of enabled operators.

use std::{collections::BTreeSet, sync::OnceLock};

use chart::{
    helm::{Helm, Version},
    rendered::Rendered,
};
use controller_manager::OPERATORS;
use manager::Operator;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

/// Helm 4, located or built once for all tests.
pub(crate) fn helm() -> &'static Helm {
    static HELM: OnceLock<Helm> = OnceLock::new();
    HELM.get_or_init(|| Helm::of(Version::Four).unwrap())
}

/// Renders the chart with these values.
pub(crate) fn render(values: &Value) -> Rendered {
    helm().template(values, &[]).unwrap_or_else(|error| panic!("{values}: {error:#}"))
}

/// A set of enabled operators, and a topology.
#[derive(Debug, Clone)]
pub(crate) struct FlagSet {
    pub(crate) enabled: BTreeSet<&'static str>,
    pub(crate) topology: &'static str,
}

impl FlagSet {
    /// All combinations, except those without any operator.
    pub(crate) fn all() -> Vec<Self> {
        let subsets = 1..1_u32 << OPERATORS.len();
        let chosen = |bits: u32| (0..).zip(OPERATORS).filter(move |(n, _)| bits >> n & 1 == 1);
        let of = |topology| {
            subsets.clone().map(move |bits| Self { enabled: chosen(bits).map(|(_, it)| it.name()).collect(), topology })
        };
        of("combined").chain(of("separate")).collect()
    }

    pub(crate) fn values(&self) -> Value {
        let enabled = |operator: &&dyn Operator| {
            (operator.name().to_owned(), json!({"enabled": self.enabled.contains(operator.name())}))
        };
        json!({"topology": self.topology, "operators": OPERATORS.iter().map(enabled).collect::<Map<_, _>>()})
    }

    /// Whether the objects of this set are checked against schemas and by an API server. Other sets change which objects there are,
    /// and no field of them has another name, as a test of all sets checks.
    pub(crate) fn is_validated(&self) -> bool {
        self.enabled.len() == 1 || self.enabled.len() == OPERATORS.len()
    }

    pub(crate) fn operators(&self) -> Vec<&'static dyn Operator> {
        OPERATORS.iter().copied().filter(|operator| self.enabled.contains(operator.name())).collect()
    }
}

/// Runs `work` for each item, in parallel on all processors.
pub(crate) fn for_each<T: Send>(items: Vec<T>, work: impl Fn(T) + Sync) {
    let items = Mutex::new(items);
    let next = || items.lock().pop();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(item) = next() {
                    work(item);
                }
            });
        }
    });
}

/// All values of the key in `value`, at any depth.
pub(crate) fn deep<'a>(value: &'a Value, key: &str) -> Vec<&'a Value> {
    match value {
        Value::Object(object) => {
            let below = object.values().flat_map(|value| deep(value, key));
            object.get(key).into_iter().chain(below).collect()
        }
        Value::Array(items) => items.iter().flat_map(|value| deep(value, key)).collect(),
        _ => Vec::new(),
    }
}

/// The object of this kind that belongs to the manager; there is one manager, since the topology is `combined`.
pub(crate) fn of_manager<'a>(rendered: &'a Rendered, kind: &str) -> &'a Value {
    rendered.object(kind, "operators-controller-manager").unwrap()
}

/// The manager's flags.
pub(crate) fn flags(rendered: &Rendered) -> Vec<String> {
    let flags =
        of_manager(rendered, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    flags.iter().map(|flag| flag.as_str().unwrap().to_owned()).collect()
}
