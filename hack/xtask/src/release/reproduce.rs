//! `cargo xtask reproduce`: builds a release twice, in two folders, and compares all that comes out. A difference would be a path, a
//! time or an order that got into it, or something that a build has put there which is not in the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use images::operator::{self, Variant};
use images::{Digest, Platform, Store};
use release::{check, export, layout};
use semver::Version;
use serde_json::Value;

use super::replica::{self, Replica, VERSION};
use super::{assemble, check_machine, variant};
use crate::report::{Counts, Outcome, Skips};
use crate::workspace;

/// The folders of the copies below [`folder`]. They differ in length and in depth.
const FOLDERS: [&str; 2] = ["one", "another/below"];
/// Where the release would go. Nothing is sent there.
const REGISTRY: &str = "registry.example.com/team";

/// Build a release twice, in two folders, and compare every file of it, the programs, the images and the chart
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The platforms to build for [default: those for which this machine has a compiler]
    #[arg(long, value_name = "PLATFORM", value_delimiter = ',')]
    platforms: Vec<Platform>,
    /// The profile of cargo for the programs; `dev` takes a fraction of the time
    #[arg(long, default_value = "release")]
    profile: String,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let platforms = if args.platforms.is_empty() {
        let (platforms, skips) = buildable()?;
        for line in skipped(&skips) {
            eprintln!("{line}");
        }
        platforms
    } else {
        check_machine(&args.platforms, |platform| operator::lacks(platform, workspace::root()), Vec::new())?;
        args.platforms
    };
    twice(&platforms, &args.profile)
}

/// The same for each platform, as users get it. Each platform counts as a test.
pub(crate) fn nightly() -> Result<Outcome> {
    let (platforms, skips) = buildable()?;
    if skip::in_ci() {
        ensure!(skips.is_empty(), "{}", skips.into_keys().collect::<Vec<_>>().join("; "));
    }
    twice(&platforms, "release")?;
    let skipped = skips.values().map(BTreeSet::len).sum();
    Ok(Outcome::Tests(Counts { passed: platforms.len(), failed: 0, skipped }, skips))
}

/// The platforms for which this machine can build, and the others by what it lacks.
fn buildable() -> Result<(Vec<Platform>, Skips)> {
    let (mut platforms, mut skips) = (Vec::new(), Skips::new());
    for platform in Platform::ALL {
        match operator::lacks(platform, workspace::root())? {
            Some(lacking) => {
                skips.entry(lacking).or_default().insert(format!("release for {platform}"));
            }
            None => platforms.push(platform),
        }
    }
    Ok((platforms, skips))
}

/// A line for each release that this machine cannot build.
fn skipped(skips: &Skips) -> Vec<String> {
    let lines = |(lacking, releases): (&String, &BTreeSet<String>)| -> Vec<String> {
        releases.iter().map(|release| format!("skipped the {release}: {lacking}")).collect()
    };
    skips.iter().flat_map(lines).collect()
}

/// The folder of both copies. After a difference it stays.
fn folder() -> PathBuf {
    workspace::root().join("target/reproduce")
}

fn twice(platforms: &[Platform], profile: &str) -> Result<()> {
    replica::clear(&folder())?;
    let version: Version = VERSION.parse().context("the version of the checkout")?;
    let [one, other] = FOLDERS.map(|name| folder().join(name));
    // Both before the builds, which take long: the checkout may change in the meantime.
    let (first, second) = (copy(&one, &version)?, copy(&other, &version)?);
    let build = |folder: &Path, replica: &Replica| build(folder, replica, &version, platforms, profile);
    let (one, other) = (build(&one, &first)?, build(&other, &second)?);
    let differences = differences(&one, &other);
    if !differences.is_empty() {
        bail!(
            "the same sources gave another release in another folder, see {}:\n{}",
            folder().display(),
            differences.join("\n")
        );
    }
    println!("{} files of the release are the same in both folders", one.len());
    replica::clear(&folder()) // some gigabytes
}

/// Copies the checkout into this folder, as the commit of this version.
fn copy(folder: &Path, version: &Version) -> Result<Replica> {
    let replica = Replica::new(folder.join("checkout"))?;
    replica.commit(version)?;
    Ok(replica)
}

/// Builds a release of the copy in this folder. Returns the digest of each file, by its name.
fn build(
    folder: &Path,
    replica: &Replica,
    version: &Version,
    platforms: &[Platform],
    profile: &str,
) -> Result<BTreeMap<String, Digest>> {
    let plan = replica.plan(version.clone(), REGISTRY, platforms, profile)?;
    let ready = check(&plan)?;
    let store = Store::open(folder.join("store"))?; // of its own: a common one would give the second build what the first one made
    let artifacts = assemble(&plan, &ready, &store)?;
    let exported = folder.join("layout");
    export(&artifacts, &store, &exported)?;
    let digests: Value = serde_json::from_slice(&fs::read(exported.join(layout::DIGESTS))?)?;
    println!("{}: the image is {}, the chart is {}", folder.display(), digests["image"], digests["chart"]);
    let (mut made, mut programs) = (BTreeMap::new(), Vec::new());
    let version = version.to_string();
    // The programs too: their names say more than the digest of a layer.
    for platform in platforms {
        let variant: Variant<'_> = variant(*platform, &plan, &ready, &version);
        for program in operator::programs(&plan.checkout, variant)? {
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            made.insert(format!("program {name} for {platform}"), digest(&program)?);
            programs.push(program);
        }
    }
    keep_only(&programs, &operator::folder(&plan.checkout), &folder.join("programs"))?;
    add(&mut made, "file", &plan.output)?;
    add(&mut made, "layout", &exported)?;
    Ok(made)
}

/// Moves the programs out of the folder of a build, and removes the folder: it takes gigabytes, and the next build as many.
fn keep_only(programs: &[PathBuf], build: &Path, kept: &Path) -> Result<()> {
    for program in programs {
        let to = kept.join(program.strip_prefix(build)?);
        fs::create_dir_all(to.parent().unwrap_or(kept))?;
        fs::rename(program, &to)
            .with_context(|| format!("could not move {} to {}", program.display(), to.display()))?;
    }
    replica::clear(build)
}

/// Adds each file of the folder and below.
fn add(made: &mut BTreeMap<String, Digest>, prefix: &str, folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("could not read {}", folder.display()))? {
        let entry = entry?;
        let name = format!("{prefix} {}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            add(made, &name, &entry.path())?;
        } else {
            made.insert(name, digest(&entry.path())?);
        }
    }
    Ok(())
}

fn digest(file: &Path) -> Result<Digest> {
    Ok(Digest::of(&fs::read(file).with_context(|| format!("could not read {}", file.display()))?))
}

/// A line for each file that is not the same in both; none if all are.
fn differences(one: &BTreeMap<String, Digest>, other: &BTreeMap<String, Digest>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, digest) in one {
        match other.get(name) {
            Some(same) if same == digest => {}
            Some(another) => lines.push(format!("{name}: {digest} and {another}")),
            None => lines.push(format!("{name}: only in the first folder")),
        }
    }
    let added = other.keys().filter(|name| !one.contains_key(*name));
    lines.extend(added.map(|name| format!("{name}: only in the second folder")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_that_differs_or_is_missing_is_named() {
        let files = |files: &[(&str, &str)]| -> BTreeMap<String, Digest> {
            files.iter().map(|(name, content)| ((*name).to_owned(), Digest::of(content.as_bytes()))).collect()
        };
        let one = files(&[("a", "1"), ("b", "2"), ("c", "3")]);
        assert_eq!(differences(&one, &one), Vec::<String>::new());
        let other = files(&[("a", "1"), ("b", "two"), ("d", "3")]);
        let found = differences(&one, &other);
        let expected = [
            format!("b: {} and {}", Digest::of(b"2"), Digest::of(b"two")),
            "c: only in the first folder".to_owned(),
            "d: only in the second folder".to_owned(),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn only_the_programs_of_a_build_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (build, kept) = (folder.path().join("build"), folder.path().join("kept"));
        let programs = ["amd64/dev/manager", "arm64/dev/manager"].map(|name| build.join(name));
        for file in programs.iter().chain([&build.join("amd64/dev/deps/manager.o")]) {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, file.to_str().unwrap()).unwrap();
        }
        keep_only(&programs, &build, &kept).unwrap();
        let mut files = BTreeMap::new();
        add(&mut files, "kept", &kept).unwrap();
        assert_eq!(files.into_keys().collect::<Vec<_>>(), ["kept amd64 dev manager", "kept arm64 dev manager"]);
        assert!(!build.exists());
    }

    #[test]
    fn platform_without_a_compiler_is_named() {
        let skips = Skips::from([("no compiler".to_owned(), BTreeSet::from(["release for linux/arm64".to_owned()]))]);
        assert_eq!(skipped(&skips), ["skipped the release for linux/arm64: no compiler"]);
        assert_eq!(skipped(&Skips::new()), Vec::<String>::new());
    }

    #[test]
    fn files_of_folders_below_are_compared_too() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("blobs/sha256")).unwrap();
        for name in ["index.json", "blobs/sha256/1"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let mut made = BTreeMap::new();
        add(&mut made, "layout", folder.path()).unwrap();
        assert_eq!(made.into_keys().collect::<Vec<_>>(), ["layout blobs sha256 1", "layout index.json"]);
    }
}
