//! A user's walk: the commands of the operators' READMEs and of the book while the operators run, and the mistakes that users make.
//! Each command and what it prints goes to standard error: `cargo test -p e2e walk -- --nocapture` shows all screens.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use controller_manager::OPERATORS;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{Visit, world};

/// What stands before the commands of a README that need a cluster with the operators and nothing else.
const COMMANDS: &str = "<!-- tested by: operators/controller-manager/tests/kubectl.rs \
                        commands_of_the_readmes_run_and_print_the_columns_that_they_show -->\n```";
/// What stands before the same commands in a page of the book.
const COMMANDS_OF_PAGES: &str = "<!-- tested by: e2e/tests/e2e/walk.rs \
                                 readmes_and_pages_lead_a_user_to_running_objects_and_out_of_mistakes -->\n```";
/// The pages with such commands. They use the objects of the READMEs.
const PAGES: [&str; 3] =
    ["docs/book/src/start.md", "docs/book/src/how-to/troubleshooting.md", "docs/book/src/concepts/conditions.md"];
/// The namespace in the READMEs. The walk has one of its own, because the cluster may be that of a user.
const NAMESPACE: &str = "test";
/// Pods start within seconds; only a failure waits this long.
const PATIENCE: Duration = Duration::from_mins(3);
/// The time between two looks at the same screen. It limits the load.
const PAUSE: Duration = Duration::from_millis(200);

/// A terminal of a user, in the root of the checkout and in the namespace of the walk.
struct Terminal {
    world: Visit,
    root: PathBuf,
    kubeconfig: PathBuf,
    _folder: TempDir,
}

impl Terminal {
    async fn open(world: Visit) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::copy(world.cluster.kubeconfig(), &kubeconfig).expect("a kubeconfig of its own");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let terminal = Self { world, root, kubeconfig, _folder: folder };
        let namespace = &terminal.world.namespace;
        terminal.succeeds(&format!("kubectl config set-context --current --namespace={namespace}")).await;
        // As the README of Foo demands for its nginx, which starts as root.
        let enforce = "pod-security.kubernetes.io/enforce=baseline";
        terminal.succeeds(&format!("kubectl label namespace {namespace} {enforce} --overwrite")).await;
        terminal
    }

    /// Runs a command of a shell in this folder. Returns whether it succeeded, and what it prints.
    async fn run(&self, folder: &Path, command: &str) -> (bool, String) {
        let mut shell = self.world.cluster.exec("sh");
        shell.args(["-euc", command]).current_dir(folder).env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null());
        let ended = tokio::task::spawn_blocking(move || shell.output()).await;
        let output = ended.expect("no panic").expect("sh starts");
        let printed = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        (output.status.success(), printed.concat())
    }

    async fn succeeds(&self, command: &str) -> String {
        self.succeeds_in(&self.root, command).await
    }

    async fn succeeds_in(&self, folder: &Path, command: &str) -> String {
        let (succeeded, printed) = self.run(folder, command).await;
        show(command, &printed);
        assert!(succeeded, "the command failed: {command}");
        printed
    }

    /// Repeats the command until it prints what is expected.
    async fn until(&self, folder: &Path, command: &str, is_expected: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        loop {
            let (succeeded, printed) = self.run(folder, command).await;
            if succeeded && is_expected(&printed) {
                return show(command, &printed);
            }
            assert!(begun.elapsed() < PATIENCE, "not within {} s:\n$ {command}\n{printed}", PATIENCE.as_secs());
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Follows the README of an operator to its end. Returns how many tables it shows.
    async fn follow(&self, operator: &str) -> usize {
        let folder = self.root.join(format!("operators/{operator}-operator"));
        let readme = std::fs::read_to_string(folder.join("README.md")).expect("a document");
        self.run_all(&folder, commands(&readme, COMMANDS)).await
    }

    /// Follows a page of the book, whose commands run in the root of the checkout.
    async fn follow_page(&self, page: &str) {
        let text = std::fs::read_to_string(self.root.join(page)).expect("a document");
        let commands = commands(&text, COMMANDS_OF_PAGES);
        assert!(!commands.is_empty(), "{page} has no marked block");
        self.run_all(&self.root, commands).await;
    }

    /// Runs commands, each with what it prints in a document, and expects that. Returns how many tables they show.
    async fn run_all(&self, folder: &Path, commands: Vec<(&str, Vec<&str>)>) -> usize {
        let namespace = &self.world.namespace;
        let mut tables = 0;
        for (command, prints) in commands {
            if command.starts_with("kubectl create namespace ") {
                continue;
            }
            if let Some(command) = command.strip_prefix("kubectl operators ") {
                self.plugin(command).await;
                continue;
            }
            let at = if command.contains(" operators/") { self.root.as_path() } else { folder };
            let command = command.replace(&format!("-n {NAMESPACE}"), &format!("-n {namespace}"));
            let prints = prints.join("\n").replace(&format!(".{NAMESPACE}."), &format!(".{namespace}."));
            let status = |table: &str, object: &str| cell(table, object, "STATUS").map(str::to_owned);
            if prints.starts_with("NAME ") {
                let object = prints.lines().nth(1).and_then(|row| row.split_whitespace().next()).expect("a row");
                let documented = status(&prints, object).expect("a column STATUS");
                let is_expected = |table: &str| {
                    status(table, object).is_some_and(|it| {
                        // As the README of CronTab says about its image, on the days on which the sample runs.
                        it == documented || (documented == "Scheduled" && it == "ImagePullFailed")
                    })
                };
                self.until(at, &command, is_expected).await;
                tables += 1;
            } else if prints.is_empty() {
                self.succeeds_in(at, &command).await;
            } else {
                self.until(at, &command, |printed| printed.trim_end() == prints).await;
            }
        }
        tables
    }

    /// Runs the plugin of kubectl inside of this process, because the folder of built programs may lack it.
    async fn plugin(&self, command: &str) -> String {
        let kubeconfig = self.kubeconfig.display().to_string();
        let words = ["kubectl-operators", "--kubeconfig", &kubeconfig].into_iter().chain(command.split(' '));
        let ended = kubectl_operators::execute(words.map(str::to_owned)).await;
        let printed = ended.unwrap_or_else(|failed| panic!("kubectl operators {command}: {}", failed.error));
        show(&format!("kubectl operators {command}"), &printed);
        printed
    }

    /// Applies an object that the API server refuses with these words.
    async fn apply_refused(&self, kind: &str, spec: &Value, words: &str) {
        let command = apply(&object(kind, "mistake", spec));
        let (succeeded, printed) = self.run(&self.root, &command).await;
        show(&command, &printed);
        assert!(!succeeded && printed.contains(words), "no \"{words}\": {printed}");
    }

    /// Applies an object that the API server accepts, and waits until its wide table has these words. Returns what the first
    /// command prints.
    async fn apply_reporting(&self, object: &Value, words: [&str; 2]) -> String {
        let printed = self.succeeds(&apply(object)).await;
        self.until_shown(object, words).await;
        printed
    }

    /// Waits until the wide table of the object has these words.
    async fn until_shown(&self, object: &Value, words: [&str; 2]) {
        let command = format!("kubectl get {} --output wide", target(object));
        self.until(&self.root, &command, |table| words.iter().all(|word| table.contains(word))).await;
    }
}

/// Prints a screen.
fn show(command: &str, printed: &str) {
    eprintln!("$ {command}\n{printed}");
}

/// The commands in the blocks with this mark, each with the lines that it prints there. A block of the language `sh` has commands
/// alone, one in each line.
fn commands<'a>(document: &'a str, mark: &str) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
    for block in document.split(mark).skip(1).filter_map(|rest| rest.split("```").next()) {
        let (language, text) = block.split_once('\n').expect("a language");
        for line in text.lines() {
            let command = if language == "sh" { Some(line) } else { line.strip_prefix("$ ") };
            if let Some(command) = command {
                commands.push((command, Vec::new()));
            } else if let Some((_, prints)) = commands.last_mut() {
                prints.push(line);
            }
        }
    }
    commands
}

/// The cell of an object in a table of kubectl, which aligns each column with its head.
fn cell<'a>(table: &'a str, object: &str, column: &str) -> Option<&'a str> {
    let mut lines = table.lines();
    let start = lines.next()?.find(column)?;
    let row = lines.find(|row| row.split_whitespace().next() == Some(object))?;
    row.get(start..)?.split("  ").next().map(str::trim)
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let api_version = match kind {
        "Memcached" => "memcached.cache.example.com/v1",
        "HelloApp" => "apps.anupam.com/v1",
        "CronTab" => "stable.example.com/v1",
        "FlightTicket" => "flights.com/v1",
        _ => "samplecontroller.k8s.io/v1alpha1",
    };
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// The object as commands name it.
fn target(object: &Value) -> String {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    format!("{}/{}", text(&object["kind"]).to_lowercase(), text(&object["metadata"]["name"]))
}

fn apply(object: &Value) -> String {
    format!("kubectl apply --filename - <<'END'\n{object}\nEND")
}

/// What the API server refuses says what to write instead.
async fn mistakes_are_refused(terminal: &Terminal) {
    let zone = json!({"image": "app:1", "cronSpec": "@daily", "timeZone": "Europe/Belrin"});
    for (kind, spec, words) in [
        ("Memcached", json!({"size": 65}), "should be less than or equal to 64"),
        ("Memcached", json!({"replicas": 3}), "unknown field \"spec.replicas\""),
        ("Memcached", json!({"config": {"extraArgs": ["-m64"]}}), "use spec.config.memoryMB"),
        ("HelloApp", json!({"image": "app:1", "securityProfile": "Root"}), "Unsupported value: \"Root\""),
        ("CronTab", json!({"image": "app:1", "cronSpec": "0 0 * * 7"}), "use 0 for Sunday"),
        ("CronTab", zone, "perhaps you mean Europe/Berlin"),
        ("FlightTicket", json!({"from": "Mumbai", "to": "mumbai", "number": 2}), "from and to must differ"),
        ("FlightTicket", json!({"from": "Mumbai", "to": "London", "number": 11}), "less than or equal to 10"),
        ("Foo", json!({"deploymentName": "Web"}), "deploymentName must consist of lower case letters"),
    ] {
        terminal.apply_refused(kind, &spec, words).await;
    }
}

/// An image that starts as root is reported with its cure, which works.
async fn image_that_starts_as_root(terminal: &Terminal) {
    let app = object("HelloApp", "rooted", &json!({"image": "docker.io/library/nginx:latest"}));
    let printed = terminal.apply_reporting(&app, ["ImageRunsAsRoot", "set spec.securityProfile: Baseline"]).await;
    assert!(printed.contains("Warning: spec.image: "), "{printed}");
    let cure = json!({"spec": {"securityProfile": "Baseline"}});
    terminal.succeeds(&format!("kubectl patch {} --type merge --patch '{cure}'", target(&app))).await;
    terminal.succeeds(&format!("kubectl wait {} --for=condition=Ready --timeout=3m", target(&app))).await;
}

/// A failed run is visible, and its log can be read.
async fn run_that_fails(terminal: &Terminal) {
    let crontab = object(
        "CronTab",
        "failing",
        &json!({
            "cronSpec": "@yearly", "image": "docker.io/library/busybox:1.36", "runAsUser": 65532, "backoffLimit": 0,
            "restartPolicy": "Never", "command": ["sh", "-c", "echo no database; exit 3"],
        }),
    );
    terminal.apply_reporting(&crontab, ["Scheduled", "next run at "]).await;
    let annotation = "stable.example.com/run-now=1";
    terminal.succeeds(&format!("kubectl annotate {} {annotation}", target(&crontab))).await;
    terminal.until_shown(&crontab, ["LastRunFailed", "BackoffLimitExceeded"]).await;
    let log = terminal
        .succeeds(
            "job=$(kubectl get ct failing -o jsonpath='{.status.lastFailure.job}')\n\
             kubectl logs --selector batch.kubernetes.io/job-name=$job --tail=-1 --prefix",
        )
        .await;
    assert!(log.contains("no database"), "{log}");
}

/// What stays wrong until a user acts.
async fn problems_are_reported(terminal: &Terminal) {
    let app = object("HelloApp", "missing", &json!({"image": "localhost/no-such-image:1"}));
    terminal.apply_reporting(&app, ["ImagePullFailed", "cannot pull image \"localhost/no-such-image:1\""]).await;
    let cache = object("Memcached", "locked", &json!({"auth": {"secretName": "absent"}}));
    terminal.apply_reporting(&cache, ["SecretNotFound", "Secret \"absent\" not found"]).await;
    let mut ticket = object("FlightTicket", "lost", &json!({"from": "Mumbai", "to": "London", "number": 2}));
    ticket["metadata"]["annotations"] = json!({"flights.com/booking-id": "not an id"});
    terminal.apply_reporting(&ticket, ["Rejected", "BookingNotFound"]).await;
    terminal.succeeds("kubectl create deployment taken --image=localhost/pause:1 --replicas=0").await;
    let conflicting = object("Foo", "conflict", &json!({"deploymentName": "taken"}));
    terminal.apply_reporting(&conflicting, ["ResourceConflict", "Resource \"taken\" already exists"]).await;
}

/// The plugin lists what is wrong first.
async fn plugin_shows_problems_first(terminal: &Terminal) {
    let status = terminal.plugin("status").await;
    let place = |object: &str| status.find(object).unwrap_or_else(|| panic!("no {object}: {status}"));
    let first_ready = ["memcached/memcached-sample", "helloapp/rooted", "flightticket/my-flight-ticket"].map(place);
    for wrong in ["helloapp/missing", "memcached/locked", "crontab/failing", "flightticket/lost", "foo/conflict"] {
        assert!(first_ready.iter().all(|ready| place(wrong) < *ready), "{wrong}: {status}");
    }
}

/// The trip of a ticket is fixed, and its deletion ends when its booking is cancelled.
async fn ticket_to_its_end(terminal: &Terminal) {
    let trip = r#"kubectl patch ft/my-flight-ticket --type merge --patch '{"spec": {"to": "Paris"}}'"#;
    let (succeeded, printed) = terminal.run(&terminal.root, trip).await;
    show(trip, &printed);
    let words = "to cannot be changed; delete this FlightTicket and create another";
    assert!(!succeeded && printed.contains(words), "{printed}");
    terminal.succeeds("kubectl delete ft/my-flight-ticket --timeout=1m").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readmes_and_pages_lead_a_user_to_running_objects_and_out_of_mistakes() {
    let Some(world) = world().await else { return };
    let terminal = Terminal::open(world).await;
    let follow = async {
        let mut tables = 0;
        for operator in OPERATORS {
            tables += terminal.follow(operator.name()).await;
        }
        tables
    };
    let (tables, ..) = tokio::join!(
        follow,
        mistakes_are_refused(&terminal),
        image_that_starts_as_root(&terminal),
        run_that_fails(&terminal),
        problems_are_reported(&terminal),
    );
    assert!(tables >= 5, "{tables} tables");
    for page in PAGES {
        terminal.follow_page(page).await;
    }
    plugin_shows_problems_first(&terminal).await;
    ticket_to_its_end(&terminal).await;
}
