//! Why the server refuses an object.

/// One reason to refuse an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: String,
}

impl Cause {
    pub(crate) fn new(reason: &'static str, field: &str, message: String) -> Self {
        // Go prints an empty path like this.
        let field = if field.is_empty() { "<nil>" } else { field };
        Self { reason, message, field: field.to_owned() }
    }

    pub(crate) fn invalid(field: &str, value: &str, why: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {value}: {why}"))
    }

    /// Whether the server skips CEL rules after this cause. Rules may rely on types, sizes and required fields.
    pub(crate) fn blocks_rules(&self) -> bool {
        [
            "FieldValueNotSupported",
            "FieldValueRequired",
            "FieldValueTooLong",
            "FieldValueTooMany",
            "FieldValueTypeInvalid",
        ]
        .contains(&self.reason)
    }
}
