//! Debian's Chromium, driven over WebDriver (W3C) by plain HTTP: chromedriver is its server.

use crate::site::answer_on;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A page may take its time on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);
const ADVICE: &str = "this test needs chromium and chromium-driver: run .ci/install";
const CHROMIUM: &str = "/usr/bin/chromium";
const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--window-size=1280,900",
];

/// The browser of all tests, which one test has at a time: to start one costs more than most tests do with it.
static BROWSER: Mutex<Option<Driver>> = Mutex::new(None);

/// Ends the browser and what is left of it when its input ends, with this program.
const KEEPER: &str = "{ chromedriver --port=0; kill -KILL 0; } &
    read -r session; read -r over
    curl -s --max-time 9 -X DELETE \"$session\"; rm -rf \"$HOME\"; kill -KILL 0";

/// One browser with one window and a profile of its own, and its keeper.
struct Driver {
    keeper: Child,
    port: u16,
    session: String,
}

/// The turn of a test. The browser is on an empty page before and after it.
pub(crate) struct Browser(MutexGuard<'static, Option<Driver>>);

impl Browser {
    pub(crate) fn start() -> Self {
        assert!(Path::new(CHROMIUM).exists(), "{ADVICE}");
        let mut turn = BROWSER.lock().unwrap_or_else(|failed| {
            // The last test left it somewhere.
            BROWSER.clear_poison();
            let mut turn = failed.into_inner();
            *turn = None;
            turn
        });
        turn.get_or_insert_with(Driver::start);
        let browser = Self(turn);
        browser.devtools("Emulation.clearDeviceMetricsOverride", &json!({}));
        browser.console();
        browser
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let driver = self.0.as_ref().unwrap();
        driver.call(method, &format!("{}{path}", driver.session), body)
    }

    pub(crate) fn open(&self, url: &str) {
        self.command("POST", "/url", &json!({"url": url}));
    }

    /// What a function body in the page returns.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.command("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until the page says so.
    pub(crate) fn until(&self, script: &str, want: &Value) {
        let deadline = Instant::now() + PATIENCE;
        let mut last = self.run(script);
        while last != *want {
            assert!(Instant::now() < deadline, "{script} is {last}, not {want}");
            std::thread::sleep(PAUSE);
            last = self.run(script);
        }
    }

    /// Types into what has the focus or, with a selector, into that.
    pub(crate) fn type_into(&self, selector: &str, text: &str) {
        let found =
            self.command("POST", "/element", &json!({"using": "css selector", "value": selector}));
        let element = found.as_object().unwrap().values().next().unwrap().as_str().unwrap();
        self.command("POST", &format!("/element/{element}/value"), &json!({"text": text}));
    }

    /// Keys for whatever has the focus.
    pub(crate) fn press(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
            })
            .collect();
        let body = json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]});
        self.command("POST", "/actions", &body);
    }

    /// Chromium's own protocol, for what WebDriver has no word for.
    pub(crate) fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.command("POST", "/goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// What the console got since the last call: errors, warnings, violations of the policy.
    pub(crate) fn console(&self) -> Vec<String> {
        let log = self.command("POST", "/se/log", &json!({"type": "browser"}));
        let message = |entry: &Value| entry["message"].as_str().unwrap().to_owned();
        log.as_array().unwrap().iter().map(message).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.open("about:blank");
        }
    }
}

impl Driver {
    fn start() -> Self {
        let profile = tempfile::tempdir().unwrap().keep();
        let (keeper, port) = start_driver(&profile);
        let data = format!("--user-data-dir={}", profile.display());
        let flags: Vec<&str> = FLAGS.into_iter().chain([data.as_str()]).collect();
        let wishes = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"binary": CHROMIUM, "args": flags},
        }}});
        let mut driver = Self { keeper, port, session: String::new() };
        let session = driver.call("POST", "/session", &wishes);
        driver.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        let keeper = driver.keeper.stdin.as_mut().unwrap();
        writeln!(keeper, "http://127.0.0.1:{port}{}", driver.session).unwrap();
        driver
    }

    /// One command of the protocol; its value.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.try_call(method, path, body).expect("chromedriver answers");
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer["value"].clone()
    }

    fn try_call(&self, method: &str, path: &str, body: &Value) -> std::io::Result<(u16, Value)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
            text.len()
        );
        stream.write_all(head.as_bytes())?;
        let answer = answer_on(&mut stream)?;
        Ok((answer.status, answer.json()))
    }
}

/// A chromedriver that listens, and its port. It has the system choose a port for IPv6, and ends if another program
/// has that port for IPv4.
fn start_driver(home: &Path) -> (Child, u16) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut driver = Command::new("sh")
            .args(["-c", KEEPER])
            .env("HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect(ADVICE);
        match port_of(&mut driver) {
            Ok(port) => return (driver, port),
            Err(said) => {
                driver.wait().unwrap();
                let is_taken = said.contains("port not available");
                assert!(
                    is_taken && Instant::now() < deadline,
                    "chromedriver does not start: {said}"
                );
            }
        }
    }
}

/// The port that chromedriver says it took, or all that it said before it ended.
fn port_of(driver: &mut Child) -> Result<u16, String> {
    let mut output = BufReader::new(driver.stdout.take().unwrap());
    let mut said = String::new();
    loop {
        let mut line = String::new();
        let count = output.read_line(&mut line).unwrap();
        if count == 0 {
            return Err(said);
        }
        said += &line;
        let Some(rest) = line.split("on port ").nth(1) else { continue };
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if let Some(port) = digits.parse().ok().filter(|&port| port > 0) {
            // What else it says must not fill the pipe.
            std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
            return Ok(port);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
