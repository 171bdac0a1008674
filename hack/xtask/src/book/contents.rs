//! The pages as a whole: the summary lists each of them, each begins with what the reader can do after it, and each concept has a
//! picture.

use std::path::Path;

use super::File;

const SUMMARY: &str = "docs/book/src/SUMMARY.md";

/// One line for each page that breaks one of these rules.
pub(super) fn check(pages: &[&File]) -> Vec<String> {
    let summary = pages.iter().find(|page| page.path == SUMMARY).map_or("", |page| &page.text);
    let mut findings = Vec::new();
    for page in pages.iter().filter(|page| page.path != SUMMARY) {
        let name = page.path.trim_start_matches("docs/book/src/");
        if !summary.contains(&format!("]({name})")) {
            findings.push(format!("{}: SUMMARY.md does not list the page, so the book lacks it", page.path));
        }
        if !begins_with_its_result(&page.text) {
            findings.push(format!("{}: begin with a title and \"After this page …\"", page.path));
        }
        if name.starts_with("concepts/") && !has_picture(&page.text) {
            findings.push(format!("{}: show the concept in a picture, with what it shows as its text", page.path));
        }
    }
    findings
}

fn begins_with_its_result(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.is_empty());
    let has_title = lines.next().is_some_and(|line| line.starts_with("# "));
    has_title && lines.next().is_some_and(|line| line.starts_with("After this page "))
}

/// Whether the page has a picture with a text for readers who do not see it. The text may be several lines long.
fn has_picture(text: &str) -> bool {
    let pictures = text.split("\n![").skip(1).filter_map(|rest| rest.split_once("]("));
    pictures.filter(|(shown, _)| !shown.is_empty()).any(|(_, target)| target.split(')').next().is_some_and(is_drawn))
}

/// Whether the file is a drawing, which is text.
fn is_drawn(target: &str) -> bool {
    Path::new(target).extension().is_some_and(|it| it == "svg")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn concepts_without_a_picture_are_found() {
        let summary = file(SUMMARY, "- [A](concepts/a.md)\n");
        let found = |picture: &str| {
            let page = file("docs/book/src/concepts/a.md", &format!("# A\n\nAfter this page you know.\n\n{picture}\n"));
            check(&[&summary, &page]).len()
        };
        assert_eq!(found("![It goes\nround](a.svg)"), 0);
        for picture in ["", "![](a.svg)", "![Photo](a.png)", "[Link](a.svg)"] {
            assert_eq!(found(picture), 1, "{picture}");
        }
    }

    #[test]
    fn unlisted_pages_and_pages_without_a_result_are_found() {
        let good = "# A\n\nAfter this page you can test.\n";
        let files = [
            file(SUMMARY, "# Summary\n\n- [A](a.md)\n- [B](how-to/b.md)\n"),
            file("docs/book/src/a.md", good),
            file("docs/book/src/how-to/b.md", "# B\n\nText.\n"),
            file("docs/book/src/b.md", good),
        ];
        let found = check(&files.iter().collect::<Vec<_>>());
        assert!(
            matches!(&*found, [silent, unlisted] if silent.starts_with("docs/book/src/how-to/b.md: begin with")
                && unlisted.starts_with("docs/book/src/b.md: SUMMARY.md")),
            "{found:?}"
        );
    }
}
