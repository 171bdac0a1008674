//! Compressed object texts. The JSON texts of one kind are nearly the same, so each is kept as its difference from a template.
//!
//! Two Deployments of one operator differ in a name, two uids, a few numbers and times. With one of them as LZ4 dictionary,
//! the 4 KB of the other become about 250 bytes, in a few microseconds.

use std::{fmt, sync::Arc};

use lz4_flex::block::{compress_with_dict, decompress_with_dict};

/// Packs texts and chooses the template for them.
#[derive(Debug, Default)]
pub(super) struct Packer {
    template: Option<Arc<str>>,
    /// The number of texts that the current template did not suit.
    misfits: u32,
    /// After this many misfits, the next one becomes the template. About doubles each time, so that a mix of shapes does not
    /// change the template for ever.
    patience: u32,
}

/// A compressed text.
pub(super) struct Packed {
    template: Arc<str>,
    bytes: Box<[u8]>,
    length: u32,
}

/// The template suits a text that shrinks at least by this factor.
const FIT_RATIO: usize = 4;

impl Packer {
    pub(super) fn pack(&mut self, text: &str) -> Packed {
        let template = self.template.get_or_insert_with(|| text.into());
        let packed = Packed::new(template, text);
        if packed.bytes.len() * FIT_RATIO <= text.len() {
            return packed;
        }
        self.misfits += 1;
        if self.misfits <= self.patience {
            return packed;
        }
        self.misfits = 0;
        self.patience = 2 * self.patience + 8;
        Packed::new(self.template.insert(text.into()), text)
    }
}

impl Packed {
    fn new(template: &Arc<str>, text: &str) -> Self {
        Self {
            template: template.clone(),
            bytes: compress_with_dict(text.as_bytes(), template.as_bytes()).into(),
            length: u32::try_from(text.len()).unwrap_or(u32::MAX),
        }
    }

    /// The original text; `None` if it does not decompress.
    pub(super) fn text(&self) -> Option<String> {
        let bytes = decompress_with_dict(&self.bytes, self.length as usize, self.template.as_bytes()).ok()?;
        String::from_utf8(bytes).ok()
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes for {}", self.bytes.len(), self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, filler: &str) -> String {
        format!(r#"{{"metadata":{{"name":"{name}","labels":{{"app":"{name}"}}}},"spec":"{}"}}"#, filler.repeat(100))
    }

    #[test]
    fn packed_text_round_trips() {
        let mut packer = Packer::default();
        for text in
            [String::new(), "{}".to_owned(), object("first", "abcdefg"), object("ü€𝄞", "abcdefg"), "{".repeat(9_999)]
        {
            assert_eq!(packer.pack(&text).text(), Some(text));
        }
    }

    #[test]
    fn text_similar_to_the_template_packs_small() {
        let mut packer = Packer::default();
        packer.pack(&object("first", "abcdefg"));
        let second = packer.pack(&object("second", "abcdefg"));
        assert!(second.bytes.len() < 64, "{second:?}");
    }

    #[test]
    fn new_shape_becomes_template_and_old_texts_stay_readable() {
        let mut packer = Packer::default();
        let shape = |shape: u64| {
            let mut random = fastrand::Rng::with_seed(shape);
            std::iter::repeat_with(|| random.alphanumeric()).take(2_000).collect::<String>()
        };
        let old = packer.pack(&shape(1));
        let last = (0..9).map(|_| packer.pack(&shape(2))).last().expect("nine");
        assert!(last.bytes.len() < 100, "{last:?}");
        assert_eq!(old.text(), Some(shape(1)));
        let changes = (3..203).filter(|&other| packer.pack(&shape(other)).bytes.len() < 100).count();
        assert!(changes < 6, "the template hardly changes for texts without a common shape: {changes}");
    }
}
