//! Reads what a request is to change: the path's verb, the key and the JSON body → a request to the engine.

use super::reply::Fault;
use super::route::{Deed, Form};
use leases::{Claim, Key, Limit, Request, Seconds, Token, Ttl};
use serde_json::{Map, Value};

/// The longest body of a request.
pub(super) const MAX_BODY_BYTES: usize = 4096;

/// The members of a body, of which only those with these names may be there.
struct Members(Map<String, Value>);

impl Members {
    /// No body is an empty object.
    fn parse(body: &[u8], names: &[&str]) -> Result<Self, Fault> {
        if body.trim_ascii().is_empty() {
            return Ok(Self(Map::new()));
        }
        let members: Map<String, Value> = serde_json::from_slice(body)
            .map_err(|_| Fault::Invalid("the body is not a JSON object"))?;
        if members.keys().all(|name| names.contains(&name.as_str())) {
            Ok(Self(members))
        } else {
            Err(Fault::Invalid("the body has an unknown member"))
        }
    }

    /// A whole number; `None` if it is not there, or null.
    fn number(&self, name: &str, wrong: &'static str) -> Result<Option<u64>, Fault> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or(Fault::Invalid(wrong)),
        }
    }

    fn seconds(&self, name: &str, wrong: &'static str) -> Result<Seconds, Fault> {
        let seconds = self.number(name, wrong)?.and_then(Seconds::new);
        seconds.ok_or(Fault::Invalid(wrong))
    }

    /// 0 stands for the server's default.
    fn ttl(&self) -> Result<Option<Ttl>, Fault> {
        const WRONG: &str = "lease_ttl_s must be a whole number, 0 to 9223372036";
        match self.number("lease_ttl_s", WRONG)? {
            None | Some(0) => Ok(None),
            Some(seconds) => Ttl::new(seconds).map(Some).ok_or(Fault::Invalid(WRONG)),
        }
    }

    fn token(&self) -> Result<Token, Fault> {
        let token = self.0.get("token").and_then(Value::as_str);
        let token = token.and_then(|text| Token::parse(text.as_bytes()));
        token.ok_or(Fault::Invalid("token must be 32 lower-case hexadecimal digits"))
    }

    fn claim(&self, form: Form) -> Result<Claim, Fault> {
        const WRONG: &str = "limit must be a whole number, at least 1";
        match form {
            Form::Lock => Ok(Claim::LOCK),
            Form::Shared => Ok(Claim::Shared),
            Form::Semaphore => {
                let limit = self.number("limit", WRONG)?.and_then(Limit::new);
                limit.map(Claim::Slot).ok_or(Fault::Invalid(WRONG))
            }
        }
    }
}

/// The request of a body.
pub(super) fn request<'a>(
    deed: Deed,
    form: Form,
    key: Key<'a>,
    body: &[u8],
) -> Result<Request<'a>, Fault> {
    let has_limit = form == Form::Semaphore && matches!(deed, Deed::Acquire | Deed::Enqueue);
    let names: &[&str] = match deed {
        Deed::Acquire => &["acquire_timeout_s", "lease_ttl_s", "limit"],
        Deed::Enqueue => &["lease_ttl_s", "limit"],
        Deed::Wait => &["timeout_s"],
        Deed::Release => &["token"],
        Deed::Renew => &["lease_ttl_s", "token"],
    };
    // The limit comes last where it may come at all.
    let names = names.strip_suffix(&["limit"]).filter(|_| !has_limit).unwrap_or(names);
    let members = Members::parse(body, names)?;
    Ok(match deed {
        Deed::Acquire => {
            const WRONG: &str = "acquire_timeout_s must be a whole number, 0 to 9223372036";
            let timeout = members.seconds("acquire_timeout_s", WRONG)?;
            Request::Acquire { key, claim: members.claim(form)?, timeout, ttl: members.ttl()? }
        }
        Deed::Enqueue => Request::Enqueue { key, claim: members.claim(form)?, ttl: members.ttl()? },
        Deed::Wait => {
            const WRONG: &str = "timeout_s must be a whole number, 0 to 9223372036";
            Request::Wait { key, timeout: members.seconds("timeout_s", WRONG)? }
        }
        Deed::Release => Request::Release { key, token: Some(members.token()?) },
        Deed::Renew => Request::Renew { key, token: Some(members.token()?), ttl: members.ttl()? },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const TOKEN: &str = "000000000000000f00000000000000a0";

    fn read(deed: Deed, form: Form, body: &str) -> Result<Request<'static>, Fault> {
        request(deed, form, Key::new(b"k").unwrap(), body.as_bytes())
    }

    fn key() -> Key<'static> {
        Key::new(b"k").unwrap()
    }

    fn acquire(claim: Claim, timeout: u64, ttl: Option<u64>) -> Request<'static> {
        let ttl = ttl.map(|ttl| Ttl::new(ttl).unwrap());
        Request::Acquire { key: key(), claim, timeout: Seconds::new(timeout).unwrap(), ttl }
    }

    #[rstest]
    #[case(Form::Lock, r#"{"acquire_timeout_s":0}"#, acquire(Claim::LOCK, 0, None))]
    #[case(
        Form::Lock,
        r#" {"acquire_timeout_s": 10, "lease_ttl_s": 60} "#,
        acquire(Claim::LOCK, 10, Some(60))
    )]
    #[case(
        Form::Lock,
        r#"{"acquire_timeout_s":9223372036,"lease_ttl_s":0}"#,
        acquire(Claim::LOCK, 9_223_372_036, None)
    )]
    #[case(
        Form::Lock,
        r#"{"acquire_timeout_s":1,"lease_ttl_s":null}"#,
        acquire(Claim::LOCK, 1, None)
    )]
    #[case(Form::Shared, r#"{"acquire_timeout_s":1}"#, acquire(Claim::Shared, 1, None))]
    #[case(Form::Semaphore, r#"{"acquire_timeout_s":1,"limit":5}"#, acquire(Claim::Slot(Limit::new(5).unwrap()), 1, None))]
    fn whole_numbers_are_read(#[case] form: Form, #[case] body: &str, #[case] want: Request<'_>) {
        assert_eq!(read(Deed::Acquire, form, body), Ok(want));
    }

    #[test]
    fn the_other_verbs() {
        let token = Token::parse(TOKEN.as_bytes());
        let named = format!("{{\"token\":\"{TOKEN}\"}}");
        let renewed = format!("{{\"token\":\"{TOKEN}\",\"lease_ttl_s\":7}}");
        let (key, ttl) = (key(), Ttl::new(7));
        let timeout = Seconds::new(3).unwrap();
        let cases = [
            (Deed::Release, named.as_str(), Request::Release { key, token }),
            (Deed::Renew, &named, Request::Renew { key, token, ttl: None }),
            (Deed::Renew, &renewed, Request::Renew { key, token, ttl }),
            (Deed::Wait, r#"{"timeout_s":3}"#, Request::Wait { key, timeout }),
            (Deed::Enqueue, "", Request::Enqueue { key, claim: Claim::LOCK, ttl: None }),
            (Deed::Enqueue, "{}", Request::Enqueue { key, claim: Claim::LOCK, ttl: None }),
        ];
        for (deed, body, want) in cases {
            assert_eq!(read(deed, Form::Lock, body), Ok(want), "{body}");
        }
    }

    #[rstest]
    #[case(Deed::Acquire, Form::Lock, "")]
    #[case(Deed::Acquire, Form::Lock, "{}")]
    #[case(Deed::Acquire, Form::Lock, "[]")]
    #[case(Deed::Acquire, Form::Lock, "7")]
    #[case(Deed::Acquire, Form::Lock, "{\"acquire_timeout_s\":0")]
    #[case(Deed::Acquire, Form::Lock, r#"{"acquire_timeout_s":0} x"#)]
    #[case(Deed::Acquire, Form::Lock, r#"{"acquire_timeout_s":-1}"#)]
    #[case(Deed::Acquire, Form::Lock, r#"{"acquire_timeout_s":1.5}"#)]
    #[case(Deed::Acquire, Form::Lock, r#"{"acquire_timeout_s":1.0}"#)]
    #[case(Deed::Acquire, Form::Lock, r#"{"acquire_timeout_s":"1"}"#)]
    #[case(Deed::Acquire, Form::Lock, r#"{"acquire_timeout_s":null}"#)]
    #[case(Deed::Acquire, Form::Lock, r#"{"acquire_timeout_s":9223372037}"#)]
    #[case(Deed::Acquire, Form::Lock, r#"{"acquire_timeout_s":1,"lease_ttl_s":9223372037}"#)]
    #[case(Deed::Acquire, Form::Lock, r#"{"acquire_timeout_s":1,"lease_ttl_s":-1}"#)]
    #[case(Deed::Acquire, Form::Lock, r#"{"acquire_timeout_s":1,"limit":1}"#)]
    #[case(Deed::Acquire, Form::Lock, r#"{"acquire_timeout_s":1,"ttl":1}"#)]
    #[case(Deed::Acquire, Form::Semaphore, r#"{"acquire_timeout_s":1}"#)]
    #[case(Deed::Acquire, Form::Semaphore, r#"{"acquire_timeout_s":1,"limit":0}"#)]
    #[case(Deed::Enqueue, Form::Semaphore, "{}")]
    #[case(Deed::Enqueue, Form::Lock, r#"{"acquire_timeout_s":1}"#)]
    #[case(Deed::Wait, Form::Lock, "{}")]
    #[case(Deed::Wait, Form::Semaphore, r#"{"timeout_s":1,"limit":1}"#)]
    #[case(Deed::Release, Form::Lock, "{}")]
    #[case(Deed::Release, Form::Lock, r#"{"token":""}"#)]
    #[case(Deed::Release, Form::Lock, r#"{"token":"000000000000000F00000000000000A0"}"#)]
    #[case(Deed::Renew, Form::Lock, r#"{"token":7}"#)]
    fn anything_else_is_refused(#[case] deed: Deed, #[case] form: Form, #[case] body: &str) {
        assert!(matches!(read(deed, form, body), Err(Fault::Invalid(_))), "{body}");
    }
}
