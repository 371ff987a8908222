//! A lock service for the lines of its input: `cargo run -p leases --example conversation`
//!
//! A line has the number of a client (1, 2 or 3) and a request of the protocol, whose three lines are separated by `|`:
//!
//! ```text
//! 1 l|nightly|10
//! 2 l|nightly|10
//! 1 r|nightly|TOKEN
//! ```
//!
//! Client 1 gets the lock (`ok TOKEN 33`), client 2 waits, and gets it when client 1 has released it.

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead};
use std::time::Instant;

use leases::{
    Answer, AutoRelease, Caps, ConnId, Effect, Engine, Mint, Moment, Token, Verdict, wire,
};

/// Tokens in the order of their fences, which nobody can guess.
struct Fences(u64, RandomState);

impl Mint for Fences {
    fn token(&mut self) -> Token {
        self.0 += 1;
        Token::new(self.0, self.1.hash_one(self.0))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let mut engine = Engine::new(Caps::DEFAULT, Fences(0, RandomState::new()), RandomState::new());
    let clients = [1, 2, 3].map(|serial| engine.connect(serial));
    for line in io::stdin().lock().lines() {
        let line = line?;
        let now = Moment::from_micros(begin.elapsed().as_micros().try_into()?);
        let (number, request) = line.split_once(' ').ok_or("a client's number, and a request")?;
        let client = number.parse::<usize>()?.checked_sub(1).and_then(|at| clients.get(at));
        let client = *client.ok_or("client 1, 2 or 3")?;
        // Leases that have ended meanwhile make room for those who wait.
        engine.advance(now);
        print_effects(&mut engine, &clients);

        let mut lines = request.split('|').map(str::as_bytes);
        match wire::parse([(); 3].map(|()| lines.next().unwrap_or_default())) {
            Ok(wire::Command::Lock(request)) => match engine.ask(now, client, request) {
                Verdict::Now(answer) => print(&clients, client, &answer),
                Verdict::Later => println!("{number} waits"),
            },
            Ok(other) => println!("{number} asks for {other:?}, which is not about locks"),
            Err(fault) => println!("{number} {}", fault.words()),
        }
        print_effects(&mut engine, &clients);
    }
    let now = Moment::from_micros(begin.elapsed().as_micros().try_into()?);
    for client in clients {
        engine.disconnect(now, client, AutoRelease::On);
    }
    Ok(())
}

/// Answers to requests that had to wait.
fn print_effects(engine: &mut Engine, clients: &[ConnId]) {
    while let Some(effect) = engine.take_effect() {
        if let Effect::Answer(client, answer) = effect {
            print(clients, client, &answer);
        }
    }
}

fn print(clients: &[ConnId], client: ConnId, answer: &Answer) {
    let number = clients.iter().position(|it| *it == client).map_or(0, |at| at + 1);
    let mut line = Vec::new();
    wire::push_answer(&mut line, answer, true);
    print!("{number} {}", String::from_utf8_lossy(&line));
}
