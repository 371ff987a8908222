//! A way to a member of etcd on which answers can be lost or late.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// What becomes of the answers of the member. It receives all requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    Passed,
    Lost,
    /// They come later.
    Kept,
}

#[derive(Clone)]
pub(crate) struct Relay {
    pub(crate) address: String,
    answers: Arc<(Mutex<Answers>, Condvar)>,
}

impl Relay {
    pub(crate) fn to(member: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answers = Arc::new((Mutex::new(Answers::Passed), Condvar::new()));
        let relay = Self { address, answers };
        let (member, it) = (member.to_owned(), relay.clone());
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let far = TcpStream::connect(&member).unwrap();
                let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
                let it = it.clone();
                std::thread::spawn(move || pass(back, || it.passes()));
                std::thread::spawn(move || pass((near, far), || true));
            }
        });
        relay
    }

    pub(crate) fn set(&self, answers: Answers) {
        *self.answers.0.lock().unwrap() = answers;
        self.answers.1.notify_all();
    }

    /// Waits while answers are kept.
    fn passes(&self) -> bool {
        let answers = self.answers.0.lock().unwrap();
        let answers = self.answers.1.wait_while(answers, |it| *it == Answers::Kept).unwrap();
        *answers == Answers::Passed
    }
}

fn pass((mut from, mut to): (TcpStream, TcpStream), passes: impl Fn() -> bool) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if passes() && to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}
