//! Recipes for other people's programs, as they stand in the documents.

use crate::kitchen::{HTTP_SERVER, Kitchen, block, recipe};
use rstest::rstest;
use std::fs;
use std::path::Path;

/// What a job writes whose runs take turns.
fn turns(count: usize) -> Vec<&'static str> {
    ["begin", "end"].repeat(count)
}

/// A job that shows whether another one runs beside it.
const TURN: &str = "echo begin >>log; sleep 0.2; echo end >>log";

/// Four visitors of a real web server, and one after it has lost its lock server.
#[test]
#[ignore = "needs root: tests/run"]
fn visitors_of_a_php_page_make_the_report_in_turns() {
    let kitchen = Kitchen::new(&[("make-report", TURN)]);
    let page = block("recipes.md", "php").replace("locks.example", "localhost");
    fs::write(kitchen.path().join("index.php"), page).unwrap();
    let report = "<?php function make_report($fence) { `./make-report`; return \"$fence\\n\"; }\n";
    fs::write(kitchen.path().join("make_report.php"), report).unwrap();
    let end = kitchen.boil(&format!(
        "{HTTP_SERVER}server=$!
         PHP_CLI_SERVER_WORKERS=4 php -S localhost:8000 >web 2>&1 &
         until grep -qs started web; do sleep 0.05; done
         for i in 1 2 3 4; do curl -sS localhost:8000 >out.$i & jobs=\"${{jobs-}} $!\"; done; wait $jobs
         sort -nu out.? | wc -l
         kill $server; wait $server
         curl -s -w ' %{{http_code}}' localhost:8000"
    ));
    assert_eq!(kitchen.lines("log"), turns(4), "{end:?} {:?}", kitchen.lines("web"));
    assert_eq!(end.out, "4\nno answer 503", "{end:?}");
}

/// The job of the Java program, which takes its turn after another holder, outlasts the lease; and loses its lock. The
/// times are shorter than those of the recipe.
#[rstest]
#[case::it_ends(false, "7", "held ended other")]
#[case::its_lock_is_taken_away(true, "1", "held other")]
#[ignore = "needs root: tests/run"]
fn a_java_program_holds_a_lock_for_its_job(
    #[case] forced: bool,
    #[case] code: &str,
    #[case] log: &str,
) {
    let job =
        "echo held >>log; sleep 6 & trap 'kill $!; exit' TERM; wait $!; echo ended >>log; exit 7";
    let kitchen = Kitchen::new(&[("job", job)]);
    let mut program = block("recipes.md", "java").replace("locks.example", "localhost");
    for (written, tried) in [
        ("\\\"lease_ttl_s\\\":30", "\\\"lease_ttl_s\\\":5"),
        (" 30 * SECOND", " 5 * SECOND"),
        ("-10 * SECOND", "-1 * SECOND"),
        ("worker), 5, 5,", "worker), 1, 1,"),
    ] {
        assert!(program.contains(written), "{written}");
        program = program.replace(written, tried);
    }
    fs::write(kitchen.path().join("Nightly.java"), program).unwrap();
    let end = kitchen.boil(&format!(
        "(umask 077; echo administrator >secret)
         dflockd --http-port 6389 --admin-token-file secret 2>/dev/null &
         until dflock ping >/dev/null 2>&1; do sleep 0.05; done
         dflock run nightly -- sleep 1 &
         java -XX:-UsePerfData Nightly.java job & java=$!
         until [ -s log ]; do sleep 0.05; done
         dflock run nightly -- sh -c 'echo other >>log' & other=$!
         {forced} && dflock force-release --admin-token-file secret nightly
         wait $java; echo $?; wait $other; curl -s localhost:6389/v1/locks/nightly"
    ));
    assert_eq!(kitchen.lines("log").join(" "), log, "{end:?}");
    assert!(
        end.out.contains(&format!("{code}\n{{")) && end.out.contains("\"holders\":[]"),
        "{end:?}"
    );
}

/// Two people deploy at a time; the tasks of the second one fail, and the lock is free at once.
#[test]
#[ignore = "needs root: tests/run"]
fn ansible_plays_take_turns() {
    let kitchen = Kitchen::new(&[("deploy-here", &format!("{TURN}; mkdir once"))]);
    let play = block("dflock.md", "ansible").replace("locks.example", "localhost");
    fs::write(kitchen.path().join("play.yml"), play).unwrap();
    let end = kitchen.boil(&format!(
        "{HTTP_SERVER}export HOME=$PWD LC_ALL=C.UTF-8
         for i in 1 2; do
             ansible-playbook -i localhost, -c local play.yml >out.$i 2>&1 & jobs=\"${{jobs-}} $!\"
         done
         for job in $jobs; do wait $job; echo $? >>codes; done; sort codes
         curl -s localhost:6389/v1/locks/deploy"
    ));
    assert_eq!(kitchen.lines("log"), turns(2), "{end:?} {:?}", kitchen.lines("out.1"));
    assert!(end.out.starts_with("0\n2\n{") && end.out.contains("\"holders\":[]"), "{end:?}");
}

/// Three changes at a time of a state that has no locks. Each replaces what the one before it has made.
#[test]
#[ignore = "needs root: tests/run"]
fn changes_of_a_state_without_locks_take_turns() {
    // Neither is in Debian, nor in a package of Python, Node or Rust.
    let has = |name: &&str| Path::new("/usr/local/bin").join(name).exists();
    let Some(program) = ["tofu", "terraform"].into_iter().find(has) else {
        println!("left out: neither OpenTofu nor Terraform is on this machine");
        return;
    };
    let tofu = format!("exec {program} \"$@\"");
    let kitchen = Kitchen::new(&[("take-turn", TURN), ("tofu", &tofu)]);
    let state = "variable \"run\" {}
        resource \"terraform_data\" \"turn\" {
            triggers_replace = var.run
            provisioner \"local-exec\" { command = \"take-turn\" }
        }\n";
    fs::write(kitchen.path().join("main.tf"), state).unwrap();
    let apply = recipe("tofu");
    let end = kitchen.cook(&format!(
        "export HOME=$PWD; tofu init -input=false >init
         for i in 1 2 3; do TF_VAR_run=$i sh -c '{apply}' >out.$i 2>&1 & jobs=\"${{jobs-}} $!\"; done
         for job in $jobs; do wait $job; echo $?; done
         grep -h 'Apply complete' out.? | sort"
    ));
    assert_eq!(kitchen.lines("log"), turns(3), "{end:?} {:?}", kitchen.lines("out.1"));
    let [replaced, made] = [1, 0].map(|number| format!("{number} destroyed"));
    let found = |text: &str| end.out.matches(text).count();
    assert_eq!((found(&replaced), found(&made)), (2, 1), "{end:?}");
    assert!(end.out.starts_with("0\n0\n0\n"), "{end:?}");
}

/// A database behind a pooler in transaction mode, which is asked for its own lock first: both clients get it.
#[test]
#[ignore = "needs root: tests/run"]
fn a_migration_behind_a_pooler_is_done_once() {
    let migrate = "[ $(psql -qAtc 'select count(*) from versions') = 0 ] || { echo nothing to do >>log; exit; }
        sleep 0.2
        psql -qc 'create table orders (); insert into versions values (1)' && echo migrated >>log";
    let kitchen = Kitchen::new(&[("migrate", migrate)]);
    let pooler = "[databases]\nshop = host=DIR dbname=postgres user=shop\n[pgbouncer]\nlisten_addr = 127.0.0.1
        listen_port = 6432\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 1\n";
    let place = kitchen.path().to_str().unwrap();
    fs::write(kitchen.path().join("pooler.ini"), pooler.replace("DIR", place)).unwrap();
    let end = kitchen.cook(&format!(
        "chown postgres .; PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
         as() {{ setpriv --reuid postgres --regid postgres --clear-groups \"$@\"; }}
         as initdb -N -A trust -U shop data >init
         as postgres -D data -c fsync=off -c unix_socket_directories=$PWD -c listen_addresses= 2>server &
         as pgbouncer pooler.ini 2>pooler &
         export PGHOST=127.0.0.1 PGPORT=6432 PGDATABASE=shop PGUSER=shop
         until psql -qc 'create table versions (number int)' 2>answer; do sleep 0.05; done
         mkfifo go
         (echo 'select pg_try_advisory_lock(1);'; cat go) | psql -qAt >first & first=$!
         until [ -s first ]; do sleep 0.05; done
         psql -qAtc 'select pg_try_advisory_lock(1)'; cat first
         echo >go; wait $first
         for i in 1 2 3; do ({migration}) & jobs=\"${{jobs-}} $!\"; done
         for job in $jobs; do wait $job; echo $?; done",
        migration = recipe("migration")
    ));
    assert_eq!(end.out, "t\nt\n0\n0\n0\n", "{end:?} {:?}", kitchen.lines("pooler"));
    assert_eq!(kitchen.lines("log"), ["migrated", "nothing to do", "nothing to do"], "{end:?}");
}
