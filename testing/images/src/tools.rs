//! The tools of a build: other versions of them may make another program of the same sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sbom::Component;

/// A compiler, or a package with code that it links.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tool {
    /// The name.
    pub name: String,
    /// The name and the version as the address of a package, such as `pkg:generic/rust@1.95.0`.
    pub uri: String,
}

/// The questions by which a C compiler says where its parts are: itself, its assembler and linker, and the libraries that it adds to a
/// static program.
const PARTS: &[&str] = &[
    "-print-prog-name=cc1",
    "-print-prog-name=as",
    "-print-prog-name=ld",
    "-print-file-name=libc.a",
    "-print-libgcc-file-name",
];

/// The tools that brought these libraries into a program, by the versions of their authors. On Debian and Ubuntu also the packages of
/// `linker`, the C compiler: a fix of security changes the package, but not the version of the authors.
pub(crate) fn of(components: &[Component], linker: &str) -> Vec<Tool> {
    let libraries = components.iter().filter(|component| component.vendor.is_some());
    let mut tools: BTreeSet<_> =
        libraries.map(|library| Tool { name: library.name.clone(), uri: library.address() }).collect();
    let distribution = fs::read_to_string("/etc/os-release").map(|text| distribution(&text)).unwrap_or_default();
    tools.extend(PARTS.iter().copied().filter_map(|part| package(&file(&said(linker, &[part])?)?, &distribution)));
    tools.into_iter().collect()
}

/// The file that a compiler names by its path, or by its name on the PATH; `None` if it does not exist.
fn file(name: &str) -> Option<PathBuf> {
    let name = Path::new(name.trim_end());
    let path = std::env::var_os("PATH").unwrap_or_default();
    // What follows an absolute path replaces what is before it.
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(name));
    files.find(|file| file.is_file())?.canonicalize().ok()
}

/// The package with this file; `None` without packages of Debian.
fn package(file: &Path, distribution: &str) -> Option<Tool> {
    let found = said("dpkg-query", &["--search", file.to_str()?])?;
    let (owner, _) = found.lines().last()?.rsplit_once(": ")?;
    let shown = said("dpkg-query", &["--show", "--showformat=${Package} ${Version} ${Architecture}", owner])?;
    of_package(&shown, distribution)
}

fn of_package(shown: &str, distribution: &str) -> Option<Tool> {
    let mut words = shown.split_whitespace();
    let (name, version, architecture) = (words.next()?, words.next()?, words.next()?);
    let version = version.replace('+', "%2B");
    Some(Tool { name: name.to_owned(), uri: format!("pkg:deb/{distribution}/{name}@{version}?arch={architecture}") })
}

/// The `ID` in `/etc/os-release`.
fn distribution(release: &str) -> String {
    let id = release.lines().find_map(|line| line.strip_prefix("ID="));
    id.unwrap_or("debian").trim_matches('"').to_owned()
}

/// What a program writes; `None` if it fails or does not exist.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(name: &str, vendor: Option<&'static str>) -> Component {
        let (version, license) = ("1.2.3".to_owned(), "MIT".to_owned());
        Component { name: name.to_owned(), version, license, sha256: None, vendor }
    }

    #[test]
    fn compilers_are_tools_and_crates_are_none() {
        let tools = of(&[component("serde", None), component("rust", Some("rust-lang"))], "no-such-compiler");
        assert_eq!(tools, [Tool { name: "rust".to_owned(), uri: "pkg:generic/rust@1.2.3".to_owned() }]);
    }

    #[test]
    fn package_of_debian_has_an_address_with_its_whole_version() {
        let tool = of_package("libc6-dev 2.36-9+deb12u14 amd64", "debian").unwrap();
        assert_eq!(tool.uri, "pkg:deb/debian/libc6-dev@2.36-9%2Bdeb12u14?arch=amd64");
        assert_eq!(of_package("", "debian"), None);
        assert_eq!(distribution("NAME=\"Ubuntu\"\nID=ubuntu\nID_LIKE=debian\n"), "ubuntu");
        assert_eq!(distribution("ID=\"debian\"\n"), "debian");
    }

    #[test]
    fn packages_with_the_compiler_and_with_the_c_library_are_named() {
        if said("dpkg-query", &["--version"]).is_none() {
            return skip::lacking("dpkg-query is missing: this is no Debian");
        }
        let tools = of(&[], "cc");
        for part in ["cpp-", "binutils", "libc6-dev", "libgcc-"] {
            assert!(tools.iter().any(|tool| tool.name.starts_with(part)), "{part}: {tools:?}");
        }
    }

    #[test]
    fn file_is_found_by_its_path_and_on_the_path() {
        let shell = Path::new("/bin/sh").canonicalize().unwrap();
        assert_eq!((file("/bin/../bin/sh\n"), file("sh")), (Some(shell.clone()), Some(shell)));
        assert_eq!(file("libc.a"), None, "a compiler without this library prints only its name");
    }
}
