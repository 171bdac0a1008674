//! Templates of resource attributes: `{{ .Value }}` stands for a value of the request.

/// A parsed template. Parsing happens once, at the start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Template {
    /// The texts before, between and after the placeholders.
    texts: Vec<String>,
}

impl Template {
    /// Parses a template. Fails on any other expression in double braces: as plain text, it would never match.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut texts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (action, after) = after.split_once("}}").ok_or_else(|| format!("{text:?}: {{{{ without }}}}"))?;
            if action.trim() != ".Value" {
                return Err(format!("{text:?}: only {{{{ .Value }}}} is known, not {{{{{action}}}}}"));
            }
            texts.push(before.to_owned());
            rest = after;
        }
        texts.push(rest.to_owned());
        Ok(Self { texts })
    }

    /// Whether the template has a placeholder.
    pub(crate) fn has_place(&self) -> bool {
        self.texts.len() > 1
    }

    pub(crate) fn fill(&self, value: &str) -> String {
        self.texts.join(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled() {
        for (text, expected) in [
            ("", ""),
            ("pods", "pods"),
            ("{{ .Value }}", "x"),
            ("{{.Value}}", "x"),
            ("a-{{ .Value }}-b-{{\t.Value }}", "a-x-b-x"),
            ("}} {", "}} {"),
        ] {
            assert_eq!(Template::parse(text).unwrap().fill("x"), expected, "{text:?}");
        }
    }

    #[test]
    fn filled_value_is_not_expanded_again() {
        assert_eq!(Template::parse("{{ .Value }}").unwrap().fill("{{ .Value }}"), "{{ .Value }}");
    }

    #[test]
    fn unknown_placeholder_is_rejected() {
        for text in ["{{ .Valu }}", "{{ .Value", "{{}}", "{{ .Value | urlquery }}", "{{- .Value }}"] {
            assert!(Template::parse(text).is_err(), "{text:?}");
        }
    }
}
