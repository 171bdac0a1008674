//! A real browser for tests of pages: Chromium. The `chromedriver` on the PATH drives it over the `WebDriver` protocol, or the one that
//! the variable `CHROMEDRIVER` names.
#![deny(missing_docs)]

use std::env;
use std::fs::{self, DirEntry};
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Why there is no browser, and what to install.
pub const MISSING: &str = "chromedriver is missing: install the package chromium-driver";

/// The smallest contrast of a text that WCAG's level AA permits.
pub const READABLE: f64 = 4.5;

/// Longer than any page takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The height of the window, in pixels.
const HEIGHT: u32 = 1500;

/// The flags of the browser: no window, and no request but those of the pages.
const FLAGS: &[&str] = &[
    "headless",
    "no-sandbox",
    "disable-gpu",
    "disable-quic",
    "no-first-run",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
    "window-size=1280,1500",
];

/// A function of JavaScript.
const CONTRAST: &str = include_str!("contrast.js");

/// The `chromedriver`, and the folder of all files of its browser.
struct Driver {
    process: Child,
    folder: TempDir,
}

impl Drop for Driver {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).ok();
        drop(self.process.wait());
        // A busy driver exits without its browser, whose processes all name their profile.
        for pid in processes_of(self.folder.path()) {
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

/// The processes whose command line contains this path.
fn processes_of(folder: &Path) -> Vec<Pid> {
    let names_folder = |entry: &DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&*folder.to_string_lossy())
    };
    let pid = |entry: DirEntry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?);
    let entries = fs::read_dir("/proc").into_iter().flatten().map_while(Result::ok);
    entries.filter(names_folder).filter_map(pid).collect()
}

/// A browser without a window. It ends when it is dropped.
pub struct Browser {
    _driver: Driver,
    address: SocketAddr,
    session: String,
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Err(error) = request(self.address, "DELETE", &format!("/session/{}", self.session), &json!({})) {
            eprintln!("the session of the browser did not end: {error:#}");
        }
    }
}

impl Browser {
    /// Starts a browser. Returns `None` if the machine lacks `chromedriver`, see [`MISSING`].
    ///
    /// # Errors
    ///
    /// If the driver or the browser does not start.
    pub fn start() -> Result<Option<Self>> {
        let program = env::var_os("CHROMEDRIVER").unwrap_or_else(|| "chromedriver".into());
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(&program);
        // The browser makes sockets in the folder for temporary files, and leaves them there.
        command.arg("--port=0").env("TMPDIR", folder.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let process = match command.spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            started => started.with_context(|| format!("{} does not start", program.display()))?,
        };
        let mut driver = Driver { process, folder };
        let output = driver.process.stdout.take().context("chromedriver has no output")?;
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let port = lines
            .find_map(|line| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse::<u16>().ok());
        thread::spawn(move || lines.for_each(drop));
        let address = SocketAddr::from(([127, 0, 0, 1], port.context("chromedriver printed no port")?));
        let mut arguments: Vec<String> = FLAGS.iter().map(|flag| format!("--{flag}")).collect();
        arguments.push(format!("--user-data-dir={}", driver.folder.path().join("profile").display()));
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}}});
        let made = request(address, "POST", "/session", &wanted)?;
        let session = made["sessionId"].as_str().context("the browser has no session")?.to_owned();
        Ok(Some(Self { _driver: driver, address, session }))
    }

    /// Opens a page, and waits until it is loaded.
    pub fn open(&self, url: &str) -> Result<()> {
        self.tell("url", &json!({"url": url})).map(drop)
    }

    /// The value of an expression in the page.
    pub fn value(&self, expression: &str) -> Result<Value> {
        self.tell("execute/sync", &json!({"script": format!("return {expression}"), "args": []}))
    }

    /// Waits until the expression has this value: a click that submits a form returns before the next page is there.
    ///
    /// # Errors
    ///
    /// If it has another value after half a minute.
    pub fn until(&self, expression: &str, expected: impl Into<Value>) -> Result<()> {
        let (expected, deadline) = (expected.into(), Instant::now() + PATIENCE);
        loop {
            let value = self.value(expression)?;
            if value == expected {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{expression} is {value}, never {expected}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Clicks the first element that the CSS selector matches.
    pub fn click(&self, selector: &str) -> Result<()> {
        let found = self.tell("element", &json!({"using": "css selector", "value": selector}))?;
        let reference = found.as_object().and_then(|found| found.values().next()).and_then(Value::as_str);
        let reference = reference.with_context(|| format!("no element is {selector}"))?;
        self.tell(&format!("element/{reference}/click"), &json!({})).map(drop)
    }

    /// Prefers "light" or "dark" colours from now on.
    pub fn scheme(&self, scheme: &str) -> Result<()> {
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", &media)
    }

    /// Makes the pages so many pixels wide, also less than a window can be.
    pub fn width(&self, width: u32) -> Result<()> {
        let metrics = json!({"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": false});
        self.command("Emulation.setDeviceMetricsOverride", &metrics)
    }

    /// By how many pixels the page is wider than the window.
    pub fn overflow(&self) -> Result<i64> {
        let pixels = self.value("(page => page.scrollWidth - page.clientWidth)(document.scrollingElement)")?;
        pixels.as_i64().with_context(|| format!("the page is {pixels} pixels too wide"))
    }

    /// The smallest contrast between a text and its background among the elements that the CSS selector matches, from 1 to 21, and that
    /// text. See [`READABLE`].
    pub fn contrast(&self, selector: &str) -> Result<(f64, String)> {
        let worst = self.value(&format!("({CONTRAST})({})", json!(selector)))?;
        let ratio = worst[0].as_f64().with_context(|| format!("{worst} is no contrast"))?;
        Ok((ratio, worst[1].as_str().unwrap_or_default().to_owned()))
    }

    /// The entries of the browser's log since the last call: errors of scripts, of the content policy, and of resources that could not be
    /// loaded.
    pub fn log(&self) -> Result<Vec<Value>> {
        let entries = self.tell("se/log", &json!({"type": "browser"}))?;
        entries.as_array().cloned().context("the browser has no log")
    }

    /// Writes what the window shows into the folder that the variable `SCREENSHOTS` names, as `NAME.png`. Without the variable, does
    /// nothing.
    pub fn picture(&self, name: &str) -> Result<()> {
        let Some(folder) = env::var_os("SCREENSHOTS") else { return Ok(()) };
        let shown = request(self.address, "GET", &format!("/session/{}/screenshot", self.session), &json!({}))?;
        let picture = BASE64_STANDARD.decode(shown.as_str().unwrap_or_default())?;
        fs::write(Path::new(&folder).join(format!("{name}.png")), picture)?;
        Ok(())
    }

    /// A command of Chromium's own protocol.
    fn command(&self, command: &str, parameters: &Value) -> Result<()> {
        self.tell("goog/cdp/execute", &json!({"cmd": command, "params": parameters})).map(drop)
    }

    fn tell(&self, what: &str, body: &Value) -> Result<Value> {
        request(self.address, "POST", &format!("/session/{}/{what}", self.session), body)
    }
}

/// Sends a request to the driver, on a connection of its own. Returns the value of the answer.
fn request(address: SocketAddr, method: &str, path: &str, body: &Value) -> Result<Value> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let body = body.to_string();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes())?;
    let mut answer = BufReader::new(stream);
    let mut head = Vec::new();
    for line in answer.by_ref().lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        head.push(line);
    }
    let mut body = vec![0; length(&head).with_context(|| format!("{method} {path}: no answer"))?];
    answer.read_exact(&mut body)?;
    let mut body: Value = serde_json::from_slice(&body)?;
    ensure!(head[0].contains(" 200 "), "{method} {path}: {body}");
    Ok(body["value"].take())
}

/// The length of the body that these lines announce.
fn length(head: &[String]) -> Option<usize> {
    let mut fields = head.iter().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_measured() {
        let Some(browser) = Browser::start().unwrap() else { return skip::lacking(MISSING) };
        let page = "<style>p { color: rgb(0 0 0 / .5) } @media (prefers-color-scheme: dark) { body { background: black } }</style>\
                    <p>Half<div style='width: 500px'>Wide</div><button onclick='this.textContent = 2'>1</button>";
        browser.width(360).unwrap();
        browser.scheme("light").unwrap();
        browser.open(&format!("data:text/html,{page}")).unwrap();
        assert!(browser.overflow().unwrap() >= 140);
        let (ratio, text) = browser.contrast("p").unwrap();
        assert!((3.0..READABLE).contains(&ratio) && text == "Half", "{ratio}: {text}");
        browser.click("button").unwrap();
        browser.until("document.querySelector('button').textContent", "2").unwrap();
        assert_eq!(browser.log().unwrap(), Vec::<Value>::new());
        browser.scheme("dark").unwrap();
        assert!(browser.contrast("p").unwrap().0 < 1.1, "black on black");
        browser.value("console.error('broken')").unwrap();
        assert_eq!(browser.log().unwrap().len(), 1);
    }
}
