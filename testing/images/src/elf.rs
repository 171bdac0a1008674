//! Reads what a compiled program needs at run time. Unlike `ldd`, this works for the programs of every platform.

use anyhow::{Context as _, Result, ensure};

/// The type of the segment that names the loader.
const INTERPRETER: usize = 3;

/// Whether the program needs no loader, and so no shared libraries of the machine.
///
/// # Errors
///
/// If the content is no program of a platform with 64 bits.
pub(crate) fn is_static(content: &[u8]) -> Result<bool> {
    ensure!(content.starts_with(b"\x7fELF\x02\x01"), "this is no program for Linux on a platform with 64 bits");
    let number = |at: usize, length: usize| -> Result<usize> {
        let bytes = content.get(at..).and_then(|rest| rest.get(..length)).context("the program is cut off")?;
        Ok(bytes.iter().rev().fold(0, |number, byte| (number << 8) | usize::from(*byte)))
    };
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        if number(table.saturating_add(index * size), 4)? == INTERPRETER {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_program_with_a_loader_needs_libraries() {
        let shell = std::fs::read("/bin/sh").unwrap(); // it is on every machine and needs libraries
        assert!(!is_static(&shell).unwrap());
        let mut without_segments = shell[..64].to_vec();
        without_segments[56..58].fill(0);
        assert!(is_static(&without_segments).unwrap());
        for (content, words) in [(&shell[..64], "cut off"), (b"#!/bin/sh\n".as_slice(), "no program for Linux")] {
            let error = is_static(content).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
