//! Every answered change survives any crash, and the server survives a full disk.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    client::{Ask, Client, until},
    process::{Process, command},
    served::sound,
};

const WORKERS: usize = 4;

/// A number from the environment, or the default.
fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |text| text.parse().expect(name))
}

/// What a client knows about one reference.
#[derive(Debug, Clone, Default)]
struct Known {
    reference: String,
    id: Option<String>,
    number: u64,
    is_cancelled: bool,
    /// The step that has no answer yet.
    open: Option<Step>,
    /// How often the server answered 201.
    made: usize,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Book(u64),
    Modify(u64),
    Cancel,
}

impl Known {
    /// The next step of this client; `None` when it is done with the reference.
    fn next(&self, random: &mut Rng) -> Option<Step> {
        match (self.open, &self.id) {
            (Some(open), _) => Some(open),
            (None, _) if self.is_cancelled => None,
            (None, None) => Some(Step::Book(random.u64(1..=4))),
            (None, Some(_)) => match random.u8(0..4) {
                0 => Some(Step::Modify(random.u64(1..=4))),
                1 => Some(Step::Cancel),
                _ => None,
            },
        }
    }

    /// Executes a step. Without an answer, leaves it open and returns false.
    async fn attempt(&mut self, api: &Client, step: Step) -> bool {
        self.open = Some(step);
        let ask = match step {
            Step::Book(number) => Ask::book(&self.reference, "Paris", number),
            Step::Modify(number) => Ask::patch(self.id.as_deref().unwrap(), number, Some("*")),
            Step::Cancel => Ask::close(&self.reference),
        };
        let Ok(answer) = api.ask(ask).await else { return false };
        match step {
            Step::Book(_) => {
                assert!([200, 201].contains(&answer.status), "{answer:?}");
                self.made += usize::from(answer.status == 201);
                self.id = Some(answer.text("id"));
                self.number = answer.json()["number"].as_u64().unwrap();
            }
            Step::Modify(number) => {
                assert_eq!(answer.status, 200, "{answer:?}");
                self.number = number;
            }
            Step::Cancel => {
                assert_eq!((answer.status, answer.text("bookingId")), (200, self.id.clone().unwrap()));
                self.is_cancelled = true;
            }
        }
        self.open = None;
        true
    }

    /// Whether a stored booking matches the last answer, or the open step.
    fn agrees(&self, stored: &Value) -> bool {
        let (number, is_cancelled) = (stored["number"].as_u64().unwrap(), stored["state"] == "CANCELLED");
        let is_id = self.id.as_deref().is_none_or(|id| stored["id"] == id);
        is_id
            && match self.open {
                None => number == self.number && is_cancelled == self.is_cancelled,
                Some(Step::Book(asked)) => number == asked && !is_cancelled,
                Some(Step::Modify(asked)) => [asked, self.number].contains(&number) && !is_cancelled,
                Some(Step::Cancel) => number == self.number,
            }
    }
}

/// Executes one step after the other until the server is gone.
async fn work(
    (api, answers): (Client, Arc<Semaphore>),
    (worker, round): (usize, usize),
    mut random: Rng,
    mut known: Vec<Known>,
) -> Vec<Known> {
    for entry in &mut known {
        while let Some(step) = entry.next(&mut random) {
            if !entry.attempt(&api, step).await {
                return known;
            }
            answers.add_permits(1);
        }
    }
    for n in 0.. {
        let mut entry = Known { reference: format!("w{worker}.{round}.{n}"), ..Known::default() };
        while let Some(step) = entry.next(&mut random) {
            if !entry.attempt(&api, step).await {
                known.push(entry);
                return known;
            }
            answers.add_permits(1);
        }
        known.push(entry);
    }
    known
}

/// Kills the server at random moments (`BOOKING_SERVER_SEED`), `BOOKING_SERVER_KILLS` times.
#[tokio::test(flavor = "multi_thread")]
async fn t08_acknowledged_changes_survive_kill_9() {
    let (seed, kills) = (setting("BOOKING_SERVER_SEED", 7), setting("BOOKING_SERVER_KILLS", 25));
    let folder = tempfile::tempdir().unwrap();
    let mut random = Rng::with_seed(seed);
    let mut known: Vec<Vec<Known>> = vec![Vec::new(); WORKERS];
    let flags = ["--default-seats", "10000", "--log-level", "warn,booking_server::server=info"];
    let (mut answered, mut unanswered) = (0, 0);
    for round in 0..usize::try_from(kills).unwrap() {
        let mut process = Process::start(folder.path(), &flags);
        let answers = Arc::new(Semaphore::new(0));
        let workers: Vec<_> = known
            .drain(..)
            .enumerate()
            .map(|(worker, known)| {
                let server = (process.api.clone(), Arc::clone(&answers));
                tokio::spawn(work(server, (worker, round), random.fork(), known))
            })
            .collect();
        // Kill the server somewhere in the stream of requests. The moment itself is under test, so no condition can replace the
        // sleep.
        answers.acquire_many(random.u32(0..40)).await.unwrap().forget();
        tokio::time::sleep(Duration::from_micros(random.u64(0..5_000))).await;
        process.kill();
        for worker in workers {
            known.push(worker.await.unwrap());
        }
        let stored = stored(folder.path());
        for entry in known.iter().flatten() {
            match stored.get(&entry.reference) {
                Some(booking) => {
                    assert!(entry.agrees(booking), "seed {seed}, round {round}: {entry:?}, stored {booking}");
                }
                None => assert!(entry.id.is_none(), "seed {seed}, round {round}: {entry:?} is lost"),
            }
        }
        unanswered += known.iter().flatten().filter(|entry| entry.open.is_some()).count();
    }
    // Repeat every open step. Then each reference has one booking.
    let process = Process::start(folder.path(), &flags);
    for entry in known.iter_mut().flatten() {
        if let Some(step) = entry.open {
            assert!(entry.attempt(&process.api, step).await);
        }
        answered += 1;
        assert!(entry.made <= 1, "{entry:?}");
    }
    let all = process.api.list("limit=500").await;
    assert_eq!(all.len(), answered, "one booking each");
    let live: u64 = known.iter().flatten().filter(|entry| !entry.is_cancelled).map(|entry| entry.number).sum();
    assert_eq!(sound(folder.path()).seats_taken, live);
    println!("{kills} kills, {answered} bookings, {unanswered} requests without an answer");
    let kills = usize::try_from(kills).unwrap();
    assert!(
        answered >= 4 * kills && unanswered >= kills,
        "{answered} bookings and {unanswered} lost answers prove little"
    );
}

/// The bookings in a database without a running server, by reference.
fn stored(folder: &Path) -> std::collections::HashMap<String, Value> {
    sound(folder);
    let connection = rusqlite::Connection::open(crate::served::database(folder)).unwrap();
    let mut statement = connection.prepare("SELECT reference, id, number, state FROM bookings").unwrap();
    let rows = statement.query_map([], |row| {
        let (reference, id, number, state): (String, String, u64, String) =
            (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        Ok((reference, json!({"id": id, "number": number, "state": state})))
    });
    let rows: Vec<_> = rows.unwrap().map(Result::unwrap).collect();
    let count = rows.len();
    let map: std::collections::HashMap<_, _> = rows.into_iter().collect();
    assert_eq!(map.len(), count, "a reference has two bookings");
    map
}

#[tokio::test]
async fn t12_full_disk_refuses_writes_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().to_str().unwrap();
    // A small disk that only this process has.
    let mount = "mount -t tmpfs -o size=1m,mode=0777 booking-test \"$1\" && shift && exec \"$@\"";
    let mut private = std::process::Command::new("unshare");
    private.args(["--user", "--map-root-user", "--mount"]);
    if !private.args(["true"]).status().is_ok_and(|status| status.success()) {
        return skip::lacking("this machine does not allow a private mount (unshare --user --mount)");
    }
    let server = command();
    let mut private = std::process::Command::new("unshare");
    private.args(["--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", disk]).arg(server.get_program());
    private.args(["--insecure", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--db"]);
    private.arg(folder.path().join("bookings.db"));
    let mut process = Process::of(private);
    // Only the process has this mount. Others reach it through `/proc`.
    let inside = format!("/proc/{}/root{disk}", process.id());
    assert_eq!(process.api.must(Ask::book("before", "Paris", 1)).await.status, 201);
    let filler = Path::new(&inside).join("filler");
    fill(&filler);
    let refused = refusal(&process.api).await;
    let audit = |process: &Process| process.admin.clone();
    let books = async |process: &Process| audit(process).raw(Ask::new("GET", "/admin/audit")).await.unwrap().json();
    assert!(!refused.is_empty());
    let ready = process.admin.raw(Ask::new("GET", "/readyz")).await.unwrap();
    assert_eq!(ready.status, 500);
    assert!(String::from_utf8_lossy(&ready.body).contains("[-]database failed: the disk is full"), "{ready:?}");
    assert_eq!(process.admin.raw(Ask::new("GET", "/healthz")).await.unwrap().status, 200, "a restart frees no disk");
    assert_eq!(process.api.get("/v1/references/before").await.status, 200, "reading goes on");
    assert_eq!(books(&process).await["violations"], json!([]));
    std::fs::remove_file(&filler).unwrap();
    until(&process.admin, Ask::new("GET", "/readyz"), |answer| answer.status == 200).await;
    for reference in &refused {
        assert_eq!(process.api.must(Ask::book(reference, "Paris", 1)).await.status, 201, "nothing of it was kept");
    }
    assert_eq!(books(&process).await["violations"], json!([]));
    process.signal(rustix::process::Signal::TERM);
    assert!(process.wait().success());
}

/// Writes until nothing more fits.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for size in [1 << 16, 1 << 12, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

/// Books until the disk is full, and returns the refused references.
async fn refusal(api: &Client) -> Vec<String> {
    let begun = Instant::now();
    let refused = Mutex::new(Vec::new());
    for n in 0.. {
        let reference = format!("full-{n}");
        let answer = api.must(Ask::book(&reference, if n % 2 == 0 { "Paris" } else { "Rome" }, 1)).await;
        if answer.status == 503 {
            assert_eq!(answer.header("retry-after"), Some("1"));
            refused.lock().unwrap().push(reference);
        }
        if refused.lock().unwrap().len() == 3 {
            break;
        }
        assert!(begun.elapsed() < crate::client::PATIENCE, "the disk is not full");
    }
    refused.into_inner().unwrap()
}
