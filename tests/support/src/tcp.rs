//! The TCP sockets of a network, as its kernel lists them.

use std::collections::HashSet;
use std::fs;

/// A row of `/proc/net/tcp` or `/proc/net/tcp6`. Addresses are as they stand there.
#[derive(Debug)]
pub struct TcpSocket {
    /// The address of this end.
    pub address: String,
    /// The port of this end.
    pub port: u16,
    /// The port of the other end.
    pub peer_port: u16,
    /// One of the constants.
    pub state: u8,
    /// The timer that runs and its time left, as they stand there.
    pub timer: String,
    /// The number by which links in `/proc/PID/fd` name it.
    pub inode: u64,
}

impl TcpSocket {
    /// Both ends are open.
    pub const ESTABLISHED: u8 = 1;
    /// This end is closed, and the other one has not acknowledged it.
    pub const FIN_WAIT1: u8 = 4;
    /// It takes connections.
    pub const LISTEN: u8 = 10;

    /// The sockets of this process's network with IPv4.
    ///
    /// # Panics
    /// The kernel does not tell.
    #[must_use]
    pub fn all() -> Vec<Self> {
        Self::of_table(&table())
    }

    /// Those among them that this process has open.
    ///
    /// # Panics
    /// The process has ended.
    #[must_use]
    pub fn of_process(pid: u32) -> Vec<Self> {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process");
        let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        let open: HashSet<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
        // On a machine that has just had thousands of connections, most rows are none of any process.
        let is_row = |row: &&str| {
            let inode = row.split_whitespace().nth(9).unwrap_or_default();
            open.contains(&format!("socket:[{inode}]"))
        };
        table().lines().filter(is_row).map(|row| Self::of_row(row).expect("a row")).collect()
    }

    /// The sockets in such a table.
    ///
    /// # Panics
    /// It is none.
    #[must_use]
    pub fn of_table(table: &str) -> Vec<Self> {
        table.lines().skip(1).map(|row| Self::of_row(row).expect("a row of a socket")).collect()
    }

    fn of_row(row: &str) -> Option<Self> {
        let words: Vec<&str> = row.split_whitespace().collect();
        let (address, port) = words.get(1)?.split_once(':')?;
        let (_, peer_port) = words.get(2)?.split_once(':')?;
        Some(Self {
            address: address.to_owned(),
            port: u16::from_str_radix(port, 16).ok()?,
            peer_port: u16::from_str_radix(peer_port, 16).ok()?,
            state: u8::from_str_radix(words.get(3)?, 16).ok()?,
            timer: (*words.get(5)?).to_owned(),
            inode: words.get(9)?.parse().ok()?,
        })
    }
}

fn table() -> String {
    fs::read_to_string("/proc/net/tcp").expect("the list of TCP sockets")
}
