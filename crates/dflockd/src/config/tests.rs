//! Words on the command line and in the environment, as tables.

use super::*;
use rstest::rstest;

fn config(arguments: &[&str], environment: &[(&str, &str)]) -> Config {
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    let lookup = |name: &str| {
        environment.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
    };
    match Config::read(&arguments, lookup) {
        Ok(Wish::Run(config)) => *config,
        other => panic!("{other:?}"),
    }
}

#[test]
fn defaults_are_the_documented_ones() {
    let config = config(&[], &[]);
    let settings = &config.settings;
    assert_eq!((config.host.as_str(), config.port, config.debug), ("127.0.0.1", 6388, false));
    assert_eq!(config.http, None);
    assert_eq!((config.tls, config.unix_socket.is_none()), (None, true));
    let times = [settings.read_timeout, settings.write_timeout, settings.shutdown_timeout];
    assert_eq!(times.map(Seconds::count), [23, 5, 30]);
    let caps = settings.caps;
    assert_eq!((caps.max_locks, caps.max_waiters), (1024, 0));
    assert_eq!((caps.gc_interval.count(), caps.gc_max_idle.count()), (5, 60));
    // The library promises the same to those who begin with its own.
    assert_eq!(format!("{caps:?}"), format!("{:?}", Caps::DEFAULT));
    assert_eq!((settings.max_connections, settings.max_connections_per_address), (0, 0));
    assert_eq!(settings.auto_release, AutoRelease::On);
}

#[rstest]
#[case(&["--http-port", "80"], &[], Some(("127.0.0.1", 80)))]
#[case(&["--http-port", "80", "--http-host", "[::1]"], &[], Some(("::1", 80)))]
#[case(&["--http-host", "0.0.0.0"], &[], None)]
#[case(&["--http-port=0"], &[("DFLOCKD_HTTP_PORT", "81")], None)]
#[case(
    &[], &[("DFLOCKD_HTTP_PORT", "81"), ("DFLOCKD_HTTP_HOST", "box")], Some(("box", 81))
)]
fn http_is_off_unless_a_port_is_named(
    #[case] arguments: &[&str],
    #[case] environment: &[(&str, &str)],
    #[case] want: Option<(&str, u16)>,
) {
    let http = config(arguments, environment).http;
    assert_eq!(http, want.map(|(host, port)| (host.to_owned(), port)));
}

#[rstest]
#[case("0", AutoRelease::Off)]
#[case("no", AutoRelease::Off)]
#[case("NO", AutoRelease::Off)]
#[case("False", AutoRelease::Off)]
#[case("1", AutoRelease::On)]
#[case("yes", AutoRelease::On)]
#[case("f", AutoRelease::On)]
#[case("off", AutoRelease::On)]
#[case("", AutoRelease::On)]
fn environment_switches(#[case] word: &str, #[case] want: AutoRelease) {
    let config = config(&[], &[("DFLOCKD_AUTO_RELEASE_ON_DISCONNECT", word)]);
    assert_eq!(config.settings.auto_release, want);
}

#[rstest]
#[case(&["--debug"], true)]
#[case(&["-debug=T"], true)]
#[case(&["--debug=FALSE"], false)]
#[case(&["--debug=0", "--debug"], true)]
fn switches_take_values_after_an_equals_sign(#[case] arguments: &[&str], #[case] want: bool) {
    assert_eq!(config(arguments, &[("DFLOCKD_DEBUG", "no")]).debug, want);
}

/// The names of both versions; the newer one wins.
#[rstest]
#[case(&[("DFLOCKD_GC_LOOP_SLEEP", "7")], 7)]
#[case(&[("DFLOCKD_GC_INTERVAL_S", "8")], 8)]
#[case(&[("DFLOCKD_GC_LOOP_SLEEP", "7"), ("DFLOCKD_GC_INTERVAL_S", "8")], 8)]
fn the_newer_name_of_an_environment_variable_wins(
    #[case] environment: &[(&str, &str)],
    #[case] want: u64,
) {
    assert_eq!(config(&[], environment).settings.caps.gc_interval.count(), want);
}

#[rstest]
#[case("10", Some(10))]
#[case("-10", Some(-10))]
#[case("+10", Some(10))]
#[case("0x10", Some(16))]
#[case("0b11", Some(3))]
#[case("0o17", Some(15))]
#[case("017", Some(15))]
#[case("0", Some(0))]
#[case("9223372036854775807", Some(i64::MAX))]
#[case("9223372036854775808", None)]
#[case("", None)]
#[case("-", None)]
#[case("+-1", None)]
#[case("1.0", None)]
#[case("08", None)]
#[case("0x", None)]
#[case("0x-1", None)]
#[case(" 1", None)]
fn numbers_are_parsed_as_by_go(#[case] text: &str, #[case] want: Option<i64>) {
    assert_eq!(flags::number(text), want);
}

#[test]
fn no_secret_is_shown() {
    let config = config(&["--auth-token", "sesame"], &[]);
    assert!(!format!("{config:?}").contains("sesame"));
}

/// A unit file, a script: the defaults in the units are options that exist.
#[test]
fn the_units_name_real_options() {
    let unit = include_str!("../../etc/dflockd.service");
    for word in unit.split_whitespace().filter_map(|word| word.strip_prefix("--")) {
        let known = |flag: &Flag| word.trim_end_matches('.') == flag.name;
        assert!(FLAGS.iter().any(known), "--{word}");
    }
    for line in unit.lines().filter_map(|line| line.strip_prefix("#   ")) {
        let name = line.split('=').next().unwrap_or_default();
        assert!(FLAGS.iter().any(|flag| flag.env.contains(&name)), "{name}");
    }
}
