//! New operators are copies of the template in `hack/scaffold`, under other names. The template `gadget-operator` is a member of
//! this workspace, so the compiler and its tests check it like any other crate.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace::{self, File};

/// The folder of the templates.
const FOLDER: &str = "hack/scaffold";
/// The crate of the template, below [`FOLDER`].
pub(crate) const TEMPLATE: &str = "gadget-operator";

/// The change that the tutorial makes to a new operator, with the names of the template.
const FIRST_CHANGE: &str = include_str!("../../scaffold/first-change.patch");

/// The words that Rust reserves, in lower case: they cannot be the name of a module.
/// <https://doc.rust-lang.org/reference/keywords.html>
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// The kind that a new operator reconciles.
#[derive(Debug, clap::Args)]
pub(crate) struct Api {
    /// The kind that the operator reconciles, such as Cache
    #[arg(long, value_name = "KIND", value_parser = kind)]
    kind: String,
    /// The API group of the kind, such as cache.example.com
    #[arg(long, value_name = "GROUP", value_parser = group)]
    group: String,
    /// The plural of the kind in lower case [default: the English plural, such as caches]
    #[arg(long, value_name = "PLURAL", value_parser = word)]
    plural: Option<String>,
}

impl Api {
    /// A kind with the English plural.
    pub(crate) fn new(kind: &str, group: &str) -> Self {
        Self { kind: kind.to_owned(), group: group.to_owned(), plural: None }
    }
}

/// The names that replace those of the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    /// Of the operator; its crate is `<name>-operator`.
    pub(crate) name: String,
    pub(crate) kind: String,
    group: String,
    plural: String,
}

impl Names {
    /// The names of an operator. Without a name, it is the kind in lower case.
    ///
    /// # Errors
    ///
    /// The template uses the kind's name for something else, or the name is a keyword of Rust.
    pub(crate) fn new(name: Option<&str>, api: &Api) -> Result<Self> {
        let Api { kind, group, plural } = api;
        let name = name.map_or_else(|| kind.to_lowercase(), ToOwned::to_owned);
        let plural = plural.clone().unwrap_or_else(|| plural_of(&kind.to_lowercase()));
        ensure!(!KEYWORDS.contains(&&*name), "{name} is a keyword of Rust: choose another name");
        let taken = identifiers(&template()?);
        if let Some(taken) =
            ["", "Spec", "Status"].iter().map(|end| format!("{kind}{end}")).find(|it| taken.contains(it))
        {
            bail!("the code of an operator uses {taken} for something else: choose another kind");
        }
        Ok(Self { name, kind: kind.clone(), group: group.clone(), plural })
    }

    /// Replaces the template's names in a text or a path.
    pub(crate) fn applied_to(&self, text: &str) -> String {
        let article =
            |article: &str| format!("{article}{} {}", if self.begins_with_vowel() { "n" } else { "" }, self.kind);
        let words = [
            ("shop.example.com", self.group.clone()),
            ("gadgets", self.plural.clone()),
            ("gadget", self.name.clone()),
            ("a Gadget", article("a")),
            ("A Gadget", article("A")),
            ("Gadgets", plural_of(&self.kind)),
            ("Gadget", self.kind.clone()),
        ];
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text;
        // In one pass, because a new name may contain a word of the template.
        let first = |rest: &str| {
            let found = words.iter().filter_map(|(old, new)| Some((rest.find(old)?, old.len(), new.clone())));
            found.min_by_key(|(at, length, _)| (*at, usize::MAX - length))
        };
        while let Some((at, length, new)) = first(rest) {
            replaced.extend([&rest[..at], &new]);
            rest = &rest[at + length..];
        }
        replaced + rest
    }

    fn begins_with_vowel(&self) -> bool {
        self.kind.starts_with(['A', 'E', 'I', 'O', 'U'])
    }

    /// The files of the operator's crate, below this folder.
    pub(crate) fn operator(&self, folder: &str) -> Result<Vec<File>> {
        Ok(self.renamed(template()?, folder))
    }

    /// The other files of a new project, by their paths in it.
    pub(crate) fn project(&self) -> Result<Vec<File>> {
        Ok(self.renamed(below("project")?, ""))
    }

    /// The end-to-end test of the operator.
    pub(crate) fn end_to_end_test(&self) -> Result<String> {
        let path = workspace::root().join(FOLDER).join("e2e.rs");
        let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
        Ok(self.applied_to(&text))
    }

    /// Makes the change of the tutorial to the new operator, whose crate is in this folder.
    pub(crate) fn change(&self, folder: &Path) -> Result<()> {
        let patch = tempfile::NamedTempFile::new()?;
        fs::write(patch.path(), self.applied_to(FIRST_CHANGE))?;
        let mut apply = workspace::command("git");
        apply.arg("apply").arg(patch.path()).current_dir(folder);
        apply.env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder)); // not in the repository around the folder
        workspace::run(&mut apply, "the change of the tutorial does not fit the new operator, see above")
    }

    fn renamed(&self, files: Vec<File>, folder: &str) -> Vec<File> {
        let renamed = |File { path, text }: File| File {
            path: format!("{folder}{}", self.applied_to(&path)),
            text: self.applied_to(&text),
        };
        files.into_iter().map(renamed).collect()
    }
}

/// Writes files below a folder.
pub(crate) fn write(root: &Path, files: &[File]) -> Result<()> {
    for File { path, text } in files {
        let path = root.join(path);
        let folder = path.parent().unwrap_or(root);
        fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
        fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(())
}

fn template() -> Result<Vec<File>> {
    below(TEMPLATE)
}

/// The files of a folder of the template, by their paths in it.
fn below(folder: &str) -> Result<Vec<File>> {
    workspace::files_in(&workspace::root().join(FOLDER).join(folder))
}

/// The names that begin with a capital letter in the code of these files, except those that a new operator replaces.
fn identifiers(files: &[File]) -> BTreeSet<String> {
    let code = files.iter().filter(|file| file.is("rs"));
    let words = code.flat_map(|file| file.text.split(|letter: char| !letter.is_alphanumeric() && letter != '_'));
    let is_type = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_uppercase());
    words.filter(is_type).filter(|word| !word.contains("Gadget")).map(ToOwned::to_owned).collect()
}

/// The plural of an English word.
fn plural_of(word: &str) -> String {
    let ends = |ends: &[&str]| ends.iter().any(|end| word.ends_with(end));
    match word.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ if ends(&["s", "x", "z", "ch", "sh"]) => format!("{word}es"),
        _ => format!("{word}s"),
    }
}

fn kind(text: &str) -> std::result::Result<String, String> {
    let is_kind =
        text.starts_with(|it: char| it.is_ascii_uppercase()) && text.chars().all(|it| it.is_ascii_alphanumeric());
    if is_kind {
        Ok(text.to_owned())
    } else {
        Err("a kind has letters and digits, the first a capital, as Cache".to_owned())
    }
}

/// A name of an operator or the plural of a kind: part of crate names, of paths in values of Helm and of URLs.
pub(crate) fn word(text: &str) -> std::result::Result<String, String> {
    let is_word = text.starts_with(|it: char| it.is_ascii_lowercase())
        && text.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit())
        && text.len() <= 40;
    if is_word {
        Ok(text.to_owned())
    } else {
        Err("a name has at most 40 lower case letters and digits, the first a letter".to_owned())
    }
}

fn group(text: &str) -> std::result::Result<String, String> {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_group = text.contains('.') && text.split('.').all(is_label) && text.len() <= 100;
    if is_group {
        Ok(text.to_owned())
    } else {
        Err("a group is a domain name in lower case, as cache.example.com".to_owned())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Names with what is easily confused: a name that differs from the kind, an irregular plural, words of the template.
    pub(crate) fn names(name: &str, kind: &str, group: &str) -> Result<Names> {
        Names::new(Some(name), &Api::new(kind, group))
    }

    #[test]
    fn all_names_are_replaced_in_one_pass() {
        let names = names("store", "Entry", "gadget.example.org").expect("names");
        let text =
            "A Gadget; a Gadget and Gadgets: gadgets.shop.example.com, gadget-operator, gadget_operator::GadgetSpec";
        let new =
            "An Entry; an Entry and Entries: entries.gadget.example.org, store-operator, store_operator::EntrySpec";
        assert_eq!(names.applied_to(text), new);
    }

    #[test]
    fn nothing_of_the_template_is_left() {
        let names = names("store", "Entry", "x.org").expect("names");
        let operator = names.operator("operators/store-operator/").expect("files");
        let project = names.project().expect("files");
        assert!(operator.iter().any(|file| file.path == "operators/store-operator/src/api.rs"));
        assert!(project.iter().any(|file| file.path == "charts/store-operator/Chart.yaml"));
        for File { path, text } in operator.iter().chain(&project) {
            let left = format!("{path}\n{text}").to_lowercase();
            assert!(!left.contains("gadget") && !left.contains("shop."), "{path}");
        }
    }

    #[test]
    fn names_that_cannot_work_are_refused() {
        let refused = |name: &str, kind: &str| names(name, kind, "x.org").expect_err("is refused").to_string();
        assert!(refused("type", "Kind").starts_with("type is a keyword"));
        assert!(refused("a", "ConfigMap").contains("uses ConfigMap for something else"));
        assert!(refused("a", "String").contains("uses String for something else"));
        for wrong in ["lower", "Two-Words", "", "1A"] {
            assert!(kind(wrong).is_err(), "{wrong}");
        }
        for wrong in ["Upper", "a-b", "a_b", "", "1a"] {
            assert!(word(wrong).is_err(), "{wrong}");
        }
        for wrong in ["local", "A.org", "a..org", "-a.org", ".org", ""] {
            assert!(group(wrong).is_err(), "{wrong}");
        }
        assert_eq!(group("cache.example.com").as_deref(), Ok("cache.example.com"));
    }

    #[test]
    fn plurals_are_english() {
        for (one, many) in
            [("cache", "caches"), ("entry", "entries"), ("gateway", "gateways"), ("proxy", "proxies"), ("box", "boxes")]
        {
            assert_eq!(plural_of(one), many);
        }
    }
}
