//! The status page in a real browser. The `chromedriver` on the PATH drives it, or the one that `CHROMEDRIVER` names.
//! `SCREENSHOTS` names a folder for screenshots.

use std::{
    ffi::OsStr,
    fs::DirEntry,
    io::{BufRead as _, BufReader, ErrorKind, Write as _},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use booking_server::Access;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    client::{Ask, Client},
    served::Served,
};

/// Longer than any page takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The `chromedriver`, and the folder of all files of its browser.
struct Driver {
    process: Child,
    folder: PathBuf,
}

impl Driver {
    /// Returns `None` if the program is not installed.
    fn start(program: &OsStr, folder: &Path) -> Option<Self> {
        let mut driver = Command::new(program);
        // The browser makes sockets in the folder for temporary files, and leaves them there.
        driver.arg("--port=0").env("TMPDIR", folder).stdout(Stdio::piped());
        match driver.spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            started => Some(Self { process: started.unwrap(), folder: folder.to_owned() }),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        drop(self.process.wait());
        // A busy driver exits without its browser, whose processes all name their profile.
        for pid in processes_of(&self.folder) {
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

/// The processes whose command line contains this path.
fn processes_of(folder: &Path) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").unwrap().map_while(Result::ok);
    let names_folder = |entry: &DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&*folder.to_string_lossy())
    };
    let pid = |entry: DirEntry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?);
    entries.filter(names_folder).filter_map(pid).collect()
}

/// A browser, driven over the `WebDriver` protocol.
struct Browser {
    _driver: Driver,
    address: SocketAddr,
    client: Client,
    session: String,
}

impl Drop for Browser {
    /// Ends the session, and with it the browser.
    fn drop(&mut self) {
        let delete = format!("DELETE /session/{} HTTP/1.0\r\nHost: {}\r\n\r\n", self.session, self.address);
        let end = || -> std::io::Result<()> {
            let mut stream = TcpStream::connect(self.address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(delete.as_bytes())?;
            std::io::copy(&mut stream, &mut std::io::sink()).map(drop)
        };
        if let Err(error) = end() {
            eprintln!("the session did not end: {error}");
        }
    }
}

impl Browser {
    async fn start(mut driver: Driver, profile: &Path) -> Self {
        let mut lines = BufReader::new(driver.process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines
            .find_map(|line| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse::<u16>().ok());
        std::thread::spawn(move || lines.for_each(drop));
        let address = SocketAddr::from(([127, 0, 0, 1], port.expect("it prints its port")));
        let client = Client::new(address);
        let mut arguments: Vec<String> = [
            "headless",
            "no-sandbox",
            "disable-gpu",
            "disable-quic",
            "no-first-run",
            "disable-background-networking",
            "disable-component-update",
            "disable-sync",
            "window-size=1280,1500",
        ]
        .map(|argument| format!("--{argument}"))
        .into();
        arguments.push(format!("--user-data-dir={}", profile.display()));
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}}});
        let made = client.raw(Ask::new("POST", "/session").json(&wanted)).await.unwrap().json();
        let session = made["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {made}")).to_owned();
        Self { _driver: driver, address, client, session }
    }

    async fn tell(&self, what: &str, body: Value) -> Value {
        let ask = Ask::new("POST", format!("/session/{}/{what}", self.session)).json(&body);
        let answer = self.client.raw(ask).await.unwrap();
        assert_eq!(answer.status, 200, "{what} {body}: {}", String::from_utf8_lossy(&answer.body));
        answer.json()["value"].clone()
    }

    async fn open(&self, url: &str) {
        self.tell("url", json!({"url": url})).await;
    }

    /// The value of an expression in the page.
    async fn value(&self, expression: &str) -> Value {
        self.tell("execute/sync", json!({"script": format!("return {expression}"), "args": []})).await
    }

    /// Waits until the expression has this value: a click that submits a form returns before the next page is there.
    async fn until(&self, expression: &str, expected: impl Into<Value>) {
        let (expected, deadline) = (expected.into(), Instant::now() + PATIENCE);
        loop {
            let value = self.value(expression).await;
            if value == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{expression} is {value}, never {expected}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn click(&self, selector: &str) {
        let found = self.tell("element", json!({"using": "css selector", "value": selector})).await;
        let element = found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        self.tell(&format!("element/{element}/click"), json!({})).await;
    }

    async fn scheme(&self, scheme: &str) {
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.tell("goog/cdp/execute", json!({"cmd": "Emulation.setEmulatedMedia", "params": media})).await;
    }

    async fn width(&self, width: u32) {
        self.tell("window/rect", json!({"width": width, "height": 1500})).await;
    }

    async fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("SCREENSHOTS") else { return };
        let answer = self.client.raw(Ask::new("GET", format!("/session/{}/screenshot", self.session))).await.unwrap();
        let picture = BASE64_STANDARD.decode(answer.text("value")).unwrap();
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), picture).unwrap();
    }
}

/// The smallest contrast between a text and its background, by the formula of WCAG.
const CONTRAST: &str = r"(() => {
  const parse = text => (text.match(/[\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length == 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  let worst = 21;
  for (const e of document.querySelectorAll('h1, h2, p, td, th, dt, dd, small, code, a, span, label, button')) {
    if (!e.textContent.trim()) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
    worst = Math.min(worst, (Math.max(a, b) + .05) / (Math.min(a, b) + .05));
  }
  return worst;
})()";

#[tokio::test(flavor = "multi_thread")]
async fn status_page_shows_bookings_and_runs_no_injected_script() {
    let program = std::env::var_os("CHROMEDRIVER").unwrap_or_else(|| "chromedriver".into());
    let folder = tempfile::tempdir().unwrap();
    let Some(driver) = Driver::start(&program, folder.path()) else {
        return skip::lacking(format!("{} is missing: install the package chromium-driver", program.display()));
    };
    let token = folder.path().join("token");
    std::fs::write(&token, "secret").unwrap();
    let served = Served::with(|options| options.access = Access::Tokens(token)).await;
    let api = served.api.with_token("secret");
    let poison = "<script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">";
    let cities = ["Paris", "São Paulo", "東京", "القاهرة"];
    for n in 0..60 {
        let mut order = json!({"reference": format!("5f1d7c1e-0000-4000-8000-0000000000{n:02}"), "from": "London",
            "to": cities[n % cities.len()], "number": n % 4 + 1,
            "contact": {"namespace": "travel", "name": format!("ticket-{n}")}});
        if n == 59 {
            (order["from"], order["contact"]["name"]) = (json!(poison[..64]), json!(poison));
            order["departureDate"] = json!("2999-12-31");
        }
        let reference = order["reference"].as_str().unwrap().to_owned();
        assert_eq!(api.must(Ask::order(&reference, &order)).await.status, 201);
        if n % 7 == 0 {
            api.must(Ask::close(&reference)).await;
        }
    }
    api.must(Ask::book("refused", "Paris", 1).header("idempotency-key", "twice")).await;
    let admin = served.admin.with_token("secret");
    let fault = json!({"op": "create", "mode": "status", "status": 503});
    assert_eq!(admin.raw(Ask::new("POST", "/admin/faults").json(&fault)).await.unwrap().status, 201);
    api.must(Ask::book("unlucky", "Paris", 1)).await;

    let browser = Browser::start(driver, &folder.path().join("profile")).await;
    let page = format!("http://anyone:secret@{}/", served.admin.address);
    browser.open(&page).await;
    assert_eq!(browser.value("document.title").await, "Bookings");
    assert_eq!(browser.value("document.querySelectorAll('script, img, iframe, [onerror], [style]').length").await, 0);
    let rows = "document.querySelectorAll('[aria-labelledby=bookings] tbody tr').length";
    assert_eq!(browser.value(rows).await, 50);
    let shown = browser.value("document.querySelector('[aria-labelledby=bookings] tbody').innerText").await;
    assert!(shown.as_str().unwrap().contains(&poison[..64]), "{shown}");
    assert_eq!(browser.value("getComputedStyle(document.body).marginTop").await, "0px", "the style was loaded");
    let ground = "getComputedStyle(document.body).backgroundColor";
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.scheme(scheme).await;
        grounds.push(browser.value(ground).await);
        let contrast = browser.value(CONTRAST).await.as_f64().unwrap();
        assert!(contrast >= 4.5, "{scheme}: contrast {contrast}");
        browser.picture(scheme).await;
    }
    assert_ne!(grounds[0], grounds[1], "dark and light have different backgrounds");
    browser.click(".older button").await;
    browser.until(rows, 10).await;
    browser.open(&page).await;
    browser.click("select[name=state] option[value=CANCELLED]").await;
    browser.click(".search button").await;
    let states = "[...new Set([...document.querySelectorAll('tbody .state')].map(e => e.textContent))].join()";
    browser.until(states, "Cancelled").await;
    assert_eq!(
        browser.value("document.querySelector('select').value").await,
        "CANCELLED",
        "the form keeps what was chosen"
    );
    browser.open(&page).await;
    browser.width(500).await;
    let overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
    assert_eq!(browser.value(overflow).await, 0, "a narrow window needs no scrolling sideways");
    browser.picture("narrow").await;
    // The log has errors of scripts, of the content policy, and of resources that could not be loaded.
    assert_eq!(browser.tell("se/log", json!({"type": "browser"})).await, json!([]));
}
