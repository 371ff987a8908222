//! `dflock bench`: runs the load generator.

use super::args::{Bench, Reach};
use super::outcome::Failure;
use super::{print, reach};
use crate::load::{Keys, Length, LoadError, Plan};
use crate::{ClientError, Refusal, ServerAddress};
use std::time::Duration;

pub(super) fn bench(bench: &Bench, reach: &Reach, json: bool) -> Result<u8, Failure> {
    let servers = reach::servers(reach);
    let [server] = servers.addresses() else {
        return Err(Failure::Usage("bench loads one server; give --server once".to_owned()));
    };
    if reach.tls || reach.tls_ca.is_some() || reach.tls_name.is_some() {
        return Err(Failure::Usage("bench does not speak TLS".to_owned()));
    }
    let plan = Plan {
        server: server.clone(),
        auth_token: reach::auth_token(reach.auth_token_file.as_deref())?,
        connections: bench.connections,
        depth: bench.depth,
        keys: bench.keys.map_or(Keys::Own, Keys::Shared),
        limit: bench.limit,
        is_shared: bench.shared,
        timeout: Duration::from_secs(bench.timeout.into()),
        ttl: Duration::from_secs(bench.ttl.into()),
        length: bench
            .pairs
            .map_or(Length::Time(Duration::from_secs(bench.duration.into())), Length::Pairs),
        warm_up: Duration::from_millis(bench.warm_up.into()),
        key_prefix: bench.prefix.clone(),
    };
    plan.check().map_err(|error| Failure::Usage(error.to_string()))?;
    let report = crate::load::run(&plan).map_err(load_failure(server))?;
    let text = if json { format!("{}\n", report.to_json()) } else { report.to_string() };
    print(&text)?;
    Ok(u8::from(report.overlaps > 0))
}

fn load_failure(server: &ServerAddress) -> impl FnOnce(LoadError) -> Failure {
    let server = server.clone();
    move |error| match error {
        LoadError::Plan(error) => Failure::Usage(error.to_string()),
        LoadError::Connect(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            ClientError::Refused(Refusal::Auth).into()
        }
        LoadError::Connect(error) => ClientError::Connect { server, error }.into(),
        LoadError::System(error) => Failure::System("running the load", error),
    }
}
