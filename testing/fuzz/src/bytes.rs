//! Changes texts and bytes, and keeps most of their structure.

use fastrand::Rng;

/// Values at which programs tend to fail.
const WORDS: &[&[u8]] = &[
    b"\0",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b"\"",
    b"\\",
    b"/",
    b"../",
    b"%00",
    b"%2e%2e",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"-1",
    b"0",
    b"255",
    b"256",
    b"65536",
    b"4294967296",
    b"9223372036854775808",
    b"18446744073709551616",
    b"1e999",
    b"null",
    b"\xff",
    b"\xc3\x28",
    b"\xe2\x80\xae",
    b"\xf0\x9f\x98\x80",
    b"\xef\xbb\xbf",
];
/// The longest input.
const LONGEST: usize = 1 << 16;

/// An example with some changes. `words` are pieces of the language of the examples; they are put in and repeated.
pub fn bytes(random: &mut Rng, examples: &[&[u8]], words: &[&str]) -> Vec<u8> {
    let mut text = random.choice(examples).map(|it| it.to_vec()).unwrap_or_default();
    for _ in 0..random.usize(..6) {
        change(random, &mut text, examples, words);
    }
    text.truncate(LONGEST);
    text
}

fn change(random: &mut Rng, text: &mut Vec<u8>, examples: &[&[u8]], words: &[&str]) {
    let from = random.usize(..=text.len());
    let to = (from + random.usize(..=16)).min(text.len());
    let word = |random: &mut Rng| {
        let own = random.choice(words).map(|it| it.as_bytes()).filter(|_| random.bool());
        own.or_else(|| random.choice(WORDS).copied()).unwrap_or_default()
    };
    match random.u8(..8) {
        0 if from < text.len() => text[from] = random.u8(..),
        1 if from < text.len() => text[from] ^= 1 << random.u8(..8),
        2 => drop(text.drain(from..to)),
        3 => {
            let word = word(random);
            text.splice(from..from, word.repeat(random.usize(1..=3)));
        }
        4 => {
            let word = word(random);
            text.splice(from..to, word.iter().copied());
        }
        5 => {
            let piece = text[from..to].repeat(1 << random.u8(..8));
            text.splice(from..to, piece);
        }
        6 => {
            // The end of another example.
            let other = random.choice(examples).copied().unwrap_or_default();
            text.truncate(from);
            text.extend_from_slice(&other[random.usize(..=other.len())..]);
        }
        _ => text.truncate(from.max(text.len() / 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_differ_and_follow_from_the_seed() {
        let examples: &[&[u8]] = &[b"*/5 * * * *", b"@daily"];
        let input = |seed| bytes(&mut Rng::with_seed(seed), examples, &["MON"]);
        let inputs: std::collections::HashSet<_> = (0..1000).map(input).collect();
        assert!(inputs.len() > 500, "{}", inputs.len());
        assert!(examples.iter().all(|it| inputs.contains(*it)));
        assert!(inputs.iter().any(|it| it.windows(3).any(|word| word == b"MON")));
        assert_eq!(input(7), input(7));
    }
}
