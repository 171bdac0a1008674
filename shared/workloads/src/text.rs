//! Truncates texts from the cluster, to limit the memory of the views.

/// The first `max` bytes of `text`, or a little less, so that no character is cut in two.
pub(crate) fn head(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// The last `max` bytes of `text`, or a little less, so that no character is cut in two.
pub(crate) fn tail(text: &str, max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_are_kept_whole() {
        assert_eq!((head("abc", 3), tail("abc", 3)), ("abc", "abc"));
        assert_eq!((head("", 3), tail("", 3)), ("", ""));
    }

    #[test]
    fn characters_are_not_cut_in_two() {
        assert_eq!((head("añb", 2), tail("añb", 2)), ("a", "b"));
    }
}
