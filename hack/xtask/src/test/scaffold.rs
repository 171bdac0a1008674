//! A new project outside of this workspace: the command of the tutorial writes it, the first change of the tutorial is made, the
//! project passes its own checks, with a real API server, and its chart is installed on a real node.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use chart::helm::succeeded;
use cluster::{Cluster, Nodes, Tool, Tools, progress};
use images::{ImageSpec, Layer, Reference, Store, closure, default_store};

use crate::new_project::{self, Source};
use crate::report::{Outcome, seconds};
use crate::scaffold::{Api, Names};
use crate::{tidy, workspace};

/// The tutorial. Its marked blocks are the commands that write a project, that which makes the first change, and those that check it.
const TUTORIAL: &str = include_str!("../../../../docs/book/src/new-project.md");
const MARK: &str = "<!-- tested by: hack/xtask/src/test/scaffold.rs check -->\n```sh\n";

/// The command of the tutorial names no operator, so its name is the kind in lower case.
const NAME: &str = "bicyclebell";
const KIND: &str = "BicycleBell";
const GROUP: &str = "shop.example.org";
const OPERATOR: &str = "bicyclebell-operator";
const NAMESPACE: &str = "bicyclebell-system";
/// The name of an operator need not be that of its kind.
const OTHER_NAME: &str = "parts";

/// The longest time from the command to the first acceptance tests that pass, as the book promises it, if cargo has compiled the same
/// dependencies and the same crates of this checkout before. A quiet machine needs about four minutes for the whole
/// check, of which this is a part. A nearer limit would fail on a busy machine. This one detects that a project no longer shares what
/// is compiled, or that a test waits for minutes; the printed line shows smaller changes.
const LIMIT: Duration = Duration::from_mins(5);
/// The files of a project that decide what cargo compiles beside it.
const DECIDE_THE_BUILD: [&str; 3] = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"];
/// The folders of the checkout with crates that a project uses.
const RUNTIME: [&str; 2] = ["shared/", "testing/"];

fn folder() -> PathBuf {
    workspace::root().join("target/scaffold/project")
}

/// What the last project that has passed this check was compiled from, see [`sources`].
fn compiled() -> PathBuf {
    workspace::root().join("target/scaffold/compiled")
}

/// What decides what cargo compiles for the project in this folder, beside its own code.
fn sources(folder: &Path) -> Result<String> {
    let read = |name: &&str| {
        let path = folder.join(name);
        fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))
    };
    let own: String = DECIDE_THE_BUILD.iter().map(read).collect::<Result<_>>()?;
    let mut runtime = DefaultHasher::new(); // a project takes these crates by path
    for file in workspace::files()?.iter().filter(|it| RUNTIME.iter().any(|folder| it.path.starts_with(folder))) {
        (&file.path, &file.text).hash(&mut runtime);
    }
    Ok(format!("{own}\nruntime: {:x}\n", runtime.finish()))
}

/// Runs a command in the project.
fn run(what: &str, command: &mut Command) -> Result<()> {
    eprintln!("{what}");
    command.current_dir(folder());
    command.env("CARGO_TARGET_DIR", workspace::root().join("target")); // shares what it builds alike
    workspace::run(command, &format!("{what} failed in {}, see above", folder().display()))
}

fn make(target: &str) -> Command {
    let mut make = workspace::command("make");
    make.arg(target);
    make
}

fn shell(script: &str) -> Command {
    let mut shell = workspace::command("sh");
    shell.args(["-euc", script]);
    shell
}

/// The commands in the marked blocks of the tutorial.
fn documented() -> Vec<Vec<&'static str>> {
    let blocks = TUTORIAL.split(MARK).skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(|block| block.lines().collect()).collect()
}

/// A command of the tutorial with the names of this project, and with the variables `CHECKOUT` and `PROJECT` in place of the
/// tutorial's folders.
///
/// # Errors
///
/// The command names another folder, which is not ours to change.
fn for_this_project(command: &str) -> Result<String> {
    let api = command.replace("--kind Note --group notes.example.com", &format!("--kind {KIND} --group {GROUP}"));
    let kind = api.replace("/Gadget/Note/", &format!("/Gadget/{KIND}/"));
    let name = kind.replace("/gadget/note/", &format!("/gadget/{NAME}/"));
    let command = name.replace("../operators/", "\"$CHECKOUT\"/").replace("../notes", "\"$PROJECT\"");
    ensure!(!command.contains("../"), "the tutorial names another folder than this check knows: {command}");
    Ok(command)
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("could not remove {}", folder.display()))?;
    }
    Ok(())
}

/// Runs the documented commands that write a project, and then its acceptance tests. Returns how long both took.
fn write(commands: &[&str]) -> Result<Duration> {
    let folder = folder();
    remove(&folder)?;
    let commands: Vec<String> = commands.iter().map(|command| for_this_project(command)).collect::<Result<_>>()?;
    let script = commands.join("\n");
    eprintln!("{script}");
    let begun = Instant::now();
    let mut shell = shell(&script); // in the checkout, as the tutorial says
    workspace::run(shell.env("PROJECT", &folder), "the command of the tutorial writes no project, see above")?;
    let mut tests = workspace::cargo();
    tests.args(["test", "--package", OPERATOR, "--test", "acceptance"]).env("CI", "true"); // a test that cannot run here fails
    run("acceptance tests of the new project", &mut tests)?;
    Ok(begun.elapsed())
}

/// Writes, changes and checks a project.
pub(super) fn check() -> Result<Outcome> {
    let folder = folder();
    let blocks: Option<[Vec<&str>; 3]> = documented().try_into().ok();
    let [commands, change, checks] =
        blocks.context("the tutorial has other blocks of commands than this check expects")?;
    let before = fs::read_to_string(compiled()).ok();
    let took = write(&commands)?;
    let sources = sources(&folder)?;
    let is_compiled = before.as_ref() == Some(&sources);
    let remark = if is_compiled { "" } else { ", which includes what is compiled once" };
    println!("from the command to acceptance tests that pass: {}{remark}", seconds(took));
    ensure!(
        !is_compiled || took < LIMIT,
        "the book promises acceptance tests that pass within {} after the command, if all else is compiled: they took {}",
        seconds(LIMIT),
        seconds(took)
    );
    let broken = tidy::broken_links(&workspace::files_in(&folder)?);
    ensure!(broken.is_empty(), "links of the new project lead nowhere:\n{}", broken.join("\n"));
    run("generated files of the new project", &mut make("check-generated"))?;
    for command in change {
        let mut shell = shell(&for_this_project(command)?);
        shell.env("CHECKOUT", workspace::root());
        shell.env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(&folder)); // not in the repository around the folder
        run(command, &mut shell)?;
    }
    for command in checks {
        run(command, &mut shell(command))?;
    }
    fs::write(compiled(), sources)?;
    Ok(Outcome::Passed)
}

/// Writes a project that takes the runtime from Git, from the last commit of this checkout, and checks it.
pub(crate) fn from_git() -> Result<Outcome> {
    let folder = workspace::root().join("target/scaffold/from-git");
    remove(&folder)?;
    let git = |arguments: &[&str]| -> Result<String> {
        let output = workspace::command("git").args(arguments).output().context("could not run git")?;
        ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let url = format!("file://{}", git(&["rev-parse", "--path-format=absolute", "--git-common-dir"])?);
    let commit = Some(git(&["rev-parse", "HEAD"])?);
    let names = Names::new(Some(OTHER_NAME), &Api::new(KIND, GROUP))?;
    new_project::write(&folder, &names, &Source::Git { url, commit })?;
    eprintln!("make test");
    let mut make = make("test");
    make.current_dir(&folder).env("CARGO_TARGET_DIR", workspace::root().join("target"));
    workspace::run(&mut make, &format!("make test failed in {}, see above", folder.display()))?;
    Ok(Outcome::Passed)
}

/// Installs the project on a real node with its own Makefile, waits until its sample is ready, and uses the field that the first
/// change has added.
pub(super) fn install() -> Result<Outcome> {
    let cluster = match Cluster::fresh(Nodes::Real) {
        Ok(cluster) => cluster,
        Err(error) => return Ok(Outcome::without(&error)),
    };
    let image = image()?;
    let helm = Tools::locate_or_build(&[Tool::Helm], &progress::to_stderr)?;
    let path = helm.path(Some(cluster.tools().path(std::env::var_os("PATH"))));
    for namespaces in ["watchNamespaces={}", "watchNamespaces={one,other}"] {
        let mut lint = workspace::command(helm.binary("helm")?);
        lint.args(["lint", "--strict", &format!("charts/{OPERATOR}"), "--set", namespaces]);
        run(&format!("helm lint, {namespaces}"), &mut lint)?;
    }
    succeeded(&mut cluster.kubectl(["create", "namespace", NAMESPACE]))?;
    let enforced = "pod-security.kubernetes.io/enforce=restricted";
    succeeded(&mut cluster.kubectl(["label", "namespace", NAMESPACE, enforced]))?;
    let project_make = |target: &str| {
        let mut make = cluster.exec("make");
        make.env("PATH", &path).args([target, &format!("IMG={image}"), &format!("NAMESPACE={NAMESPACE}")]);
        run(&format!("make {target}"), &mut make)
    };
    project_make("install")?;
    project_make("deploy")?;
    // Both take the definition over from each other, also if it has changed.
    let definition = folder().join(format!("charts/{OPERATOR}/files/crds.yaml"));
    let old = fs::read_to_string(&definition)?;
    let new = old.replace("A text in a ConfigMap.", "Another description.");
    ensure!(new != old, "the definition has another description than this check changes");
    fs::write(&definition, new)?;
    project_make("install")?;
    fs::write(&definition, old)?;
    project_make("deploy")?;
    let sample = folder().join(OPERATOR).join("samples/sample.yaml");
    let sample = sample.to_str().context("the path of the checkout is not Unicode")?;
    let kubectl = |arguments: &[&str]| run(&format!("kubectl {}", arguments[0]), &mut cluster.kubectl(arguments));
    kubectl(&["apply", "--filename", sample])?;
    kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", "--filename", sample])?;
    kubectl(&["get", "bicyclebells,pods", "--all-namespaces"])?;
    // The program in the image has the change of the tutorial.
    let child = format!("configmap/{NAME}-sample");
    let text =
        |text: &str| kubectl(&["wait", &format!("--for=jsonpath={{.data.text}}={text}"), "--timeout=60s", &child]);
    text("Hello")?;
    kubectl(&["patch", "--filename", sample, "--type=merge", "--patch", r#"{"spec": {"times": 2}}"#])?;
    text("HelloHello")?;
    project_make("undeploy")?;
    kubectl(&["get", "--filename", sample])?; // as the README says, objects stay
    Ok(Outcome::Passed)
}

/// Stores an image with the program that the tests have built, where the nodes pull from. The project's Dockerfile needs Docker.
fn image() -> Result<String> {
    let program = workspace::root().join("target/debug").join(OPERATOR);
    let mut files = Layer::new();
    files.directory("/tmp", 0o1777).copy(&format!("/{OPERATOR}"), &program, 0o755)?;
    closure::add(&mut files, &program, &[])?; // unlike the program of the Dockerfile, this one is not static
    let repository = format!("localhost/scaffold/{OPERATOR}");
    let spec = ImageSpec {
        references: vec![Reference::parse(&format!("{repository}:dev"))?],
        files,
        entrypoint: vec![format!("/{OPERATOR}")],
        user: "65532:65532".to_owned(),
        ..ImageSpec::default()
    };
    let image = spec.build()?;
    Store::open(default_store()?)?.put(&image)?;
    Ok(format!("{repository}@{}", image.digest()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use chart::helm::{Helm, Version};
    use chart::rendered::Rendered;
    use chart::{NAMESPACE, RELEASE};
    use serde_json::{Value, json};

    use super::{Api, GROUP, KIND, NAME, Names, OTHER_NAME, PathBuf, for_this_project, fs};
    use crate::scaffold;

    const OPERATOR: &str = "parts-operator"; // that of OTHER_NAME

    /// What `make generate` of a project writes for one webhook.
    const WEBHOOKS: &str = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n\
        metadata: {name: name}\nwebhooks:\n- name: vbicyclebell-v1.shop.example.org\n  \
        clientConfig: {service: {namespace: namespace, name: name, path: /validate, port: 443}}\n";

    /// What `make generate` of a project writes for an operator with an optional kind.
    const PERMISSIONS: &str = "kind: ClusterRole\nrules:\n\
        - {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], resourceNames: [a.b], verbs: [watch]}\n\
        - {apiGroups: [''], resources: [configmaps], verbs: [list]}\n";

    /// The objects that one render has and the other one lacks, as `Kind/name`.
    fn added(before: &Rendered, after: &Rendered) -> Vec<String> {
        let name = |it: &Value| [&it["kind"], &it["metadata"]["name"]].map(|it| it.as_str().unwrap_or("?")).join("/");
        let names = |rendered: &Rendered| rendered.objects.iter().map(name).collect::<BTreeSet<_>>();
        names(after).difference(&names(before)).cloned().collect()
    }

    #[test]
    fn tutorial_writes_a_project_and_checks_its_change() {
        let documented = super::documented();
        let [write, change, checks] = documented.as_slice() else { panic!("{documented:?}") };
        let written: Vec<String> = write.iter().map(|command| for_this_project(command).unwrap()).collect();
        let command = format!("cargo xtask new-project \"$PROJECT\" --kind {KIND} --group {GROUP}");
        assert_eq!(written, [command.as_str(), "cd \"$PROJECT\""]);
        let [change] = change.as_slice() else { panic!("{change:?}") };
        let expected = format!(
            "sed 's/Gadget/{KIND}/g; s/gadget/{NAME}/g' \"$CHECKOUT\"/hack/scaffold/first-change.patch | git apply"
        );
        assert_eq!(for_this_project(change).unwrap(), expected);
        assert_eq!(*checks, ["make generate", "make test"]);
        let other = for_this_project("cargo xtask new-project ../memos --kind Memo").unwrap_err().to_string();
        assert!(other.ends_with(": cargo xtask new-project ../memos --kind Memo"), "{other}");
    }

    /// Writes the chart of a new project. Returns its folder, and the one that is deleted when it is dropped.
    fn chart_of_a_project() -> (PathBuf, tempfile::TempDir) {
        let names = Names::new(Some(OTHER_NAME), &Api::new(KIND, GROUP)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        scaffold::write(folder.path(), &names.project().unwrap()).unwrap();
        (folder.path().join("charts").join(OPERATOR), folder)
    }

    /// A binding that has the same name in two releases is what keeps the second one out.
    #[test]
    fn binding_has_one_name_in_all_releases_that_would_run_the_operator_for_the_same_objects() {
        let (chart, _folder) = chart_of_a_project();
        let helm = Helm::of(Version::Four).unwrap();
        for (namespaces, kind, scope) in
            [(json!([]), "ClusterRoleBinding", "cluster"), (json!(["one"]), "RoleBinding", "namespace")]
        {
            let rendered = helm.template_of(&chart, &json!({"watchNamespaces": namespaces}), &[]).unwrap();
            let binding = rendered.object(kind, &format!("{OPERATOR}.one-release-per-{scope}")).unwrap();
            assert_eq!(binding["roleRef"]["name"], RELEASE, "the role is that of the release");
            let own = rendered.object("ClusterRoleBinding", &format!("{RELEASE}-metrics"));
            assert!(own.is_some(), "other permissions have bindings of their own in each release");
        }
    }

    #[test]
    fn role_in_a_namespace_has_no_rules_about_definitions() {
        let (chart, _folder) = chart_of_a_project();
        fs::create_dir(chart.join("files")).unwrap();
        fs::write(chart.join("files/permissions.yaml"), PERMISSIONS).unwrap();
        let helm = Helm::of(Version::Four).unwrap();
        for (namespaces, kind, expected) in [
            (json!([]), "ClusterRole", vec!["customresourcedefinitions", "configmaps"]),
            (json!(["one"]), "Role", vec!["configmaps"]),
        ] {
            let rendered = helm.template_of(&chart, &json!({"watchNamespaces": namespaces}), &[]).unwrap();
            let rules = rendered.object(kind, RELEASE).unwrap()["rules"].as_array().unwrap();
            let resources: Vec<_> = rules.iter().map(|rule| rule["resources"][0].as_str().unwrap()).collect();
            assert_eq!(resources, expected, "{kind}");
        }
    }

    #[test]
    fn chart_serves_the_webhooks_of_the_code_unless_they_are_disabled() {
        let (chart, _folder) = chart_of_a_project();
        let helm = Helm::of(Version::Four).unwrap();
        let render = |webhooks: &Value| {
            let values = json!({"watchNamespaces": ["one"], "webhooks": webhooks});
            helm.template_of(&chart, &values, &[]).unwrap()
        };
        let without = render(&json!({}));
        fs::create_dir(chart.join("files")).unwrap();
        fs::write(chart.join("files/webhooks.yaml"), WEBHOOKS).unwrap();
        let (with, disabled) = (render(&json!({})), render(&json!({"enabled": false})));
        assert_eq!(render(&Value::Null).objects, with.objects, "--reuse-values keeps the values of an earlier chart");

        let own = format!("{RELEASE}-webhooks");
        let kinds = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Service"];
        let mut expected = kinds.map(|kind| format!("{kind}/{own}")).to_vec();
        expected.push(format!("ValidatingWebhookConfiguration/{RELEASE}"));
        assert_eq!(added(&without, &with), expected);
        assert_eq!(without.objects, disabled.objects, "a project without webhooks is like one that disables them");

        let flag = |rendered: &Rendered| rendered.text.contains("- --enable-webhooks=false\n");
        assert_eq!((flag(&without), flag(&with)), (true, false));
        let pod =
            |rendered: &Rendered| rendered.object("Deployment", RELEASE).unwrap()["spec"]["template"]["spec"].clone();
        let delay =
            |rendered: &Rendered| pod(rendered)["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"].clone();
        assert_eq!((delay(&without), delay(&with)), (Value::Null, json!(5)), "a stopping pod answers until nodes know");
        let graceful = 30; // the default of --graceful-shutdown-timeout
        assert!(pod(&with)["terminationGracePeriodSeconds"].as_i64().unwrap() > 5 + graceful);
        let webhook = &with.object("ValidatingWebhookConfiguration", RELEASE).unwrap()["webhooks"][0];
        let service = json!({"namespace": NAMESPACE, "name": own, "path": "/validate", "port": 443});
        assert_eq!(webhook["clientConfig"]["service"], service);
        assert_eq!(webhook["namespaceSelector"]["matchExpressions"][0]["values"], json!(["one"]));
        let rule = &with.object("ClusterRole", &own).unwrap()["rules"][0];
        assert_eq!(rule["resources"], json!(["validatingwebhookconfigurations"]), "of no kind that the code lacks");
    }
}
