//! The page in a real browser, served by the real program, while real clients hold and wait.

use crate::driver::Browser;
use crate::site::Site;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testbed::dflockd::Talker;

/// Every row of the table as the texts of its cells.
const ROWS: &str = "return [...document.querySelectorAll('tbody tr')]
    .map(row => [...row.cells].map(cell => cell.innerText.replace(/\\s+/g, ' ').trim()))";
const STATE: &str = "return document.getElementById('state').dataset.state";
/// How many keys are shown.
const KEYS: &str = "return document.querySelectorAll('tbody').length";
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
const SPACE: &str = " ";

/// The page, as soon as it is live.
fn live(site: &Site) -> Browser {
    let browser = Browser::start();
    browser.open(&site.url("/"));
    browser.until(STATE, &json!("live"));
    browser
}

fn rows(browser: &Browser) -> Vec<Vec<String>> {
    serde_json::from_value(browser.run(ROWS)).unwrap()
}

fn shown(browser: &Browser, id: &str) -> String {
    let script = format!("return document.getElementById('{id}').innerText");
    browser.run(&script).as_str().unwrap().to_owned()
}

/// The number behind `3s` or `1m05s`, as far as tests let things become old.
fn seconds(text: &str) -> u32 {
    let number = text.strip_suffix('s').unwrap_or_else(|| panic!("{text:?} is no short span"));
    let (minutes, rest) = number.split_once('m').unwrap_or(("0", number));
    minutes.parse::<u32>().unwrap() * 60 + rest.parse::<u32>().unwrap()
}

/// The holders and waiters of a key, as the page names them.
fn parties(site: &Site, key: &str) -> [Vec<String>; 2] {
    let seen = site.holders();
    let keys = seen["keys"].as_array().unwrap();
    let entry = keys.iter().find(|entry| entry["key"] == key).unwrap();
    ["holders", "queue"].map(|list| {
        let name = |party: &Value| format!("#{} 127.0.0.1", party["connection"]);
        entry[list].as_array().unwrap().iter().map(name).collect()
    })
}

fn waiter(site: &Site, key: &str, place: usize) -> Talker {
    let mut talker = site.daemon.talk();
    talker.say(format!("l\n{key}\n600\n").as_bytes());
    site.daemon.until_stats(&format!("\"waiters\":{place}"));
    talker
}

#[test]
#[ignore = "needs programs: tests/run"]
fn the_page_shows_live_who_holds_and_who_waits() {
    let site = Site::start(&[]);
    let browser = live(&site);
    assert_eq!(shown(&browser, "empty"), "Nobody holds anything.");
    assert_eq!(browser.run("return document.getElementById('table').checkVisibility()"), false);

    let mut holder = site.daemon.talk();
    let token = holder.take("deploy", "0 100");
    let first = waiter(&site, "deploy", 1);
    let second = waiter(&site, "deploy", 2);
    assert!(holder.ask("sl", "pool", "0 3").starts_with("ok "));
    assert!(holder.ask("sl", "pool", "0 3").starts_with("ok "));
    for (id, count) in [("waiters", "2"), ("connections", "3"), ("holders", "3")] {
        let text = format!("return document.getElementById('{id}').innerText");
        browser.until(&text, &json!(count));
    }
    let [holders, waiters] = parties(&site, "deploy");
    let seen = rows(&browser);
    let [deploy, pool, again] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(deploy[0], "deploy");
    assert_eq!(deploy[1], holders[0]);
    assert!(seconds(&deploy[2]) < 50, "{deploy:?}");
    let left = seconds(&deploy[3]);
    assert!(left > 40 && left <= 100, "{deploy:?}");
    // In the order in which they came.
    let queue = deploy[4].split("s ").map(str::trim).filter(|line| !line.is_empty());
    let queue: Vec<_> = queue.map(|line| line.split(',').next().unwrap().to_owned()).collect();
    assert_eq!((queue.len(), &queue), (2, &waiters));
    assert_eq!((pool[0].as_str(), again.len()), ("pool semaphore, 2 of 3 held", 3));
    assert_eq!(again[0], holders[0]);
    let totals = ["keys", "holders", "waiters", "connections"].map(|id| shown(&browser, id));
    assert_eq!(totals, ["2", "3", "2", "3"]);

    // Time goes on without anybody doing anything.
    let held = seconds(&rows(&browser)[0][2]);
    let script = format!(
        "return parseFloat(document.querySelector('tbody td:nth-of-type(2)').innerText) > {held}"
    );
    browser.until(&script, &json!(true));

    // The release hands it to the next one, and the page sees it by itself.
    assert_eq!(holder.ask("r", "deploy", &token), "ok");
    let script = "return document.querySelector('tbody .party').innerText";
    browser.until(script, &json!(waiters[0]));
    assert_eq!(shown(&browser, "waiters"), "1");
    drop((holder, first, second));
    browser.until("return document.getElementById('empty').checkVisibility()", &json!(true));
    assert_eq!(rows(&browser).len(), 0);
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// The page says what it leaves out, and shows more of less.
#[test]
#[ignore = "needs programs: tests/run"]
fn the_page_says_what_it_leaves_out() {
    let site = Site::start(&[]);
    let _holder = site.hold((0..210).map(|key| format!("key-{key}")));
    let _waiters: Vec<_> = (0..23).map(|place| waiter(&site, "key-77", place + 1)).collect();
    let browser = live(&site);
    browser.until(KEYS, &json!(200));
    assert_eq!(shown(&browser, "extent"), "200 of 210 keys, those with the longest queues first");
    let queue = "return [...document.querySelectorAll('tbody li')].map(line => line.innerText)";
    let lines =
        |browser: &Browser| -> Vec<String> { serde_json::from_value(browser.run(queue)).unwrap() };
    assert_eq!(rows(&browser)[0][0], "key-77");
    let seen = lines(&browser);
    assert_eq!((seen.len(), seen[5].as_str()), (6, "and 18 more"));
    browser.type_into("#part", "y-77");
    browser.until(KEYS, &json!(1));
    let seen = lines(&browser);
    assert_eq!((seen.len(), seen[20].as_str()), (21, "and 3 more"));
    assert_eq!(shown(&browser, "extent"), "1 key");
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// Keys are strangers' text.
#[test]
#[ignore = "needs programs: tests/run"]
fn hostile_keys_are_text() {
    let keys = [
        "<img/src=x/onerror=alert(1)>",
        "</td><script>document.title='taken'</script>",
        "\"onmouseover=\"alert(1)",
        "javascript:alert(1)",
        "&lt;b&gt;",
        "{{7*7}}${7*7}",
        "a\u{202e}gnp.exe",
        "nul\0and\u{1b}[31m",
        "\u{1f512}ключ",
    ];
    let site = Site::start(&[]);
    let mut holder = site.daemon.talk();
    for key in keys {
        holder.take(key, "0 600");
    }
    let browser = live(&site);
    browser.until(KEYS, &json!(keys.len()));
    let mut seen: Vec<String> = rows(&browser).into_iter().map(|row| row[0].clone()).collect();
    let mut want = keys.map(|key| {
        let key = key.replace('\u{202e}', "\\u{202e}").replace('\0', "\\u{0}");
        key.replace('\u{1b}', "\\u{1b}")
    });
    seen.sort();
    want.sort();
    assert_eq!(seen, want);
    let count =
        |what: &str| browser.run(&format!("return document.querySelectorAll('{what}').length"));
    assert_eq!(
        (count("tbody img"), count("tbody script"), count("script")),
        (json!(0), json!(0), json!(1))
    );
    let title = json!(format!("{} \u{2013} dflockd", site.http));
    assert_eq!(browser.run("return document.title"), title);
    // In the field, in the address, and back.
    browser.type_into("#part", "<img/src=x");
    browser.until(KEYS, &json!(1));
    assert_eq!(rows(&browser)[0][0], keys[0]);
    browser.open(browser.run("return location.href").as_str().unwrap());
    browser.until(KEYS, &json!(1));
    assert_eq!(rows(&browser)[0][0], keys[0]);
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// What the policy forbids does not happen even if a script were smuggled into the page.
#[test]
#[ignore = "needs programs: tests/run"]
fn the_policy_is_kept_by_the_browser() {
    let site = Site::start(&[]);
    let browser = live(&site);
    let tries = [
        "document.body.innerHTML = '<b>x</b>'",
        "document.body.setAttribute('onclick', 'document.title = 1')",
        "document.createElement('script').src = '/page.js'",
        "document.createElement('script').text = 'document.title = 1'",
        "document.write('<b>x</b>')",
    ];
    for text in tries {
        let script =
            format!("try {{ {text}; return 'done' }} catch (error) {{ return error.name }}");
        assert_eq!(browser.run(&script), "TypeError", "{text}");
    }
    let other = Site::start(&["--http-host", "::1"]);
    let script =
        format!("return fetch('{}').then(() => 'done', error => error.name)", other.url("/health"));
    assert_eq!(browser.run(&script), "TypeError");
    browser.run(
        "const link = document.createElement('a'); link.href = 'javascript:document.title = 1';
         document.body.append(link); link.click();",
    );
    let title = json!(format!("{} \u{2013} dflockd", site.http));
    assert_eq!(browser.run("return document.title"), title);
    let console = browser.console();
    assert!(
        !console.is_empty()
            && console.iter().all(|line| {
                line.contains("Content Security Policy") || line.contains("'Trusted")
            }),
        "{console:?}"
    );
}

#[test]
#[ignore = "needs programs: tests/run"]
fn the_page_asks_for_the_secret_and_forgets_it() {
    let secret = "ses\u{e4}me \u{1f511}";
    let site = Site::start(&["--auth-token", secret]);
    let mut holder = site.daemon.talk();
    assert_eq!(holder.ask("auth", "_", secret), "ok");
    holder.take("deploy", "0 600");
    let browser = Browser::start();
    browser.open(&site.url("/"));
    let form = "return document.getElementById('login').checkVisibility()";
    browser.until(form, &json!(true));
    let focus = "return document.activeElement.id";
    assert_eq!(browser.run(focus), "secret");
    assert_eq!(browser.console(), Vec::<String>::new());

    browser.type_into("#secret", &format!("guess{ENTER}"));
    browser.until("return document.getElementById('refused').innerText", &json!("This is not it."));
    assert_eq!(rows(&browser).len(), 0);
    // The refusal is noted by the browser itself; nothing else is.
    let console = browser.console();
    assert!(console.len() == 1 && console[0].contains("401"), "{console:?}");

    // A field takes what a person types; this one is beyond the first plane.
    browser.run(&format!("document.getElementById('secret').value = '{secret}'"));
    browser.press(ENTER);
    browser.until(KEYS, &json!(1));
    assert_eq!(rows(&browser)[0][0], "deploy");
    assert_eq!(browser.run(form), false);
    let kept = browser.run(
        "return [location.href, document.cookie, localStorage.length, sessionStorage.length,
                 document.getElementById('secret').value, document.documentElement.outerHTML]",
    );
    assert!(!kept.to_string().contains("ses"), "{kept}");
    assert_eq!((&kept[2], &kept[3]), (&json!(0), &json!(0)));
    // A new page knows nothing.
    browser.open(&site.url("/"));
    browser.until(form, &json!(true));
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
#[ignore = "needs programs: tests/run"]
fn draining_and_a_lost_connection_are_told() {
    let mut site = Site::start(&[]);
    let mut holder = site.daemon.talk();
    holder.take("deploy", "0 600");
    let browser = live(&site);
    site.daemon.signal(Signal::SIGTERM);
    browser.until(STATE, &json!("draining"));
    assert!(shown(&browser, "state").starts_with("Draining"));
    assert_eq!(rows(&browser).len(), 1);
    assert_eq!(browser.console(), Vec::<String>::new());
    drop(holder);
    assert_eq!(site.daemon.ended().code(), Some(0));
    browser.until(STATE, &json!("lost"));
    assert!(shown(&browser, "state").starts_with("Connection lost"));
    // What was there stays readable and is marked as old.
    assert_eq!(browser.run("return 'stale' in document.getElementById('board').dataset"), true);
    // The server comes back, and the page finds it by itself.
    let port = site.http.port().to_string();
    let _daemon = testbed::dflockd::Daemon::start(&["--http-port", &port]);
    browser.until(STATE, &json!("live"));
}

/// Names and roles as a screen reader gets them, wide and narrow; everything by keyboard.
#[test]
#[ignore = "needs programs: tests/run"]
fn the_page_works_with_a_screen_reader_and_without_a_mouse() {
    let site = Site::start(&[]);
    let mut holder = site.daemon.talk();
    // As wide as keys come, without a place to break it.
    let wide = "w".repeat(256);
    holder.take(&wide, "0 600");
    let _waiter = waiter(&site, &wide, 1);
    let browser = live(&site);
    browser.until(KEYS, &json!(1));
    for width in [1280, 390, 320] {
        resize(&browser, width);
        let tree = browser.devtools("Accessibility.getFullAXTree", &json!({}));
        let nodes = tree["nodes"].as_array().unwrap();
        let names = |role: &str| -> Vec<String> {
            let of_role = nodes.iter().filter(|node| node["role"]["value"] == role);
            of_role
                .map(|node| node["name"]["value"].as_str().unwrap_or_default().to_owned())
                .collect()
        };
        assert_eq!(names("table"), ["Who holds what and who waits"], "{width}");
        let heads = ["Key", "Holder", "Held for", "Lease left", "Waiting, the next one first"];
        assert_eq!(names("columnheader"), heads, "{width}");
        assert_eq!(names("rowheader"), [wide.as_str()], "{width}");
        assert_eq!(
            (names("searchbox"), names("button")),
            (vec!["Keys with".to_owned()], vec!["Pause".to_owned()])
        );
        assert_eq!((names("status").len(), names("heading")), (1, vec!["dflockd".to_owned()]));
        assert_eq!(names("combobox"), ["Order"]);
        // The mark beside the state is round.
        let dot = "const dot = getComputedStyle(document.getElementById('state'), '::before');
                   return [dot.width, dot.height]";
        assert_eq!(browser.run(dot), json!(["12px", "12px"]), "{width}");
        // Nothing is wider than the window, which a small one would be widened for.
        let needed = browser.run("return document.documentElement.scrollWidth");
        assert_eq!(needed, width, "{width}");
    }
    assert_eq!(browser.run("return document.documentElement.lang"), "en");
    browser.press(TAB);
    assert_eq!(browser.run("return document.activeElement.id"), "pause");
    browser.press(SPACE);
    browser.until(STATE, &json!("paused"));
    browser.press(ENTER);
    browser.until(STATE, &json!("live"));
    browser.press(TAB);
    assert_eq!(browser.run("return document.activeElement.id"), "part");
    browser.press("nobody");
    browser.until(KEYS, &json!(0));
    assert_eq!(shown(&browser, "empty"), "No key in use has this in its name.");
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// Only behind a secret of its own, only after a question, and what is strangers' text stays text.
#[test]
#[ignore = "needs programs: tests/run"]
fn an_administrator_takes_a_lock_away() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("admin");
    std::fs::write(&file, "open sesame\n").unwrap();
    let site = Site::start(&["--admin-token-file", file.to_str().unwrap()]);
    let mut holder = site.daemon.talk();
    assert_eq!(holder.ask("name", "_", "alice@db1[4711] <b>backup</b>"), "ok");
    assert_eq!(holder.ask("value", "_", "<b>10.0.0.7:8080</b>"), "ok");
    let key = "a/b&<i>?key=other";
    let token = holder.take(key, "0 600");
    let browser = live(&site);
    browser.until(KEYS, &json!(1));
    let name = "return document.querySelector('.name').innerText";
    assert_eq!(browser.run(name), "alice@db1[4711] <b>backup</b>");
    let value = "return document.querySelector('.value').innerText";
    assert_eq!(browser.run(value), "<b>10.0.0.7:8080</b>");
    let deeds = "return [...document.querySelectorAll('.deeds button')].map(it => it.innerText)";
    assert_eq!(browser.run(deeds), json!([]));
    let unlock = |secret: &str| {
        browser.run("document.getElementById('unlock').click()");
        browser.type_into("#admin-secret", &format!("{secret}{ENTER}"));
        browser.until(deeds, &json!(["Release", "Kick"]));
        browser.run("document.querySelector('[data-deed=release]').click()");
        let question = "return document.getElementById('question').innerText";
        assert_eq!(browser.run(question), format!("Take {key} away from its holders?"));
    };
    unlock("guess");
    browser.run("document.getElementById('confirm').click()");
    let failed = "return document.getElementById('failed').innerText";
    browser.until(failed, &json!("The server refuses this secret."));
    browser.run("document.getElementById('leave').click()");
    browser.until(deeds, &json!([]));
    assert_eq!(holder.ask("n", key, &token), "ok 33");
    // The refusal is noted by the browser itself.
    assert_eq!(browser.console().len(), 1);

    unlock("open sesame");
    browser.run("document.getElementById('confirm').click()");
    browser.until("return document.getElementById('empty').checkVisibility()", &json!(true));
    assert_eq!(holder.ask("r", key, &token), "error");

    holder.take("kicked", "0 600");
    browser.until(deeds, &json!(["Release", "Kick"]));
    browser.run("document.querySelector('[data-deed=kick]').click()");
    browser.run("document.getElementById('confirm').click()");
    browser.until("return document.getElementById('empty').checkVisibility()", &json!(true));
    assert!(holder.is_closed());
    assert_eq!(browser.console(), Vec::<String>::new());
}

fn resize(browser: &Browser, width: u32) {
    let metrics =
        json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500});
    browser.devtools("Emulation.setDeviceMetricsOverride", &metrics);
}

/// A search on a paused page shows a new picture, paused again.
#[test]
#[ignore = "needs programs: tests/run"]
fn a_search_on_a_paused_page_leaves_it_paused() {
    let site = Site::start(&[]);
    let _holder = site.hold(["Deploy", "build"].map(str::to_owned).into_iter());
    let browser = Browser::start();
    browser.open(&site.url("/?key=DEP&order=key"));
    browser.until(KEYS, &json!(1));
    assert_eq!(rows(&browser)[0][0], "Deploy");
    let fields = "return ['part', 'order'].map(id => document.getElementById(id).value)";
    assert_eq!(browser.run(fields), json!(["DEP", "key"]));
    browser.run("document.getElementById('pause').click()");
    browser.until(STATE, &json!("paused"));
    let select = "const part = document.getElementById('part'); part.value = 'BUI';
                  part.dispatchEvent(new Event('input'))";
    browser.run(select);
    browser.until("return document.querySelector('tbody bdi').innerText", &json!("build"));
    assert_eq!(browser.run(STATE), "paused");
    assert_eq!(browser.run("return location.search"), "?key=BUI&order=key");
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// A server that stands still gives no error. The page says so long before it gives up.
#[test]
#[ignore = "needs programs: tests/run"]
fn old_news_is_not_live() {
    let site = Site::start(&[]);
    let _holder = site.hold(std::iter::once("deploy".to_owned()));
    let browser = live(&site);
    browser.until(KEYS, &json!(1));
    site.daemon.signal(Signal::SIGSTOP);
    browser.until(STATE, &json!("late"));
    assert!(shown(&browser, "state").starts_with("No answer for "));
    assert_eq!(browser.run("return 'stale' in document.getElementById('board').dataset"), true);
    site.daemon.signal(Signal::SIGCONT);
    browser.until(STATE, &json!("live"));
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// A lease is marked when little is left of its own length, however long that is.
#[test]
#[ignore = "needs programs: tests/run"]
fn a_short_lease_is_one_that_is_nearly_over() {
    let site = Site::start(&[]);
    let browser = live(&site);
    // All that is shown, also between two looks.
    browser.run(
        "new MutationObserver(() => {
            const cell = document.querySelector('td:nth-of-type(3)');
            if (cell) seen.push([parseFloat(cell.innerText), cell.classList.contains('short')]);
        }).observe(document.body, {subtree: true, childList: true})",
    );
    let mut holder = site.daemon.talk();
    // A browser that has no time for the last seconds of one lease has some for those of a longer one.
    let is_seen = [24, 40, 58].into_iter().any(|length| {
        browser.run("window.seen = []");
        holder.take("brief", &format!("0 {length}"));
        let is_over = "seen.length > 0 && document.querySelectorAll('tbody').length == 0";
        browser.until(&format!("return seen.some(it => it[1]) || {is_over}"), &json!(true));
        let seen: Vec<(f64, bool)> = serde_json::from_value(browser.run("return seen")).unwrap();
        let (short, long): (Vec<_>, Vec<_>) = seen.iter().partition(|(_, is_short)| *is_short);
        assert!(short.iter().all(|(left, _)| *left < 0.2 * f64::from(length) + 0.1), "{seen:?}");
        !short.is_empty() && !long.is_empty()
    });
    assert!(is_seen);
}
