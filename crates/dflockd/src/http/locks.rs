//! Locks over HTTP: one request of a client → one request to the engine → one answer. A client has a session, which is a
//! connection to the engine, or asks for a hold that belongs to no connection.

use super::reply::{self, Fault, JSON, ReplyBody};
use super::request::request;
use super::request::{self, Deed, Form};
use super::site::{Caller, Site};
use crate::server::{Denied, Full, PARTIES_PER_TURN, SessionId, Shared, Visit};
use hyper::Response;
use hyper::header::HeaderMap;
use hyper::http::StatusCode;
use hyper::http::request::Parts;
use leases::wire::tag_of;
use leases::{Answer, Grant, Key, Progress, Refusal, Sight};
use std::fmt::Write as _;
use std::task::Context;

/// The session of a request.
const SESSION: &str = "x-dflockd-session";
/// The name of the client, for people.
const NAME: &str = "x-dflockd-name";

impl From<Denied> for Fault {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Gone => Self::SessionGone,
            Denied::Left => Self::ClientCanceled,
            Denied::Draining => Self::Refused(Refusal::Draining),
            Denied::Failed => Self::StoreAway,
        }
    }
}

impl Site {
    pub(super) async fn open_session(
        &self,
        caller: &Caller,
        is_draining: bool,
    ) -> Result<Response<ReplyBody>, Fault> {
        if is_draining || self.handle.is_draining() {
            return Err(Fault::Refused(Refusal::Draining));
        }
        self.handle.recorded().await?;
        let opened = self.handle.open_session(caller.address);
        let id = opened.map_err(|full| match full {
            Full::All => Fault::MaxSessions,
            Full::Address => Fault::MaxSessionsPerAddress,
        })?;
        let idle = self.handle.settings.http.session_idle.count();
        let body = format!("{{\"session_id\":\"{id}\",\"idle_timeout_s\":{idle}}}");
        Ok(reply::whole(StatusCode::OK, JSON, body))
    }

    pub(super) async fn end_session(&self, id: &str) -> Result<Response<ReplyBody>, Fault> {
        let id = SessionId::parse(id.as_bytes()).ok_or(Fault::SessionGone)?;
        self.handle.end_session(id).then_some(()).ok_or(Fault::SessionGone)?;
        // What it held is free, whatever happens next.
        self.handle.recorded().await?;
        Ok(reply::nothing())
    }

    pub(super) fn ping_session(&self, id: &str) -> Result<Response<ReplyBody>, Fault> {
        let id = SessionId::parse(id.as_bytes()).ok_or(Fault::SessionGone)?;
        Visit::of(&self.handle, id).ok_or(Fault::SessionGone)?;
        Ok(reply::nothing())
    }

    /// Asks the engine for what the request says.
    pub(super) async fn ask(
        &self,
        (form, deed): (Form, Deed),
        (head, name, body): (&Parts, &[u8], &[u8]),
        caller: &Caller,
        is_draining: bool,
    ) -> Result<Response<ReplyBody>, Fault> {
        let key = key(name)?;
        let (is_alone, is_shared) = request::manner(head.uri.query())?;
        let form = match form {
            Form::Lock if is_shared => Form::Shared,
            Form::Semaphore if is_shared => {
                return Err(Fault::Invalid("a semaphore cannot be shared"));
            }
            Form::Lock | Form::Shared | Form::Semaphore => form,
        };
        // As the reference: a client whose session is gone learns that, whatever it has sent.
        let visit = self.visit(&head.headers, is_alone, deed, caller)?;
        let request = request(deed, form, key, body)?;
        let mut poll_peer = |cx: &mut Context<'_>| caller.poll_parting(cx);
        answer(form, &visit.ask(request, is_draining, &mut poll_peer).await?)
    }

    /// The connection to the engine by which a request is made.
    fn visit(
        &self,
        headers: &HeaderMap,
        is_alone: bool,
        deed: Deed,
        caller: &Caller,
    ) -> Result<Visit<'_>, Fault> {
        let visit = match (headers.get(SESSION), is_alone) {
            (Some(id), false) => {
                let id = SessionId::parse(id.as_bytes()).ok_or(Fault::SessionGone)?;
                Visit::of(&self.handle, id).ok_or(Fault::SessionGone)?
            }
            (None, true) if matches!(deed, Deed::Enqueue | Deed::Wait) => {
                return Err(Fault::Invalid("a place in a line needs a session"));
            }
            (None, true) => Visit::alone(&self.handle, caller.address),
            (None, false) => {
                return Err(Fault::Invalid("X-Dflockd-Session, or ?session=none, is missing"));
            }
            (Some(_), true) => {
                return Err(Fault::Invalid(
                    "X-Dflockd-Session and ?session=none exclude each other",
                ));
            }
        };
        if let Some(name) = headers.get(NAME) {
            visit.set_name(name.as_bytes());
        }
        Ok(visit)
    }

    /// Who has the key, and who waits; on request, as soon as its holders are others than the client has seen.
    pub(super) async fn show_key(
        &self,
        (head, name): (&Parts, &[u8]),
        caller: &Caller,
    ) -> Result<Response<ReplyBody>, Fault> {
        let key = key(name)?;
        let sight = match request::watched(head.uri.query())? {
            None => self.handle.sight(key),
            Some((last, timeout)) => {
                let visit = Visit::alone(&self.handle, caller.address);
                let mut poll_peer = |cx: &mut Context<'_>| caller.poll_parting(cx);
                let seen = visit.watch(key, Some(last), timeout, &mut poll_peer).await?;
                seen.map_err(Fault::Refused)?
            }
        };
        let body = show(&self.handle, key, sight.as_ref()).await;
        self.handle.recorded().await?;
        Ok(reply::whole(StatusCode::OK, JSON, body))
    }
}

fn key(name: &[u8]) -> Result<Key<'_>, Fault> {
    Key::new(name).ok_or(Fault::Invalid("a key has 1 to 256 bytes, and no white space"))
}

/// The tag is that of a moment before the lists are read: what changes meanwhile is told by the next watch.
async fn show(shared: &Shared, key: Key<'_>, sight: Option<&Sight>) -> String {
    let mut body = format!("{{\"tag\":\"{:016x}\",", tag_of(sight));
    if let Some(sight) = sight {
        // Writing to a String cannot fail.
        let _ = write!(body, "\"fence\":\"{}\",", sight.fence);
    }
    let start = body.len();
    let mut report = shared.whole_key_report(key);
    let mut step = || shared.key_piece(&mut report, &mut { PARTIES_PER_TURN }, &mut body);
    while shared.pace.step(&mut step).await != Progress::Done {}
    // The brace of the object is there already.
    body.remove(start);
    body
}

/// The answer of the engine as JSON.
fn answer(form: Form, answer: &Answer) -> Result<Response<ReplyBody>, Fault> {
    let body = match answer {
        Answer::Granted(grant) => granted("ok", form, grant),
        Answer::Acquired(grant) => granted("acquired", form, grant),
        Answer::Queued => "{\"status\":\"queued\"}".to_owned(),
        Answer::TimedOut => "{\"status\":\"timeout\"}".to_owned(),
        Answer::Renewed(ttl) => format!("{{\"remaining_s\":{}}}", ttl.span().count()),
        Answer::Released => return Ok(reply::nothing()),
        Answer::Refused(refusal) => return Err(Fault::Refused(*refusal)),
        // Several locks cannot be asked for here.
        Answer::All(_) | _ => return Err(Fault::BadRequest),
    };
    Ok(reply::whole(StatusCode::OK, JSON, body))
}

/// A fence is text, because many readers of JSON round numbers of its size.
fn granted(status: &str, form: Form, grant: &Grant) -> String {
    let (digits, ttl) = (grant.token.digits(), grant.ttl.span().count());
    let (token, fence) = (String::from_utf8_lossy(&digits), grant.token.fence());
    // To the engine, a semaphore with one slot is a lock.
    let slot = (form == Form::Semaphore).then(|| grant.slot.unwrap_or(0));
    let slot = slot.map_or_else(String::new, |slot| format!(",\"slot\":{slot}"));
    format!(
        "{{\"status\":\"{status}\",\"token\":\"{token}\",\"lease_ttl_s\":{ttl},\
         \"fence\":\"{fence}\"{slot}}}"
    )
}
