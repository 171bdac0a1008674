//! The Dockerfile of a new project fits the project, as far as the files show: no test builds it, because that needs Docker.

use std::collections::BTreeSet;
use std::fs;

use super::{Source, files};
use crate::scaffold;
use crate::workspace::{self, File};

/// The folder of the only crate, which is also the name of its package and of its program.
const CRATE: &str = "store-operator";

fn project() -> Vec<File> {
    let names = scaffold::tests::names("store", "Entry", "x.org").expect("names");
    files(&names, &Source::Checkout).expect("the files of a project")
}

fn text<'a>(files: &'a [File], path: &str) -> &'a str {
    &files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("there is no {path}")).text
}

/// The instructions of a Dockerfile, each in one line, without comments.
fn instructions(dockerfile: &str) -> Vec<String> {
    let is_code = |line: &&str| !line.trim_start().starts_with('#');
    let code = dockerfile.lines().filter(is_code).collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let lines = code.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).collect()
}

/// The only instruction that begins so.
fn one<'a>(instructions: &'a [String], start: &str) -> &'a str {
    let found: Vec<&String> = instructions.iter().filter(|it| it.starts_with(start)).collect();
    let [one] = found.as_slice() else { panic!("not one instruction begins with {start}: {instructions:#?}") };
    one.as_str()
}

/// The word after this flag.
fn value<'a>(instruction: &'a str, flag: &str) -> &'a str {
    let mut words = instruction.split(' ').skip_while(|word| *word != flag);
    words.nth(1).unwrap_or_else(|| panic!("no {flag} in {instruction}"))
}

#[test]
fn docker_gets_exactly_what_the_build_reads() {
    let project = project();
    let ignored = text(&project, ".dockerignore");
    let rules: Vec<&str> = ignored.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert_eq!((rules.first(), rules.last()), (Some(&"*"), Some(&"**/target")), "the last rule wins");
    let sent: BTreeSet<&str> = rules.iter().filter_map(|rule| rule.strip_prefix('!')).collect();
    let manifest = text(&project, "Cargo.toml");
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).expect("the members");
    let members: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
    assert_eq!(members, [CRATE]);
    let expected: BTreeSet<&str> = ["Cargo.lock", "Cargo.toml"].into_iter().chain(members).collect();
    assert_eq!(sent, expected, "no rust-toolchain.toml");
    for path in sent {
        let is_there = |file: &File| file.path == path || file.path.starts_with(&format!("{path}/"));
        assert!(project.iter().any(is_there), "the project has no {path}");
    }
    for File { path, text } in project.iter().filter(|file| file.folder() == format!("{CRATE}/src")) {
        assert!(!text.contains("include_str!(\"../../"), "{path} reads a file that Docker does not get");
    }
}

#[test]
fn docker_builds_and_runs_the_program_of_the_crate() {
    let project = project();
    let manifest = text(&project, &format!("{CRATE}/Cargo.toml"));
    assert!(manifest.contains(&format!("\nname = \"{CRATE}\"\n")) && !manifest.contains("[[bin]]"), "{manifest}");
    assert!(text(&project, &format!("{CRATE}/src/main.rs")).contains("fn main()"));

    let instructions = instructions(text(&project, "Dockerfile"));
    let build = one(&instructions, "RUN ");
    assert_eq!([value(build, "--package"), value(build, "--bin")], [CRATE, CRATE]);
    let copy = format!("install -D \"target/$target/release/{CRATE}\" /image/{CRATE} ");
    assert!(build.contains("--target \"$target\" ") && build.contains(&copy), "{build}");
    assert!(build.contains(" --locked "), "an image has the versions that the tests had");
    let sources = one(&instructions, "WORKDIR ").trim_start_matches("WORKDIR ");
    // What cargo keeps for the next build. Docker gets the runtime from Git alone.
    for folder in ["/usr/local/cargo/registry", "/usr/local/cargo/git", &format!("{sources}/target")] {
        assert!(build.contains(&format!("--mount=type=cache,target={folder} ")), "{folder}: {build}");
    }
    assert_eq!(one(&instructions, "COPY --from="), "COPY --from=build /image /");
    assert_eq!(one(&instructions, "ENTRYPOINT "), format!("ENTRYPOINT [\"/{CRATE}\"]"));
}

#[test]
fn image_has_the_settings_of_the_image_of_this_repository() {
    let project = project();
    let of_project = instructions(text(&project, "Dockerfile"));
    let ours = fs::read_to_string(workspace::root().join("Dockerfile")).expect("the Dockerfile of this repository");
    let ours = instructions(&ours);
    for start in ["FROM rust:", "FROM scratch", "ENV RUSTFLAGS=", "ENV MALLOC_ARENA_MAX=", "USER "] {
        assert_eq!(one(&of_project, start), one(&ours, start));
    }
    let temporary = "mkdir -m 1777 /image/tmp";
    assert!([&of_project, &ours].iter().all(|it| it.iter().any(|it| it.contains(temporary))), "{of_project:#?}");
    let user = one(&of_project, "USER ").trim_start_matches("USER ");
    let (user, group) = user.split_once(':').expect("a user and a group");
    let values = text(&project, &format!("charts/{CRATE}/values.yaml"));
    for line in [format!("  runAsUser: {user}\n"), format!("  runAsGroup: {group}\n")] {
        assert!(values.contains(&line), "the chart runs the image as another user than {line}");
    }
}
