//! The conversation on one connection, without its socket: decides whether a request may be sent, and makes answers
//! from the received bytes. Pure.
//!
//! Never takes the answer to one request for the answer to another: while one is awaited, no other request may be
//! sent, even if the caller that awaited it has gone.

use super::error::ClientError;
use super::terms::Token;
use leases::wire;

/// All answers to lock commands are much shorter than this.
pub(super) const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// A server with a million keys answers `stats` with about 90 MB.
pub(super) const MAX_STATS_BYTES: usize = 256 * 1024 * 1024;

/// The first byte with which a TLS server answers a client without TLS (RFC 8446, 5.1): an alert.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

/// Call [`Self::ask`], send the request, and then call [`Self::hear`] with the received bytes until there is an
/// answer. An error of either, or of the socket, ends the conversation.
#[derive(Debug)]
pub(super) struct Conversation {
    is_answered: bool,
    line: Vec<u8>,
    news: Vec<Token>,
}

impl Conversation {
    pub(super) fn new() -> Self {
        Self { is_answered: true, line: Vec::new(), news: Vec::new() }
    }

    /// A request is about to be sent.
    ///
    /// # Errors
    /// [`ClientError::Broken`] if an earlier one has not been answered.
    pub(super) fn ask(&mut self) -> Result<(), ClientError> {
        if !std::mem::replace(&mut self.is_answered, false) {
            return Err(ClientError::closed());
        }
        Ok(())
    }

    /// Takes received bytes for an answer of at most so many bytes; no bytes mean the end of the connection. Returns
    /// how many of them were used, and the answer if it is complete.
    ///
    /// # Errors
    /// The end of the connection, or bytes that are not an answer.
    pub(super) fn hear(
        &mut self,
        bytes: &[u8],
        most_bytes: usize,
    ) -> Result<(usize, Option<String>), ClientError> {
        if bytes.is_empty() {
            return Err(ClientError::closed());
        }
        if self.line.is_empty() && bytes.starts_with(&TLS_ALERT) {
            return Err(ClientError::strange("the server speaks TLS; see --tls"));
        }
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let (part, _) = bytes.split_at(end.unwrap_or(bytes.len()));
        self.line.extend_from_slice(part);
        if self.line.len() > most_bytes {
            return Err(ClientError::strange("a line without end"));
        }
        if end.is_none() {
            return Ok((part.len(), None));
        }
        let mut line = std::mem::take(&mut self.line);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        let line =
            String::from_utf8(line).map_err(|_| ClientError::strange("bytes that are not text"))?;
        if let Some(token) = wire::read_lost(&line) {
            self.news.extend(Token::new(token));
            return Ok((part.len() + 1, None));
        }
        if self.is_answered {
            return Err(ClientError::strange(&line));
        }
        self.is_answered = true;
        Ok((part.len() + 1, Some(line)))
    }

    /// The token of a hold that was taken away.
    pub(super) fn news(&mut self) -> Option<Token> {
        self.news.pop()
    }

    /// No further requests: the other end has gone, or has sent something unasked.
    pub(super) fn end(&mut self) {
        self.is_answered = false;
    }

    /// Whether no answer is awaited.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered
    }
}

#[cfg(test)]
mod tests {
    use super::Conversation;
    use crate::error::ClientError;
    use crate::terms::Token;
    use rstest::rstest;

    /// The answers, and the bytes that are left, however they are split.
    #[rstest]
    #[case(b"ok 33\n", "ok 33", b"")]
    #[case(b"ok\r\n", "ok", b"")]
    #[case(b"ok\nmore\n", "ok", b"more\n")]
    #[case(b"\n", "", b"")]
    #[case::behind_news(b"lost 0123\nlost 4567\nok\n", "ok", b"")]
    #[case::before_news(b"ok\nlost 0123\n", "ok", b"lost 0123\n")]
    fn an_answer_ends_with_its_line(#[case] bytes: &[u8], #[case] want: &str, #[case] rest: &[u8]) {
        for cut in 1..=bytes.len() {
            let mut conversation = Conversation::new();
            conversation.ask().unwrap();
            let (mut left, mut answer) = (bytes, None);
            while answer.is_none() {
                let (used, heard) = conversation.hear(&left[..cut.min(left.len())], 64).unwrap();
                (left, answer) = (&left[used..], heard);
            }
            assert_eq!((answer.as_deref(), left), (Some(want), rest), "cut at {cut}");
            assert!(conversation.is_answered());
        }
    }

    /// Between requests, however the bytes are split.
    #[test]
    fn news_may_come_unasked() {
        let bytes = b"lost 0123\nlost 4567\n";
        for cut in 1..=bytes.len() {
            let mut conversation = Conversation::new();
            let (mut left, mut tokens) = (&bytes[..], Vec::new());
            while !left.is_empty() {
                let (used, heard) = conversation.hear(&left[..cut.min(left.len())], 64).unwrap();
                assert_eq!(heard, None);
                left = &left[used..];
                tokens.extend(conversation.news());
            }
            let tokens: Vec<&str> = tokens.iter().map(Token::as_str).collect();
            assert_eq!(tokens, ["0123", "4567"], "cut at {cut}");
            conversation.ask().unwrap();
        }
        let unasked = Conversation::new().hear(b"error_draining\n", 64).map(drop);
        assert!(matches!(unasked, Err(ClientError::Strange(_))), "{unasked:?}");
    }

    #[rstest]
    #[case::the_longest(b"12345678\n", None)]
    #[case::one_more(b"123456789\n", Some("not a dflockd answer: a line without end"))]
    #[case::without_end(b"123456789", Some("not a dflockd answer: a line without end"))]
    #[case::no_text(b"\xff\n", Some("not a dflockd answer: bytes that are not text"))]
    #[case::an_alert(
        b"\x15\x03\x01",
        Some("not a dflockd answer: the server speaks TLS; see --tls")
    )]
    #[case::the_end(b"", Some("connection lost: closed by the server"))]
    fn bytes_that_are_no_answer_end_the_conversation(
        #[case] bytes: &[u8],
        #[case] words: Option<&str>,
    ) {
        let mut conversation = Conversation::new();
        conversation.ask().unwrap();
        let heard = conversation.hear(bytes, 8).map_err(|error| error.to_string());
        assert_eq!(heard.err().as_deref(), words);
        assert_eq!(conversation.is_answered(), words.is_none());
    }

    /// An answer that its caller no longer awaits is never taken for the answer to the next request.
    #[test]
    fn no_request_is_sent_before_the_last_answer() {
        let mut conversation = Conversation::new();
        conversation.ask().unwrap();
        assert!(matches!(conversation.ask(), Err(ClientError::Broken(_))));
        conversation.hear(b"o", 8).unwrap();
        assert!(matches!(conversation.ask(), Err(ClientError::Broken(_))));
        conversation.hear(b"k\n", 8).unwrap();
        conversation.ask().unwrap();
        conversation.end();
        assert!(conversation.ask().is_err());
    }
}
