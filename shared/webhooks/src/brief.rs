//! Messages of a limited length. An error of a decoder repeats the text that it refuses, which may have megabytes, and the message
//! would stay in memory until the client has read it.

use std::fmt::{self, Write as _};

/// The longest message, in bytes.
const LONGEST: usize = 1024;

/// Formats a message, at most [`LONGEST`] bytes of it. The rest is never in memory.
pub(crate) fn brief(message: fmt::Arguments<'_>) -> String {
    let mut text = Brief(String::new());
    // An error means that the message is longer; its beginning is written.
    text.write_fmt(message).unwrap_or_default();
    text.0
}

struct Brief(String);

impl fmt::Write for Brief {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let free = LONGEST - self.0.len();
        self.0.push_str(&more[..more.floor_char_boundary(free)]);
        if more.len() > free { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_of_a_long_message_is_kept() {
        assert_eq!(brief(format_args!("not {}: {}", "this", 1)), "not this: 1");
        let long = brief(format_args!("a{}{}", "é".repeat(1000), "b"));
        assert!(long.len() <= LONGEST && long.len() > LONGEST - 2 && long.starts_with("aé"), "{}", long.len());
    }
}
