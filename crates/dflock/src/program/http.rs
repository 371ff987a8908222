//! An administrator's request to a server's HTTP port, and its answer, as text. Pure.

/// No answer to such a request comes near this.
pub(super) const MAX_ANSWER_BYTES: u64 = 64 * 1024;

/// The bytes of a `POST` without a body.
pub(super) fn post_request(host: &str, path: &str, secret: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\
         Authorization: Bearer "
    );
    [head.as_bytes(), secret, b"\r\n\r\n"].concat()
}

/// Bytes as a value in a query.
pub(super) fn escaped(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len());
    for &byte in value {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The status code, and the body as text. Nothing when that is no HTTP.
pub(super) fn read_answer(bytes: &[u8]) -> Option<(u16, String)> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let digits = head.strip_prefix("HTTP/1.")?.get(2..5)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let status = is_number.then(|| digits.parse().ok()).flatten()?;
    Some((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{answer, escaped, post};
    use rstest::rstest;

    #[test]
    fn a_post_request_has_host_length_and_secret() {
        let text =
            String::from_utf8(post_request("localhost:6389", "/v1/x?key=a", b"sesame")).unwrap();
        assert!(text.starts_with("POST /v1/x?key=a HTTP/1.1\r\nHost: localhost:6389\r\n"));
        assert!(text.ends_with("\r\nAuthorization: Bearer sesame\r\n\r\n"));
    }

    #[rstest]
    #[case(b"my-job_1.a~", "my-job_1.a~")]
    #[case(b"a/b&c=d e%", "a%2Fb%26c%3Dd%20e%25")]
    #[case(b"\r\n\0\xff", "%0D%0A%00%FF")]
    fn a_key_is_escaped_in_a_url(#[case] key: &[u8], #[case] text: &str) {
        assert_eq!(escaped(key), text);
    }

    #[rstest]
    #[case(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{\"released\":1}", Some((200, "{\"released\":1}")))]
    #[case(b"HTTP/1.0 404 Not Found\r\n\r\n", Some((404, "")))]
    #[case(b"HTTP/1.1 2+0 OK\r\n\r\n", None)]
    #[case(b"HTTP/1.1 20", None)]
    #[case(b"error\n", None)]
    #[case(b"", None)]
    fn an_answer_is_http(#[case] bytes: &[u8], #[case] want: Option<(u16, &str)>) {
        assert_eq!(read_answer(bytes), want.map(|(status, body)| (status, body.to_owned())));
    }
}
