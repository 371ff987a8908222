//! `dflock bench`: loads a server over many connections, and checks that the locks really excluded.

mod histogram;
mod ledger;
mod plan;
mod report;
mod run;

use super::args::{Bench, Reach};
use super::outcome::Failure;
use super::{answer, reach};
use plan::{Keys, Length, Plan};
use std::time::Duration;
use wrapcmd::Form;

pub(super) async fn bench(bench: &Bench, reach: &Reach, form: Form) -> Result<u8, Failure> {
    let settings = reach::settings(reach)?;
    let [server] = settings.servers.addresses() else {
        return Err(Failure::Usage("bench loads one server; give --server once".to_owned()));
    };
    let length = Length::Time(Duration::from_secs(bench.duration.into()));
    let plan = Plan {
        connections: bench.connections,
        depth: bench.depth,
        keys: bench.keys.map_or(Keys::Own, Keys::Shared),
        limit: bench.limit,
        is_shared: bench.shared,
        timeout: Duration::from_secs(bench.timeout.into()),
        ttl: Duration::from_secs(bench.ttl.into()),
        length: bench.pairs.map_or(length, Length::Pairs),
        warm_up: Duration::from_millis(bench.warm_up.into()),
        key_prefix: bench.prefix.clone(),
    };
    plan.check().map_err(|error| Failure::Usage(error.to_string()))?;
    let report = run::run(plan, server, &settings).await?;
    answer(form, || report.to_string(), || report.to_json())?;
    Ok(u8::from(report.overlaps > 0))
}
