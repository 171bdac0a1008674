//! Checks the tokens of clients. The server rereads the token file, so that tokens can be replaced without a restart.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

/// How long the tokens are used before the file is read again.
const FRESH: Duration = Duration::from_secs(1);

/// Which clients may use the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Any client, without a token: for trials and tests.
    Public,
    /// Clients with a token from this file, which has one on each line.
    Tokens(PathBuf),
}

/// The decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Welcome,
    Unknown,
    /// The token file does not exist yet, so no token can be checked.
    TooEarly,
}

/// Checks tokens for a running server.
#[derive(Debug)]
pub(crate) struct Guard {
    access: Access,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    read_at: Option<Instant>,
    /// `None` until the file was read for the first time.
    hashes: Option<Vec<Hash>>,
    is_failing: bool,
}

/// Tokens are kept and compared as hashes: all have the same length, and memory holds no token that could be stolen.
type Hash = [u8; 32];

impl Guard {
    pub(crate) fn new(access: Access) -> Self {
        Self { access, known: Mutex::default() }
    }

    /// Decides whether a request with this token may pass.
    pub(crate) fn judge(&self, token: Option<&str>) -> Verdict {
        let Access::Tokens(file) = &self.access else { return Verdict::Welcome };
        let mut known = self.known.lock();
        if known.read_at.is_none_or(|at| at.elapsed() >= FRESH) {
            known.read(file);
        }
        match &known.hashes {
            None => Verdict::TooEarly,
            Some(hashes) if accepts(hashes, token.unwrap_or_default()) => Verdict::Welcome,
            Some(_) => Verdict::Unknown,
        }
    }
}

impl Guard {
    /// Whether the tokens are known.
    pub(crate) fn is_ready(&self) -> bool {
        self.judge(None) != Verdict::TooEarly
    }
}

impl Known {
    /// Reads the file in the calling thread: it is short, and is read at most once a second.
    fn read(&mut self, file: &Path) {
        self.read_at = Some(Instant::now());
        match std::fs::read_to_string(file) {
            Ok(text) => {
                self.hashes = Some(hashes(&text));
                self.is_failing = false;
            }
            // Keep the known tokens: a file that is being replaced must not lock out all clients.
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    let waits = error.kind() == io::ErrorKind::NotFound && self.hashes.is_none();
                    let what = if waits { "Waiting for the token file" } else { "Cannot read the token file" };
                    tracing::warn!(file = %file.display(), %error, what);
                }
            }
        }
    }
}

fn hashes(text: &str) -> Vec<Hash> {
    let tokens = text.lines().map(str::trim).filter(|token| !token.is_empty());
    tokens.map(|token| Sha256::digest(token).into()).collect()
}

/// Takes constant time, whichever token matches, and however much of it.
fn accepts(hashes: &[Hash], token: &str) -> bool {
    let hash_of_token: Hash = Sha256::digest(token).into();
    hashes.iter().fold(Choice::from(0), |found, hash| found | hash.ct_eq(&hash_of_token)).into()
}

/// The token in an `Authorization` header: `Bearer TOKEN`.
pub(crate) fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The token in the header that a browser sends: `Basic base64(anyone:TOKEN)`.
pub(crate) fn basic(header: &str) -> Option<String> {
    let (scheme, coded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(BASE64_STANDARD.decode(coded.trim()).ok()?).ok()?;
    text.split_once(':').map(|(_, token)| token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_file_is_a_token() {
        let known = hashes("one\n  two \n\n");
        assert_eq!(known.len(), 2);
        assert!(accepts(&known, "one") && accepts(&known, "two"));
        for wrong in ["", "on", "onee", "ONE", "one\ntwo", "three"] {
            assert!(!accepts(&known, wrong), "{wrong:?}");
        }
        assert!(!accepts(&hashes("\n \n"), ""), "an empty file has no token");
    }

    #[test]
    fn bearer_and_basic_schemes_are_distinguished() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc "), Some("abc"));
        assert_eq!(bearer("Basic abc"), None);
        assert_eq!(bearer("abc"), None);
        assert_eq!(basic("Basic YW55b25lOnM6M2NyZXQ=").as_deref(), Some("s:3cret"));
        assert_eq!(basic("Basic YW55b25l"), None);
        assert_eq!(basic("Basic !"), None);
        assert_eq!(basic("Bearer YTpi"), None);
    }

    #[test]
    fn tokens_are_reloaded_and_kept_if_file_vanishes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let guard = Guard::new(Access::Tokens(file.clone()));
        let read_again = || guard.known.lock().read_at = None;
        assert_eq!(guard.judge(Some("a")), Verdict::TooEarly);
        std::fs::write(&file, "a\n").unwrap();
        read_again();
        assert_eq!(guard.judge(Some("a")), Verdict::Welcome);
        assert_eq!(guard.judge(None), Verdict::Unknown);
        std::fs::remove_file(&file).unwrap();
        read_again();
        assert_eq!(guard.judge(Some("a")), Verdict::Welcome);
        std::fs::write(&file, "b\n").unwrap();
        read_again();
        assert_eq!(guard.judge(Some("a")), Verdict::Unknown);
        assert_eq!(guard.judge(Some("b")), Verdict::Welcome);
    }

    #[test]
    fn public_access_needs_no_token() {
        assert_eq!(Guard::new(Access::Public).judge(None), Verdict::Welcome);
    }
}
