//! Builds a tool from its Go module.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::catalogue::{FLAGS, Output, Recipe};
use super::{Lock, Tool, cache, host, key, sources};
use crate::missing::{Missing, last_line, program, require};
use crate::progress::{Event, Progress, TICK};

/// The time limit of a build; it is longer than any build takes on a slow machine.
const PATIENCE: Duration = Duration::from_hours(1);

/// Checks that the machine has everything to build `tools`.
pub(super) fn prepare(tools: &[Tool]) -> Result<()> {
    if tools.iter().any(|tool| tool.recipe().is_some()) && program("go").is_none() {
        let names: Vec<_> = tools.iter().map(|tool| tool.name()).collect();
        let advice = "install Go (https://go.dev/dl), or point OPERATORS_TOOLS at a folder with the finished programs";
        return Err(Missing(format!("Go is missing, which builds {}: {advice}", names.join(", "))).into());
    }
    if tools.iter().any(|tool| tool.recipe().is_some_and(|recipe| recipe.seccomp)) {
        require("cc", "gcc (runc is linked with libseccomp)")?;
        host::libseccomp()?;
    }
    Ok(())
}

/// The folder with the finished build of this recipe, if there is one.
pub(super) fn finished(recipe: &Recipe) -> Result<Option<PathBuf>> {
    let folder = folder(recipe)?;
    if folder.is_dir() {
        return Ok(Some(folder));
    }
    if program("go").is_some() {
        return Ok(None);
    }
    // Without Go, the release of Go in the folder's name is unknown, so any build of the same sources is accepted.
    let prefix = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let entries = fs::read_dir(cache()).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    Ok(entries.filter(|path| is_complete_build(path, &prefix)).max())
}

/// Builds the tool, or waits for another call that builds it. The folder appears only when the build is complete.
pub(super) fn build(tool: Tool, (n, of): (usize, usize), progress: Progress<'_>) -> Result<PathBuf> {
    let begun = Instant::now();
    let what = format!("building {}", tool.name());
    let tick = || progress(Event::Working { what: &what, n, of, elapsed: begun.elapsed() });
    tick();
    let lock = cache().join(format!("{}.lock", tool.name()));
    let _lock = Lock::acquire(&lock, &what, PATIENCE, progress)?;

    let folder = match tool.recipe() {
        None => host::unpack_nft()?,
        Some(recipe) => {
            let folder = folder(recipe)?;
            if !folder.is_dir() {
                let partial = folder.with_extension("partial");
                compile(recipe, &partial, &tick).with_context(|| format!("could not build {}", tool.name()))?;
                fs::rename(&partial, &folder).with_context(|| format!("could not create {}", folder.display()))?;
            }
            folder
        }
    };
    progress(Event::Done { what: &what, n, of, elapsed: begun.elapsed() });
    Ok(folder)
}

fn folder(recipe: &Recipe) -> Result<PathBuf> {
    let key = key::source_key(&sources().join(recipe.module), recipe)?;
    Ok(cache().join(format!("{}-{key}-{}", recipe.module, go_version(recipe))))
}

fn is_complete_build(path: &Path, prefix: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.is_dir() && name.starts_with(prefix) && path.extension().is_none_or(|extension| extension != "partial")
}

/// The Go release that builds this module, such as "go1.26.8". It may be newer than the installed one, if `go.mod` requires that.
/// Empty without Go.
fn go_version(recipe: &Recipe) -> String {
    let output = go(recipe).args(["env", "GOVERSION"]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().replace('.', "_")).unwrap_or_default()
}

fn compile(recipe: &Recipe, into: &Path, tick: &dyn Fn()) -> Result<()> {
    if into.exists() {
        fs::remove_dir_all(into).context("could not remove the files of an interrupted build")?;
    }
    fs::create_dir_all(into).with_context(|| format!("could not create {}", into.display()))?;
    let go_mod = fs::read_to_string(sources().join(recipe.module).join("go.mod"))?;
    for output in recipe.outputs {
        let mut command = go(recipe);
        command.arg("build").args(FLAGS).args(["-tags", output.tags]);
        command.args(["-ldflags", &ldflags(recipe, output, &go_mod)?]).arg("-o").arg(into.join(output.binary));
        if recipe.seccomp {
            command.env("CGO_ENABLED", "1").envs(host::libseccomp()?);
        }
        run(command.arg(output.package), &into.join("build.log"), tick)?;
    }
    for link in recipe.links {
        std::os::unix::fs::symlink(recipe.outputs[0].binary, into.join(link))?;
    }
    Ok(fs::remove_file(into.join("build.log"))?)
}

/// A `go` command in the module's folder, without the user's settings that would change the build.
fn go(recipe: &Recipe) -> Command {
    let mut command = Command::new(program("go").unwrap_or_else(|| "go".into()));
    command.current_dir(sources().join(recipe.module)).stdin(Stdio::null());
    command.env("CGO_ENABLED", "0").env("GOWORK", "off").env_remove("GOFLAGS");
    command
}

/// The folder with the sources of a module that the recipe's `go.mod` requires.
pub(super) fn module_folder(recipe: &Recipe, module: &str) -> Result<PathBuf> {
    let go_mod = fs::read_to_string(sources().join(recipe.module).join("go.mod"))?;
    let version = key::version_of(&go_mod, module).with_context(|| format!("go.mod does not require {module}"))?;
    let output = go(recipe).args(["mod", "download", "-json", &format!("{module}@{version}")]).output();
    let output = output.context("could not start go")?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let folder = answer["Dir"].as_str().map(PathBuf::from);
    folder.with_context(|| {
        let why = answer["Error"].as_str().map_or_else(|| last_line(&output.stderr), str::to_owned);
        format!("could not download {module}: {why}")
    })
}

fn ldflags(recipe: &Recipe, output: &Output, go_mod: &str) -> Result<String> {
    let mut flags = format!("-s -w {}", output.ldflags).trim_end().to_owned();
    if let Some(upstream) = recipe.upstream {
        let version =
            key::version_of(go_mod, upstream).with_context(|| format!("go.mod does not require {upstream}"))?;
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        flags = flags.replace("{version}", version).replace("{major}", major).replace("{minor}", minor);
    }
    if flags.contains("{kube-minor}") {
        let client_go = key::version_of(go_mod, "k8s.io/client-go").context("go.mod does not require client-go")?;
        flags = flags.replace("{kube-minor}", client_go.split('.').nth(1).unwrap_or_default());
    }
    Ok(flags)
}

/// Runs the command to its end. Its output goes to `log`, for the error message.
fn run(command: &mut Command, log: &Path, tick: &dyn Fn()) -> Result<()> {
    let file = File::create(log).with_context(|| format!("could not create {}", log.display()))?;
    let mut child = command.stdout(file.try_clone()?).stderr(file).spawn().context("could not start go")?;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            let said = fs::read(log).unwrap_or_default();
            bail!("go build: {} (full log: {})", last_line(&said), log.display());
        }
        std::thread::sleep(TICK);
        tick();
    }
    child.kill()?;
    child.wait()?;
    bail!("go build took more than {} minutes", PATIENCE.as_secs() / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldflags_contain_versions() {
        let go_mod = "require helm.sh/helm/v3 v3.22.0\nrequire k8s.io/client-go v0.37.1\n";
        let helm3 = Tool::Helm3.recipe().unwrap();
        let flags = ldflags(helm3, &helm3.outputs[0], go_mod).unwrap();
        assert!(flags.contains("version.version=v3.22.0"), "{flags}");
        assert!(flags.contains("chartutil.k8sVersionMinor=37"), "{flags}");
        assert!(!flags.contains('{'), "{flags}");
    }

    #[test]
    fn failed_build_reports_its_output() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        let error = run(command.args(["-c", "echo no such module; exit 1"]), &folder.path().join("log"), &|| {});
        assert!(format!("{:#}", error.unwrap_err()).contains("no such module"));
    }
}
