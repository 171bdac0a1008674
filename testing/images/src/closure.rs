//! The shared libraries that a program needs at run time, and the loader that finds them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::Layer;

/// Adds the loader and the libraries of `program` to a layer, at the paths where the loader looks for them. Libraries below one
/// of `roots` (unpacked packages) take precedence over this machine's. A static program adds nothing.
pub fn add(layer: &mut Layer, program: &Path, roots: &[PathBuf]) -> Result<()> {
    for (path, source) in libraries(program, roots)? {
        layer.copy(&path, &source, 0o755)?;
    }
    Ok(())
}

/// The libraries: a map from the path in the image to the file on this machine.
fn libraries(program: &Path, roots: &[PathBuf]) -> Result<BTreeMap<String, PathBuf>> {
    let folders: Vec<PathBuf> = roots.iter().flat_map(|root| library_folders(root)).collect();
    let mut ldd = Command::new("ldd");
    ldd.arg(program).env("LC_ALL", "C").env("LD_LIBRARY_PATH", std::env::join_paths(folders)?);
    let output = ldd.output().context("could not run ldd, which comes with the C library")?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if is_static(&out) || is_static(&err) {
        return Ok(BTreeMap::new());
    }
    if !output.status.success() {
        bail!("ldd {} failed: {}", program.display(), err.trim());
    }
    let found = parse(&out).with_context(|| format!("could not find the libraries of {}", program.display()))?;
    Ok(found.into_iter().map(|path| (in_image(&path, roots), path)).collect())
}

/// The folders below `root` in which Debian packages have libraries.
fn library_folders(root: &Path) -> Vec<PathBuf> {
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    ["usr/lib", "lib"].iter().flat_map(|lib| [root.join(lib).join(&triplet), root.join(lib)]).collect()
}

fn is_static(text: &str) -> bool {
    text.contains("statically linked") || text.contains("not a dynamic executable")
}

/// The paths in ldd's output.
fn parse(output: &str) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for line in output.lines().map(str::trim) {
        let path = match line.split_once(" => ") {
            Some((name, "not found")) => {
                bail!("{name} is not on this machine and not in the unpacked packages")
            }
            Some((_, path)) => path,
            // The loader, or the kernel's linux-vdso.so.1, which is not a file.
            None => line,
        };
        let path = path.split(" (").next().unwrap_or_default();
        if path.starts_with('/') {
            paths.push(PathBuf::from(path));
        }
    }
    Ok(paths)
}

/// The path in the image for a library that the loader found at `path` on this machine.
fn in_image(path: &Path, roots: &[PathBuf]) -> String {
    let inside = roots.iter().find_map(|root| path.strip_prefix(root).ok()).unwrap_or(path);
    format!("/{}", inside.display().to_string().trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LDD: &str = "\tlinux-vdso.so.1 (0x00007ff5377b4000)
\tlibevent-2.1.so.7 => /cache/libevent/usr/lib/x86_64-linux-gnu/libevent-2.1.so.7 (0x00007ff5376ef000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007ff536e1e000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007ff5377b6000)";

    #[test]
    fn libraries_and_loader_keep_their_paths() {
        let roots = [PathBuf::from("/cache/libevent")];
        let places: Vec<_> = parse(LDD).unwrap().iter().map(|path| in_image(path, &roots)).collect();
        assert_eq!(
            places,
            [
                "/usr/lib/x86_64-linux-gnu/libevent-2.1.so.7",
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib64/ld-linux-x86-64.so.2"
            ]
        );
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = parse("\tlibevent-2.1.so.7 => not found").unwrap_err();
        assert!(error.to_string().starts_with("libevent-2.1.so.7 is not on this machine"));
    }
}
