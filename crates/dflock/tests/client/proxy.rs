//! A proxy before a server that fails as networks do: it resets one side, drops bytes, delays them, or is gone for
//! a while.

use socket2::SockRef;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testbed::dflockd::listen_on_free_port;

/// How soon a fault is noticed by those who carry bytes.
const LOOK_UP: Duration = Duration::from_millis(10);

/// The two ends of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// One connection through the proxy. A side that was reset is gone.
struct Link {
    client: Mutex<Option<Arc<TcpStream>>>,
    server: Mutex<Option<Arc<TcpStream>>>,
    swallows: AtomicBool,
    stalls: AtomicBool,
}

impl Link {
    fn side(&self, side: Side) -> &Mutex<Option<Arc<TcpStream>>> {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    fn stream(&self, side: Side) -> Option<Arc<TcpStream>> {
        self.side(side).lock().unwrap().clone()
    }

    /// The kernel sends the reset when nobody uses the socket any more.
    fn reset(&self, side: Side) {
        if let Some(stream) = self.side(side).lock().unwrap().take() {
            let _ = SockRef::from(&*stream).set_linger(Some(Duration::ZERO));
        }
    }
}

#[derive(Default)]
struct State {
    links: Mutex<Vec<Arc<Link>>>,
    swallows_all: AtomicBool,
    delay_ms: AtomicU64,
}

/// Listens for clients of one server.
pub(crate) struct Proxy {
    server: SocketAddr,
    address: SocketAddr,
    state: Arc<State>,
    /// Set to end the thread that accepts.
    end: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) fn to(server: SocketAddr) -> Self {
        // One that comes back where it was: nobody may have got its port meanwhile.
        let listener = listen_on_free_port("127.0.0.1");
        let address = listener.local_addr().unwrap();
        let proxy = Self { server, address, state: Arc::default(), end: Arc::default() };
        proxy.accept(listener);
        proxy
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    fn accept(&self, listener: TcpListener) {
        let (server, state, end) = (self.server, Arc::clone(&self.state), Arc::clone(&self.end));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                // A server that is not there: the client's connection ends.
                let Ok(stream) = TcpStream::connect(server) else { continue };
                open(&state, client, stream);
            }
        });
    }

    /// From now on nothing gets through, not even the end of a connection.
    pub(crate) fn cut(&self) {
        self.state.swallows_all.store(true, Ordering::SeqCst);
    }

    /// Swallows what is sent on the connections there are; new ones work.
    pub(crate) fn swallow_what_is_open(&self) {
        self.each(|link| link.swallows.store(true, Ordering::SeqCst));
    }

    /// Holds back what the server sends on the connections there are; new ones work.
    pub(crate) fn stall_answers(&self) {
        self.each(|link| link.stalls.store(true, Ordering::SeqCst));
    }

    /// Delivers what was held back.
    pub(crate) fn deliver_answers(&self) {
        self.each(|link| link.stalls.store(false, Ordering::SeqCst));
    }

    /// Resets one side of the connections there are; the other learns nothing.
    pub(crate) fn reset(&self, side: Side) {
        self.each(|link| {
            link.swallows.store(true, Ordering::SeqCst);
            link.reset(side);
        });
    }

    pub(crate) fn delay(&self, time: Duration) {
        self.state.delay_ms.store(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Ends with all its connections, as a killed process does.
    pub(crate) fn kill(&mut self) {
        self.end.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        self.each(|link| {
            link.reset(Side::Client);
            link.reset(Side::Server);
        });
        self.state.links.lock().unwrap().clear();
    }

    /// Listens again, where it did.
    pub(crate) fn revive(&mut self) {
        self.end = Arc::default();
        testbed::dflockd::until("the port is free", || match TcpListener::bind(self.address) {
            Ok(listener) => {
                self.accept(listener);
                true
            }
            Err(_) => false,
        });
    }

    fn each(&self, fault: impl Fn(&Link)) {
        self.state.links.lock().unwrap().iter().for_each(|link| fault(link));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.kill();
    }
}

fn open(state: &Arc<State>, client: TcpStream, server: TcpStream) {
    let shared = |stream: TcpStream| {
        stream.set_read_timeout(Some(LOOK_UP)).unwrap();
        stream.set_nodelay(true).unwrap();
        Mutex::new(Some(Arc::new(stream)))
    };
    let (swallows, stalls) = (AtomicBool::new(false), AtomicBool::new(false));
    let link = Arc::new(Link { client: shared(client), server: shared(server), swallows, stalls });
    state.links.lock().unwrap().push(Arc::clone(&link));
    for (from, to) in [(Side::Client, Side::Server), (Side::Server, Side::Client)] {
        let (state, link) = (Arc::clone(state), Arc::clone(&link));
        std::thread::spawn(move || carry(&state, &link, from, to));
    }
}

/// Carries bytes and their end one way, until the side they come from is gone.
fn carry(state: &State, link: &Link, from: Side, to: Side) {
    let swallows =
        || state.swallows_all.load(Ordering::SeqCst) || link.swallows.load(Ordering::SeqCst);
    let mut piece = [0; 4096];
    while let Some(source) = link.stream(from) {
        let length = match (&*source).read(&mut piece) {
            Ok(length) => length,
            // Also when the machine stood still: a read with a limit is then interrupted.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(_) => 0,
        };
        drop(source);
        let delay = Duration::from_millis(state.delay_ms.load(Ordering::SeqCst));
        std::thread::sleep(delay);
        while from == Side::Server && link.stalls.load(Ordering::SeqCst) {
            std::thread::sleep(LOOK_UP);
        }
        if !swallows() {
            let Some(sink) = link.stream(to) else { return };
            if length == 0 {
                let _ = sink.shutdown(Shutdown::Write);
            } else if (&*sink).write_all(&piece[..length]).is_err() {
                return;
            }
        }
        if length == 0 {
            return;
        }
    }
}
