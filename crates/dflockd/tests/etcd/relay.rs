//! A way to members of etcd, or to a server, on which answers can be lost or late.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// What becomes of the answers. All requests arrive.
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
    /// A relay to places, separated by commas. Its own address then has as many parts.
    pub(crate) fn to(places: &str) -> Self {
        let answers = Arc::new((Mutex::new(Answers::Passed), Condvar::new()));
        let mut relay = Self { address: String::new(), answers };
        let addresses: Vec<String> = places.split(',').map(|place| relay.listen(place)).collect();
        relay.address = addresses.join(",");
        relay
    }

    fn listen(&self, place: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (place, it) = (place.to_owned(), self.clone());
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&place) else { continue };
                let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
                let it = it.clone();
                std::thread::spawn(move || pass(back, || it.passes()));
                std::thread::spawn(move || pass((near, far), || true));
            }
        });
        address
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
            break;
        }
    }
    // One end is gone: the other end is told.
    let _ = to.shutdown(Shutdown::Write);
}
