//! `dflock bench`: loads a server over many connections, and checks that the locks really excluded.

mod histogram;
mod ledger;
mod report;
mod run;

use super::args::{Bench, Reach};
use super::outcome::Failure;
use super::{answer, reach};
use wrapcmd::Form;

pub(super) async fn bench(bench: Bench, reach: &Reach, form: Form) -> Result<u8, Failure> {
    let settings = reach::settings(reach)?;
    let [server] = settings.servers.addresses() else {
        return Err(Failure::Usage("bench loads one server; give --server once".to_owned()));
    };
    if bench.depth > 1 && bench.keys.is_some() {
        let words = "shared keys need a pipelining depth of 1: requests of one connection are served in order, so an \
                     acquire would wait for a release behind it";
        return Err(Failure::Usage(words.to_owned()));
    }
    let report = run::run(bench, server, &settings).await?;
    answer(form, || report.to_string(), || report.to_json())?;
    Ok(u8::from(report.ledger.overlaps > 0))
}
