//! curl, the most common client, as people and scripts use it.

use crate::site::Site;
use rstest::rstest;
use std::process::{Command, Output};

fn curl(arguments: &[&str]) -> Output {
    Command::new("curl")
        .args(["-sS", "--max-time", "20", "--noproxy", "*"])
        .args(arguments)
        .output()
        .expect("this test needs curl: run .ci/install")
}

#[rstest]
#[case::health(&[], "/health", "200 application/json")]
#[case::head(&["-I", "-o", "/dev/null"], "/health", "200 application/json")]
#[case::old(&["--http1.0"], "/ready", "200 application/json")]
#[case::upgrade_to_2(&["--http2"], "/ready", "200 application/json")]
#[case::compressed(&["--compressed"], "/v1/stats", "200 application/json")]
#[case::post(&["-d", "a=b"], "/v1/stats", "405 application/json")]
#[case::upload(&["-T", "/etc/hostname"], "/v1/stats", "405 application/json")]
#[case::body_of_get(&["-X", "GET", "-d", "a=b"], "/v1/stats", "413 application/json")]
#[case::query(&["-G", "--data-urlencode", "key=a b/ü"], "/v1/holders", "200 application/json")]
#[case::form(&["-G", "-d", "limit=x"], "/v1/holders", "400 application/json")]
#[case::preflight(&["-X", "OPTIONS", "-H", "Origin: https://evil.example"], "/v1/stats", "405 application/json")]
#[case::dots(&["--path-as-is"], "/v1/../health", "404 application/json")]
#[case::stranger(&["-H", "Host: evil.example"], "/", "421 application/json")]
#[ignore = "needs programs: tests/run"]
fn curl_gets_the_right_status_and_type(
    #[case] arguments: &[&str],
    #[case] path: &str,
    #[case] want: &str,
) {
    let site = Site::start(&[]);
    let url = site.url(path);
    let seen = ["-o", "/dev/null", "-w", "%{http_code} %{content_type}"];
    let output = curl(&[&seen, arguments, &[&url]].concat());
    assert_eq!(String::from_utf8_lossy(&output.stdout), want, "{output:?}");
}

#[test]
#[ignore = "needs programs: tests/run"]
fn one_connection_serves_many_requests() {
    let site = Site::start(&[]);
    let urls: Vec<String> = ["/health", "/nowhere", "/metrics", "/v1/stats"]
        .iter()
        .map(|path| site.url(path))
        .collect();
    let mut arguments = vec!["-w", "%{num_connects}\n"];
    for url in &urls {
        arguments.extend(["-o", "/dev/null", url]);
    }
    assert_eq!(String::from_utf8_lossy(&curl(&arguments).stdout), "1\n0\n0\n0\n");
}

#[test]
#[ignore = "needs programs: tests/run"]
fn the_secret_as_people_show_it() {
    let site = Site::start(&["--auth-token", "sesame"]);
    let url = site.url("/v1/stats");
    let status = |more: &[&str]| {
        let seen = ["-o", "/dev/null", "-w", "%{http_code}", url.as_str()];
        String::from_utf8(curl(&[&seen, more].concat()).stdout).unwrap()
    };
    assert_eq!(status(&[]), "401");
    assert_eq!(status(&["-H", "Authorization: Bearer sesame"]), "200");
    assert_eq!(status(&["--oauth2-bearer", "sesame"]), "200");
    assert_eq!(status(&["-u", "x:sesame"]), "401");
}
