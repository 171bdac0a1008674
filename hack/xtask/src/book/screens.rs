//! The pages of the finished book in a real browser: on a narrow and on a wide screen, in light and in dark colours.

use std::path::Path;

use anyhow::{Context as _, Result};
use browser::{Browser, READABLE};

/// The colours that a reader may prefer.
const SCHEMES: &[&str] = &["light", "dark"];
/// The widths of a phone and of a window, in pixels.
const WIDTHS: &[u32] = &[360, 1280];
/// Selects the text of a page, without the frame that mdBook puts around it.
const TEXT: &str = "main *";
/// The pictures of the page that the browser could not show.
const BROKEN: &str = "[...document.images].filter(it => !it.naturalWidth).map(it => it.getAttribute('src'))";

/// Opens these pages of the folder. Returns a line for each fault, with the page, the colours and the width.
pub(super) fn check(browser: &Browser, folder: &Path, pages: &[String]) -> Result<Vec<String>> {
    let folder = folder.canonicalize().with_context(|| format!("{} does not exist", folder.display()))?;
    let mut findings = Vec::new();
    for scheme in SCHEMES {
        browser.scheme(scheme)?;
        for width in WIDTHS {
            browser.width(*width)?;
            for page in pages {
                browser.open(&format!("file://{}/{page}", folder.display()))?;
                let faults = faults(browser).with_context(|| format!("could not look at {page}"))?;
                findings.extend(faults.iter().map(|fault| format!("{page}, {scheme}, {width} pixels wide: {fault}")));
                browser.picture(&format!("{}-{scheme}-{width}", page.replace('/', "-")))?;
            }
        }
    }
    Ok(findings)
}

/// What is wrong with the page that the browser shows.
fn faults(browser: &Browser) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let overflow = browser.overflow()?;
    if overflow > 0 {
        faults.push(format!("it is {overflow} pixels wider than the screen"));
    }
    let (contrast, text) = browser.contrast(TEXT)?;
    if text.is_empty() {
        faults.push("it shows no text".to_owned());
    } else if contrast < READABLE {
        faults.push(format!("the contrast of \"{text}\" is {contrast:.2}, less than {READABLE}"));
    }
    let broken = browser.value(BROKEN)?;
    faults.extend(broken.as_array().into_iter().flatten().map(|source| format!("the picture {source} is missing")));
    faults.extend(browser.log()?.iter().map(|entry| format!("the browser reports {}", entry["message"])));
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_a_page_is_found() {
        let Some(browser) = Browser::start().unwrap() else { return skip::lacking(browser::MISSING) };
        let folder = tempfile::tempdir().unwrap();
        let page = |name: &str, body: &str| {
            let style = "<meta charset=utf-8><style>body { background: #fff; color: #000 }</style>";
            std::fs::write(folder.path().join(name), format!("{style}<main>{body}</main>")).unwrap();
            check(&browser, folder.path(), &[name.to_owned()]).unwrap()
        };
        assert_eq!(page("good.html", "<p>Text"), Vec::<String>::new());
        for (body, count, fault) in [
            ("", 4, "light, 360 pixels wide: it shows no text"),
            ("<div style='width: 500px'>Wide</div>", 2, "light, 360 pixels wide: it is"),
            ("<p style='color: #999'>Grey", 4, "light, 360 pixels wide: the contrast of \"Grey\" is 2.85"),
            ("<p>Text<script>console.error('no')</script>", 4, "light, 360 pixels wide: the browser reports"),
        ] {
            let findings = page("bad.html", body);
            let first = findings.first().map(String::as_str).unwrap_or_default();
            assert!(findings.len() == count && first.contains(fault), "{body}: {findings:?}");
        }
        // The log has the missing file too.
        let findings = page("picture.html", "<p>Text<img src=none.svg>");
        assert!(findings.iter().any(|it| it.ends_with("the picture \"none.svg\" is missing")), "{findings:?}");
    }
}
