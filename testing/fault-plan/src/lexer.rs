//! Splits the text of a plan into tokens: words, quoted texts and semicolons.

use std::fmt;

use crate::invalid::InvalidPlan;

/// A token of a plan's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    Word(String),
    Text(String),
    Semicolon,
}

/// The remaining tokens of a plan.
pub(crate) struct Tokens(std::iter::Peekable<std::vec::IntoIter<Token>>);

impl Tokens {
    pub(crate) fn of(text: &str) -> Result<Self, InvalidPlan> {
        let mut tokens = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(&first) = rest.peek() {
            if first.is_whitespace() {
                rest.next();
            } else if first == ';' {
                rest.next();
                tokens.push(Token::Semicolon);
            } else if first == '"' {
                rest.next();
                tokens.push(Token::Text(quoted(&mut rest)?));
            } else {
                let mut word = String::new();
                while let Some(c) = rest.next_if(|c| !c.is_whitespace() && !matches!(c, ';' | '"')) {
                    word.push(c);
                }
                tokens.push(Token::Word(word));
            }
        }
        Ok(Self(tokens.into_iter().peekable()))
    }

    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.peek().is_none()
    }

    /// Takes the next token if it is a word that `wanted` accepts.
    pub(crate) fn word_if(&mut self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        match self.0.next_if(|token| matches!(token, Token::Word(word) if wanted(word)))? {
            Token::Word(word) => Some(word),
            Token::Text(_) | Token::Semicolon => None,
        }
    }

    pub(crate) fn word(&mut self, what: &str) -> Result<String, InvalidPlan> {
        match self.0.next() {
            Some(Token::Word(word)) => Ok(word),
            other => Err(InvalidPlan(format!("expected {what}, found {}", Found(other)))),
        }
    }

    pub(crate) fn text(&mut self, what: &str) -> Result<String, InvalidPlan> {
        match self.0.next() {
            Some(Token::Text(text)) => Ok(text),
            other => Err(InvalidPlan(format!("expected {what} in quotes, found {}", Found(other)))),
        }
    }

    pub(crate) fn keyword(&mut self, keyword: &str) -> bool {
        self.word_if(|word| word == keyword).is_some()
    }

    pub(crate) fn semicolon(&mut self) -> bool {
        self.0.next_if_eq(&Token::Semicolon).is_some()
    }
}

struct Found(Option<Token>);

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(Token::Word(word)) => write!(f, "`{word}`"),
            Some(Token::Text(text)) => Quoted(text).fmt(f),
            Some(Token::Semicolon) => f.write_str("`;`"),
            None => f.write_str("the end"),
        }
    }
}

/// A quoted text. Escapes keep it on one line.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

fn quoted(rest: &mut impl Iterator<Item = char>) -> Result<String, InvalidPlan> {
    let unfinished = || InvalidPlan("a text without its closing quote".to_owned());
    let mut text = String::new();
    loop {
        match rest.next().ok_or_else(unfinished)? {
            '"' => return Ok(text),
            '\\' => match rest.next().ok_or_else(unfinished)? {
                'n' => text.push('\n'),
                'u' => {
                    let digits: String = rest.skip_while(|c| *c == '{').take_while(|c| *c != '}').collect();
                    let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                    text.push(code.ok_or_else(|| InvalidPlan(format!("unknown character \\u{{{digits}}}")))?);
                }
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
}
