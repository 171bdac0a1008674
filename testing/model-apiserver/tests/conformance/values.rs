//! Makes random values of a schema: valid ones, boundary values, and ones with a single mistake.

use fastrand::Rng;
use regex::Regex;
use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::{Map, Value, json};

pub(crate) struct Values {
    rng: Rng,
    /// Values that occur in the rules of the schema. Random values would rarely hit them.
    spoken: Vec<Value>,
}

impl Values {
    pub(crate) fn new(seed: u64, schema: &Value) -> Self {
        let literal = Regex::new(r"'([^']*)'|\b([0-9]+)\b").unwrap();
        let mut spoken = Vec::new();
        for rule in rules(schema) {
            for found in literal.captures_iter(&rule) {
                let number = found.get(2).and_then(|number| number.as_str().parse::<i64>().ok());
                spoken.push(number.map_or_else(|| json!(found.get(1).map_or("", |text| text.as_str())), Value::from));
            }
        }
        Self { rng: Rng::with_seed(seed), spoken }
    }

    fn pick<'a, T: ?Sized>(&mut self, options: &[&'a T]) -> &'a T {
        options[self.rng.usize(..options.len())]
    }

    /// Makes a value that is valid for the schema. The schema's rules may refuse it.
    pub(crate) fn valid(&mut self, schema: &Value) -> Value {
        if let Some(allowed) = schema["enum"].as_array() {
            return allowed[self.rng.usize(..allowed.len())].clone();
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return if self.rng.bool() { self.integer(schema) } else { self.text(schema) };
        }
        match schema["type"].as_str() {
            Some("object") => self.object(schema),
            Some("array") => self.list(schema),
            Some("string") => self.text(schema),
            Some("integer" | "number") => self.integer(schema),
            Some("boolean") => json!(self.rng.bool()),
            _ => json!({"a": self.rng.u8(..3)}),
        }
    }

    fn integer(&mut self, schema: &Value) -> Value {
        let (least, most) = (schema["minimum"].as_i64(), schema["maximum"].as_i64());
        let step = schema["multipleOf"].as_i64().unwrap_or(1);
        let from = least.unwrap_or(0);
        let to = most.unwrap_or(from.saturating_add(5));
        let spoken: Vec<i64> = self.spoken.iter().filter_map(Value::as_i64).collect();
        let wanted = match self.rng.u8(..6) {
            0 => from,
            1 => to,
            2 if !spoken.is_empty() => spoken[self.rng.usize(..spoken.len())] + self.rng.i64(-1..2),
            3 => schema["default"].as_i64().unwrap_or(from),
            _ => self.rng.i64(from..=to.min(from + 9)),
        };
        let wanted = if (from..=to).contains(&wanted) { wanted } else { from };
        json!(if wanted % step == 0 { wanted } else { (from + step - 1) / step * step })
    }

    fn text(&mut self, schema: &Value) -> Value {
        match schema["format"].as_str() {
            Some("date") => return json!(self.pick(&["2030-05-04", "2028-02-29"])),
            Some("date-time") => return json!(self.pick(&["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5+02:00"])),
            _ => {}
        }
        let (least, most) = (schema["minLength"].as_u64().unwrap_or(0), schema["maxLength"].as_u64().unwrap_or(64));
        let pattern = schema["pattern"].as_str();
        let regex = pattern.map(|pattern| Regex::new(pattern).unwrap());
        let fits = |text: &str| {
            let length = text.chars().count() as u64;
            (least..=most).contains(&length) && regex.as_ref().is_none_or(|regex| regex.is_match(text))
        };
        let mut words: Vec<String> = ["red", "green", "blue", "Red", "é", ""].map(str::to_owned).to_vec();
        words.extend(self.spoken.iter().filter_map(Value::as_str).map(str::to_owned));
        if most <= 64 {
            words.push("m".repeat(usize::try_from(most).unwrap()));
        }
        words.retain(|word| fits(word));
        for _ in 0..20 {
            if !words.is_empty() && (pattern.is_none() || self.rng.u8(..4) > 0) {
                return json!(words[self.rng.usize(..words.len())]);
            }
            if let Some(pattern) = pattern {
                let mut out = String::new();
                self.matching(&regex_syntax::parse(pattern).unwrap(), &mut out);
                if fits(&out) {
                    return json!(out);
                }
            }
        }
        json!("a".repeat(usize::try_from(least).unwrap()))
    }

    /// Makes a text that matches a pattern, of printable ASCII characters where possible.
    fn matching(&mut self, pattern: &Hir, out: &mut String) {
        match pattern.kind() {
            HirKind::Literal(literal) => out.push_str(std::str::from_utf8(&literal.0).unwrap()),
            HirKind::Class(Class::Unicode(class)) => {
                let has =
                    |letter: &char| class.ranges().iter().any(|range| (range.start()..=range.end()).contains(letter));
                let letters: Vec<char> = ('!'..='~').filter(has).collect();
                out.push(letters[self.rng.usize(..letters.len())]);
            }
            HirKind::Repetition(repeated) => {
                let most = repeated.max.unwrap_or(repeated.min + 3).min(repeated.min + 3);
                for _ in 0..self.rng.u32(repeated.min..=most) {
                    self.matching(&repeated.sub, out);
                }
            }
            HirKind::Capture(captured) => self.matching(&captured.sub, out),
            HirKind::Concat(parts) => parts.iter().for_each(|part| self.matching(part, out)),
            HirKind::Alternation(parts) => {
                let part = &parts[self.rng.usize(..parts.len())];
                self.matching(part, out);
            }
            HirKind::Empty | HirKind::Look(_) | HirKind::Class(Class::Bytes(_)) => {}
        }
    }

    fn list(&mut self, schema: &Value) -> Value {
        let (least, most) = (schema["minItems"].as_u64().unwrap_or(0), schema["maxItems"].as_u64().unwrap_or(9));
        let mut items: Vec<Value> = Vec::new();
        for _ in 0..self.rng.u64(least..=most.min(least + 2)) {
            let item = self.valid(&schema["items"]);
            let keys: Vec<&str> = schema["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            let same = |other: &Value| match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => *other == item,
                Some("map") => keys.iter().all(|key| other.get(key) == item.get(key)),
                _ => false,
            };
            if !items.iter().any(same) {
                items.push(item);
            }
        }
        Value::Array(items)
    }

    fn object(&mut self, schema: &Value) -> Value {
        let mut out = Map::new();
        let (least, most) =
            (schema["minProperties"].as_u64().unwrap_or(0), schema["maxProperties"].as_u64().unwrap_or(99));
        let full = |out: &Map<String, Value>| out.len() as u64 >= most;
        if schema["additionalProperties"].is_object() {
            for _ in 0..self.rng.u64(least..=most.min(least + 2)) {
                let name = self.pick(&["red", "green", "example.com/blue"]).to_owned();
                out.insert(name, self.valid(&schema["additionalProperties"]));
            }
            return Value::Object(out);
        }
        let empty = Map::new();
        let fields: Vec<(&String, &Value)> = schema["properties"].as_object().unwrap_or(&empty).iter().collect();
        let required = |name: &str| schema["required"].as_array().is_some_and(|names| names.contains(&json!(name)));
        for (name, schema) in &fields {
            if required(name) || (!full(&out) && self.rng.u8(..4) == 0) {
                out.insert((*name).clone(), self.valid(schema));
            }
        }
        while (out.len() as u64) < least {
            let (name, schema) = fields[self.rng.usize(..fields.len())];
            out.insert(name.clone(), self.valid(schema));
        }
        Value::Object(out)
    }

    /// Changes one place of a value: another valid value, an additional field, or one field less.
    pub(crate) fn change(&mut self, value: &mut Value, schema: &Value) {
        let places = places(value, schema);
        let (pointer, schema) = &places[self.rng.usize(..places.len())];
        let (place, fresh) = (value.pointer_mut(pointer).unwrap(), self.valid(schema));
        match place.as_object_mut() {
            Some(fields) if schema["properties"].is_object() => {
                let names: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
                let name = names[self.rng.usize(..names.len())];
                let required = schema["required"].as_array().is_some_and(|names| names.contains(&json!(name)));
                if self.rng.u8(..3) == 0 && !required {
                    fields.remove(name);
                } else {
                    fields.insert(name.clone(), self.valid(&schema["properties"][name]));
                }
            }
            _ => *place = fresh,
        }
    }

    /// Breaks the schema at one place of a value.
    pub(crate) fn break_one(&mut self, value: &mut Value, schema: &Value) {
        let mut places = places(value, schema);
        // Leave the root as it is: another root would make it another request.
        places.retain(|(pointer, _)| !pointer.is_empty());
        if places.is_empty() {
            return;
        }
        let (pointer, schema) = &places[self.rng.usize(..places.len())];
        let place = value.pointer_mut(pointer).unwrap();
        let mut broken =
            vec![json!(true), json!(5), json!(1.5), json!("x"), json!({"a": 1}), json!([]), json!(["x"]), Value::Null];
        if schema["type"] == "string" && schema["format"].is_string() {
            // The real server accepts lists here, and then its rules cannot read them.
            broken.retain(|value| !value.is_array());
        }
        // In half of the cases, break a bound of the right type.
        if self.rng.bool() {
            broken = Self::nearly(place, schema);
        }
        if let Some(broken) = broken.get(self.rng.usize(..broken.len().max(1))) {
            *place = broken.clone();
        }
    }

    /// Values of the right type that each break one bound of the schema.
    fn nearly(value: &Value, schema: &Value) -> Vec<Value> {
        let mut out = Vec::new();
        let limit = |name: &str| schema[name].as_i64();
        match value {
            Value::Number(_) => {
                out.extend(limit("minimum").map(|least| json!(least - 1)));
                out.extend(limit("maximum").map(|most| json!(most + 1)));
                out.extend(limit("multipleOf").map(|step| json!(3 * step + 1)));
                out.extend([json!(-1), json!(3_000_000_000_i64), json!(i64::MAX)]);
            }
            Value::String(_) => {
                let long =
                    limit("maxLength").and_then(|most| usize::try_from(most + 1).ok()).filter(|most| *most < 2000);
                out.extend(long.map(|length| json!("m".repeat(length))));
                out.extend(["", " ", "%%", "Other", "a b", "2030-02-30", "é:é"].map(Value::from));
            }
            Value::Array(items) => {
                let one = items.first().cloned().unwrap_or_else(|| json!("x"));
                let many = limit("maxItems").and_then(|most| usize::try_from(most + 1).ok()).filter(|most| *most < 70);
                out.extend(many.map(|count| json!(vec![one.clone(); count])));
                out.push(json!([one.clone(), one]));
                out.push(json!([Value::Null]));
                out.push(json!([]));
            }
            Value::Object(fields) => {
                let with = |name: &str, value: Value| {
                    let mut fields = fields.clone();
                    fields.insert(name.to_owned(), value);
                    Value::Object(fields)
                };
                out.push(with("unknown", json!("field")));
                for name in fields.keys() {
                    let mut fields = fields.clone();
                    fields.remove(name);
                    out.push(Value::Object(fields));
                    out.push(with(name, Value::Null));
                }
                let more =
                    limit("maxProperties").filter(|most| schema["additionalProperties"].is_object() && *most < 70);
                let some = fields.values().next();
                if let (Some(most), Some(some)) = (more, some) {
                    out.push(Value::Object((0..=most).map(|index| (format!("k{index}"), some.clone())).collect()));
                }
                out.push(json!({}));
            }
            Value::Bool(_) | Value::Null => {}
        }
        out
    }
}

fn rules(schema: &Value) -> Vec<String> {
    let own = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    let own = own.filter_map(|rule| rule["rule"].as_str().map(str::to_owned));
    let named = schema["properties"].as_object().into_iter().flat_map(Map::values);
    let below = named
        .chain(["items", "additionalProperties"].map(|name| &schema[name]).into_iter().filter(|it| it.is_object()));
    own.chain(below.flat_map(rules)).collect()
}

/// Every place in a value for which its schema has an entry.
fn places<'a>(value: &Value, schema: &'a Value) -> Vec<(String, &'a Value)> {
    let mut out = Vec::new();
    walk(value, schema, String::new(), &mut out);
    out
}

fn walk<'a>(value: &Value, schema: &'a Value, at: String, out: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let more = Some(&schema["additionalProperties"]).filter(|more| more.is_object());
                if let Some(schema) = schema["properties"].get(name).or(more) {
                    walk(value, schema, format!("{at}/{}", name.replace('/', "~1")), out);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, &schema["items"], format!("{at}/{index}"), out);
            }
        }
        _ => {}
    }
    out.push((at, schema));
}

/// JSON pointers to everything below `root`, except into lists.
pub(crate) fn pointers(object: &Value, root: &str) -> Vec<String> {
    let Some(fields) = object.pointer(root).and_then(Value::as_object) else { return Vec::new() };
    let mut out = Vec::new();
    for name in fields.keys() {
        let pointer = format!("{root}/{}", name.replace('/', "~1"));
        out.extend(pointers(object, &pointer));
        out.push(pointer);
    }
    out
}
