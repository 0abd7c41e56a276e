//! The proxy on the sandbox's loopback: one thread that moves bytes between clients inside and
//! channels to Wharf, which alone decides and dials. It looks up no name and reaches no network.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wharf_toolbox::message::Signal;
use wharf_toolbox::wire::{INSIDE, Kind};

use crate::link::Link;
use crate::peer::Peer;
use crate::wake::Sleeper;

/// Clients at once, asking and connected; more wait in the kernel's queue.
const CLIENTS: usize = 320;
/// How often the clients' time is looked at.
const LOOK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The listener and its clients.
pub struct Proxy {
    listener: TcpListener,
    link: Arc<Link>,
    sleeper: Sleeper,
    peers: BTreeMap<u32, Peer>,
    next: u32,
}

/// What a poll watches for.
#[derive(Clone, Copy)]
enum Watched {
    Sleeper,
    Listener,
    Peer(u32),
}

impl Proxy {
    /// Listens at a port of the loopback; gives the port that it got.
    pub fn open(port: u16, link: Arc<Link>, sleeper: Sleeper) -> std::io::Result<(Proxy, u16)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let proxy = Proxy {
            listener,
            link,
            sleeper,
            peers: BTreeMap::new(),
            next: 0,
        };
        Ok((proxy, port))
    }

    /// Serves for as long as the process lives.
    pub fn serve(mut self) {
        loop {
            for watched in self.wait() {
                match watched {
                    Watched::Sleeper => self.sleeper.rise(),
                    Watched::Listener => self.accept(),
                    Watched::Peer(id) => self.peers.get_mut(&id).into_iter().for_each(|peer| {
                        peer.turn(&self.link);
                    }),
                }
            }
            for frame in self.link.outward() {
                // One for a client that is gone is late, not wrong.
                if let Some(peer) = self.peers.get_mut(&frame.channel) {
                    peer.take(frame, &self.link);
                }
            }
            self.clear();
        }
    }

    /// What is ready; a second at most, so that nobody is waited for too long.
    fn wait(&self) -> Vec<Watched> {
        let mut watched = vec![Watched::Sleeper];
        let mut fds = vec![PollFd::new(&self.sleeper, PollFlags::IN)];
        if self.peers.len() < CLIENTS {
            watched.push(Watched::Listener);
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        for (&id, peer) in &self.peers {
            let wants = peer.wants();
            // A client that nothing is wanted of would wake us again and again once it hung up.
            if !wants.is_empty() {
                watched.push(Watched::Peer(id));
                fds.push(PollFd::from_borrowed_fd(peer.as_fd(), wants));
            }
        }
        let limit = (!self.peers.is_empty()).then_some(&LOOK);
        match poll(&mut fds, limit) {
            Ok(_) => fds
                .iter()
                .zip(watched)
                .filter(|(fd, _)| !fd.revents().is_empty())
                .map(|(_, watched)| watched)
                .collect(),
            Err(rustix::io::Errno::INTR) => Vec::new(),
            // Out of kernel memory: a pause helps, and there is nobody to tell.
            Err(_) => {
                std::thread::sleep(Duration::from_millis(100));
                Vec::new()
            }
        }
    }

    fn accept(&mut self) {
        while self.peers.len() < CLIENTS {
            match self.listener.accept() {
                Ok((socket, _)) => {
                    if socket.set_nonblocking(true).is_ok() {
                        let _ = socket.set_nodelay(true);
                        let id = self.number();
                        self.peers.insert(id, Peer::new(socket, id));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                // No descriptor is free: those that are taken come back when clients part.
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(20));
                    return;
                }
            }
        }
    }

    /// A number that no living client has.
    fn number(&mut self) -> u32 {
        loop {
            self.next = self.next.wrapping_add(1);
            let id = INSIDE | self.next;
            if !self.peers.contains_key(&id) {
                return id;
            }
        }
    }

    /// Parts from clients that are done or took too long.
    fn clear(&mut self) {
        let now = Instant::now();
        let link = &self.link;
        self.peers.retain(|&id, peer| {
            if peer.late(now) && !peer.over() {
                if peer.knows_wharf() {
                    link.send(Kind::Signal, id, &Signal::Cancel);
                }
                peer.cut();
            }
            !peer.over()
        });
    }
}
