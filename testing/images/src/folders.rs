//! Keeps the folders of this machine out of compiled programs. So the same sources give the same program in each folder.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::cargo::rustc;

/// Folders whose names a compiler would write into a program, with the names that it shall write instead. If several contain a
/// file, the last one counts, as for rustc and gcc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folders {
    renamed: Vec<(String, String)>,
}

impl Folders {
    /// The folders of a build in this workspace: its own, the one where cargo keeps the sources of crates, and those of the compiler.
    pub(crate) fn of(workspace: &Path) -> Result<Self> {
        // As cargo itself sees it, which runs there.
        let workspace = workspace.canonicalize().with_context(|| format!("there is no {}", workspace.display()))?;
        let sysroot = rustc(&workspace, &["--print", "sysroot"])?;
        let sources = sources_of_library(&rustc(&workspace, &["--version", "--verbose"])?)?;
        Self::new(&workspace, &cargo_home(&workspace)?, Path::new(sysroot.trim_end()), &sources)
    }

    /// `sources` is the name that rustc itself gives to the sources of the standard library.
    fn new(workspace: &Path, home: &Path, sysroot: &Path, sources: &str) -> Result<Self> {
        let compiler = sysroot.join("lib/rustlib"); // not the sysroot itself, which may be /usr
        let mut folders = vec![
            (workspace.to_owned(), "/workspace"),
            (home.to_owned(), "/cargo"),
            (compiler.clone(), "/rustlib"),
            // If the component `rust-src` is installed, rustc names the sources of the standard library by this folder.
            (compiler.join("src/rust"), sources),
        ];
        // The last part of the name depends on where the registry's index comes from. Without the folder nothing is fetched yet.
        let registries = std::fs::read_dir(home.join("registry/src")).into_iter().flatten();
        let mut registries: Vec<PathBuf> = registries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        registries.sort_unstable();
        folders.extend(registries.into_iter().map(|folder| (folder, "/crates")));
        let text = |(folder, name): (PathBuf, &str)| {
            let folder = folder.into_os_string().into_string();
            Ok((folder.map_err(|folder| anyhow::anyhow!("{} is not UTF-8", folder.display()))?, name.to_owned()))
        };
        Ok(Self { renamed: folders.into_iter().map(text).collect::<Result<_>>()? })
    }

    /// The arguments of rustc.
    pub(crate) fn rustc(&self) -> impl Iterator<Item = String> {
        self.renamed.iter().map(|(folder, name)| format!("--remap-path-prefix={folder}={name}"))
    }

    /// The arguments of gcc, which compiles the C sources of some crates, quoted as for a shell.
    pub(crate) fn gcc(&self) -> Result<String> {
        let arguments: Vec<_> =
            self.renamed.iter().map(|(folder, name)| format!("-ffile-prefix-map={folder}={name}")).collect();
        Ok(shlex::try_join(arguments.iter().map(String::as_str))?)
    }

    /// Checks that a program names none of the folders.
    pub(crate) fn check(&self, program: &Path) -> Result<()> {
        let content = std::fs::read(program).with_context(|| format!("could not read {}", program.display()))?;
        // In a container, a folder may have the very name that replaces it elsewhere.
        for (folder, _) in self.renamed.iter().filter(|(folder, name)| folder != name) {
            let at = memchr::memmem::find(&content, format!("{folder}/").as_bytes());
            ensure!(
                at.is_none(),
                "{} names {folder} of this machine, so the same sources would give another program elsewhere: {}",
                program.display(),
                around(&content, at.unwrap_or_default())
            );
        }
        Ok(())
    }
}

/// The folder where cargo keeps the sources of crates and the settings of this user.
pub(crate) fn cargo_home(workspace: &Path) -> Result<PathBuf> {
    match std::env::var_os("CARGO_HOME").filter(|home| !home.is_empty()) {
        Some(home) => Ok(workspace.join(home)),
        None => Ok(std::env::home_dir().context("this user has no home, so set CARGO_HOME")?.join(".cargo")),
    }
}

/// The name under which rustc with this `--version --verbose` knows the sources of the standard library. If a folder is renamed to
/// exactly this, programs are the same with and without the component `rust-src`.
fn sources_of_library(version: &str) -> Result<String> {
    let value = |key: &str| version.lines().find_map(|line| line.strip_prefix(key));
    // A compiler of a distribution may know no commit.
    let commit = value("commit-hash: ").filter(|commit| *commit != "unknown");
    let name = commit.or_else(|| value("release: ")).context("rustc names neither its commit nor its release")?;
    Ok(format!("/rustc/{name}"))
}

/// The printable text that begins at this byte.
fn around(content: &[u8], at: usize) -> String {
    let text = content.iter().skip(at).take(200).take_while(|byte| byte.is_ascii_graphic());
    text.map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_with_the_sources_of_crates_has_one_name_for_every_registry() {
        let home = tempfile::tempdir().unwrap();
        let registry = home.path().join("registry/src/a mirror-1949cf8c");
        std::fs::create_dir_all(&registry).unwrap();
        let folders = Folders::new(Path::new("/a"), home.path(), Path::new("/tools"), "/rustc/ab").unwrap();
        let arguments: Vec<_> = folders.rustc().collect();
        let (home, registry) = (home.path().display(), registry.display());
        let expected = [
            "/a=/workspace".to_owned(),
            format!("{home}=/cargo"),
            "/tools/lib/rustlib=/rustlib".to_owned(),
            "/tools/lib/rustlib/src/rust=/rustc/ab".to_owned(),
            format!("{registry}=/crates"),
        ];
        assert_eq!(arguments, expected.map(|renamed| format!("--remap-path-prefix={renamed}")));
        let gcc = shlex::split(&folders.gcc().unwrap()).unwrap();
        assert_eq!(gcc.last().unwrap(), &format!("-ffile-prefix-map={registry}=/crates"));
    }

    #[test]
    fn program_that_names_a_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let check = |content: &str, workspace: &str| {
            std::fs::write(&program, content).unwrap();
            let folders = Folders::new(Path::new(workspace), folder.path(), Path::new("/usr"), "/rustc/ab").unwrap();
            folders.check(&program).map_err(|it| it.to_string())
        };
        let error = check("\0\x01/srv/team/target/out/code.rs\0more", "/srv/team").unwrap_err();
        assert!(error.ends_with("elsewhere: /srv/team/target/out/code.rs"), "{error}");
        assert_eq!(check("\0/srv/teams/code.rs\0", "/srv/team"), Ok(()));
        assert_eq!(check("\0/workspace/code.rs\0", "/workspace"), Ok(()), "as in a container");
        // A compiler of a distribution has the sysroot `/usr`. Of that, only the folder of the standard library comes from a build.
        let error = check("\0/usr/lib/rustlib/src/rust/library/core/src/str.rs\0", "/srv/team").unwrap_err();
        assert!(error.contains("names /usr/lib/rustlib of this machine"), "{error}");
        assert_eq!(check("\0/usr/share/zoneinfo\0/rustc/ab/library/core/src/str.rs\0", "/srv/team"), Ok(()));
    }

    #[test]
    fn sources_of_the_standard_library_have_the_name_that_rustc_gives_them() {
        let of = |commit: &str| sources_of_library(&format!("rustc 1.95.0\ncommit-hash: {commit}\nrelease: 1.95.0\n"));
        assert_eq!(of("59807616e1").unwrap(), "/rustc/59807616e1");
        assert_eq!(of("unknown").unwrap(), "/rustc/1.95.0", "as in a distribution");
        assert!(sources_of_library("rustc\n").is_err());
    }
}
