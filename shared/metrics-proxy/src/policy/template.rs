//! Text with a place for a value of the request: `{{ .Value }}`.

/// Text with places for a value. It is read once, at the start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Template {
    /// What is before, between and behind the places.
    texts: Vec<String>,
}

impl Template {
    /// Fails if there is anything else in double braces: it would be taken literally, and never match.
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

    /// Whether the value matters.
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
    fn places_are_filled() {
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
    fn what_is_filled_in_is_not_read_again() {
        assert_eq!(Template::parse("{{ .Value }}").unwrap().fill("{{ .Value }}"), "{{ .Value }}");
    }

    #[test]
    fn anything_else_in_braces_is_refused() {
        for text in ["{{ .Valu }}", "{{ .Value", "{{}}", "{{ .Value | urlquery }}", "{{- .Value }}"] {
            assert!(Template::parse(text).is_err(), "{text:?}");
        }
    }
}
