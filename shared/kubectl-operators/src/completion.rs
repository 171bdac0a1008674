//! Completes the words after `kubectl operators`, in the form that kubectl expects of the program `kubectl_complete-operators`.

use std::ffi::OsString;

use clap::CommandFactory;

use crate::cli::Cli;

/// The hidden command that completes the words after it.
pub(crate) const COMPLETE: &str = "__complete";
/// The last line: kubectl must not offer names of files (`ShellCompDirectiveNoFileComp` of cobra).
const NO_FILES: &str = ":4";

/// Returns the completions of the last word, one in each line with its description. The words before it are complete.
pub(crate) fn complete(words: Vec<OsString>) -> String {
    let index = words.len();
    let words = std::iter::once("kubectl-operators".into()).chain(words).collect();
    let candidates = clap_complete::engine::complete(&mut Cli::command(), words, index, None).unwrap_or_default();
    let lines = candidates.iter().filter(|candidate| !candidate.is_hide_set()).map(|candidate| {
        let value = candidate.get_value().to_string_lossy();
        candidate
            .get_help()
            .map_or_else(|| value.to_string(), |help| format!("{value}\t{}", help.to_string().replace('\n', " ")))
    });
    lines.chain([NO_FILES.to_owned()]).map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The completions without their descriptions.
    fn completed(words: &[&str]) -> Vec<String> {
        let text = complete(words.iter().map(OsString::from).collect());
        let lines: Vec<&str> = text.lines().collect();
        let (last, lines) = lines.split_last().expect("a line");
        assert_eq!(*last, ":4");
        lines.iter().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn commands_flags_and_values_are_completed() {
        assert_eq!(completed(&["st"]), ["status"]);
        assert!(complete(vec!["st".into()]).starts_with("status\tShow all objects"));
        let all = completed(&[""]);
        assert!(all.contains(&"run-now".to_owned()), "{all:?}");
        assert_eq!(completed(&["status", "--out"]), ["--output"]);
        assert_eq!(completed(&["status", "--output", ""]), ["table", "json"]);
        assert_eq!(completed(&["--namespace", "shop", "re"]), ["resume", "reconcile"]);
        assert_eq!(completed(&["describe", "memcached/"]), [""; 0], "names of objects are not completed");
    }
}
