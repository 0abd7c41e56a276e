//! Process 1 of every sandbox: works inside the container for Wharf outside, over its own
//! standard input and output, and ends when Wharf does.
//!
//! Owns: commands and their processes, the workspace's files, the watch over time and disk, the proxy
//! that asks Wharf for ways out.
//! Takes: frames on standard input; three folders as arguments, for trials outside a container.
//! Gives: frames on standard output; an exit code that says why it ended (`End`).
//! Never: a handler for a signal that ends a process, a name look-up, a file of the host.

mod bell;
mod beneath;
mod calls;
mod command;
mod files;
mod git;
mod group;
mod lent;
mod limits;
mod link;
mod mark;
mod oom;
mod outcome;
mod output;
mod peek;
mod peer;
mod proxy;
mod reaper;
mod records;
mod replace;
mod room;
mod run;
mod spool;
mod standing;
mod surroundings;
mod table;
mod torn;
mod tree;
mod upload;
mod wake;
mod walk;
mod watch;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use rustix::process::{DumpableBehavior, set_child_subreaper, set_dumpable_behavior};
use wharf_toolbox::held::Held;
use wharf_toolbox::message::{HostHello, Request, Signal, ToolboxHello};
use wharf_toolbox::seal::{self, Key, Seals, Side};
use wharf_toolbox::wire::{Fault, Frame, INSIDE, Kind, VERSION};

use crate::bell::Bell;
use crate::beneath::Allowed;
use crate::calls::{Calls, Dispatch};
use crate::command::Commands;
use crate::files::Files;
use crate::limits::Limits;
use crate::link::Link;
use crate::output::Collector;
use crate::proxy::Proxy;
use crate::room::Room;
use crate::run::Shell;
use crate::spool::Spool;
use crate::surroundings::{Folders, environment, program};
use crate::torn::Torn;
use crate::tree::Workspace;
use crate::watch::{Lease, Over, Watch};

/// Why process 1 ended, as its exit code.
enum End {
    /// Standard input ended: Wharf has closed or is gone.
    Closed = 0,
    /// A frame was bad or out of place.
    Protocol = 70,
    /// The workspace is not there, or no thread can be started.
    Setup = 71,
    /// Standard output failed.
    Output = 74,
    /// No ping for a whole lease.
    Lease = 75,
}

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some((first, argv)) = arguments.split_first()
        && first == reaper::FLAG
    {
        return reaper::main(argv);
    }
    if arguments.first().is_some_and(|first| first == peek::FLAG) {
        finish(peek::main());
    }
    forget_handlers();
    // Both fail only on kernels that no container engine runs on.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = set_child_subreaper(Some(rustix::process::getpid()));
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let mut frames = Frames {
        buffer: Vec::new(),
        at: 0,
        seals: None,
    };
    let end = match frames.next() {
        Ok(Some(frame)) if frame.kind == Kind::Hello => match frame.parse::<HostHello>() {
            Ok(hello) => live(&arguments, hello, &mut frames),
            Err(_) => End::Protocol,
        },
        Ok(None) => End::Closed,
        Ok(Some(_)) | Err(_) => End::Protocol,
    };
    leave(end);
}

/// Rust handles two signals to tell of a stack that overflowed. The agent can send them, and a handler
/// interrupts whatever a thread waits for; without one they do nothing to process 1.
#[expect(unsafe_code, reason = "the standard library has no word for it")]
fn forget_handlers() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the default action is no code of ours, and one thread runs yet.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Ends the process from any thread; in a container everything else ends with it.
#[expect(
    clippy::exit,
    clippy::disallowed_methods,
    reason = "the end of process 1 ends the sandbox"
)]
fn finish(code: i32) -> ! {
    std::process::exit(code)
}

/// Ends process 1.
fn leave(end: End) -> ! {
    finish(end as i32)
}

/// Serves Wharf until its stream ends.
fn live(arguments: &[OsString], hello: HostHello, frames: &mut Frames) -> End {
    let seen = peek::look();
    let key = match sealing(&hello, seen) {
        Ok(key) => key,
        Err(end) => return end,
    };
    let seals = |side| key.as_ref().map(|key| Seals::new(key, side));
    frames.seals = seals(Side::Wharf);
    let image = own_environment();
    let folders = Folders::of(arguments, &image);
    let environment = environment(&image, &folders, hello.env.clone());
    let bell = Arc::new(Bell::default());
    let Ok((waker, sleeper)) = wake::pair() else {
        return End::Setup;
    };
    let link = Link::new(Arc::clone(&bell), waker);
    let Ok(sandbox) = Sandbox::build(&folders, &environment, &hello, (&bell, &link)) else {
        return End::Setup;
    };
    let Ok(mut out) = output() else {
        return End::Setup;
    };
    let (writer, mine) = (Arc::clone(&link), seals(Side::Toolbox));
    let spawned = spawn("write", move || {
        writer.write(&mut out, mine);
        leave(End::Output)
    });
    let Ok(dispatch) = spawned.and_then(|()| Dispatch::start(&sandbox.calls)) else {
        return End::Setup;
    };
    let Ok(proxy) = open_proxy(hello.proxy, &link, sleeper) else {
        return End::Setup;
    };
    let shell = sandbox
        .calls
        .shell
        .program
        .as_deref()
        .and_then(|path| path.rsplit('/').next());
    let greeting = ToolboxHello {
        version: VERSION,
        shell: shell.map(str::to_owned),
        git: sandbox.calls.git.is_some(),
        sealed: key.is_some(),
        held: Held {
            streams: seen.streams,
            traced: seen.traced,
            listed: mark::seen(),
            ..group::held()
        },
        proxy,
    };
    link.send(Kind::Hello, 0, &greeting);
    if hello.version != VERSION {
        return End::Protocol;
    }
    let end = serve(frames, &link, &dispatch, &sandbox.lease);
    link.hush();
    sandbox.calls.shell.commands.kill_all();
    end.map_or(End::Protocol, |()| End::Closed)
}

/// The key where frames have to be sealed, which is also where that could not be told.
fn sealing(hello: &HostHello, seen: peek::Seen) -> Result<Option<Key>, End> {
    match (seen.streams, &hello.key) {
        (Some(0), _) => Ok(None),
        (_, Some(key)) => Ok(Some(key.clone())),
        (_, None) => Err(End::Protocol),
    }
}

/// Starts the way out where Wharf offers one; the port that it listens at.
fn open_proxy(
    asked: Option<u16>,
    link: &Arc<Link>,
    sleeper: wake::Sleeper,
) -> std::io::Result<Option<u16>> {
    let Some(port) = asked else {
        return Ok(None);
    };
    let (proxy, port) = Proxy::open(port, Arc::clone(link), sleeper)?;
    spawn("proxy", move || proxy.serve())?;
    Ok(Some(port))
}

/// Standard output without the line buffer of `std::io::Stdout`, which cuts what it is given at the
/// last newline into two writes, each a step of its own through the engine.
fn output() -> std::io::Result<std::fs::File> {
    let descriptor = std::io::stdout().as_fd().try_clone_to_owned()?;
    Ok(descriptor.into())
}

fn serve(
    frames: &mut Frames,
    link: &Arc<Link>,
    dispatch: &Dispatch,
    lease: &Lease,
) -> Result<(), Fault> {
    while let Some(frame) = frames.next()? {
        match (frame.kind, frame.channel) {
            (Kind::Signal, 0) => {
                lease.extend();
                if frame.parse::<Signal>()? == Signal::Ping {
                    link.send(Kind::Signal, 0, &Signal::Pong);
                }
            }
            (Kind::Open, channel) if channel & INSIDE == 0 => {
                let request: Request = frame.parse()?;
                dispatch.take(request, link.open(channel)?);
            }
            _ => link.deliver(frame)?,
        }
    }
    Ok(())
}

struct Sandbox {
    calls: Arc<Calls>,
    lease: Arc<Lease>,
}

impl Sandbox {
    fn build(
        folders: &Folders,
        environment: &BTreeMap<OsString, OsString>,
        hello: &HostHello,
        (bell, link): (&Arc<Bell>, &Arc<Link>),
    ) -> std::io::Result<Sandbox> {
        let paths: Vec<PathBuf> = [&folders.workspace, &folders.home, &folders.temporary]
            .map(Clone::clone)
            .to_vec();
        let spool = Arc::new(Spool::new(folders.temporary.join(".wharf/out")));
        let collector = Collector::start(Arc::clone(bell), spool)?;
        let variables = environment.clone().into_iter().collect();
        let commands = Commands::new(
            folders.workspace.clone(),
            variables,
            Arc::clone(bell),
            collector,
        );
        let over = Arc::new(Over::default());
        let shell = Shell {
            program: program("bash", environment).or_else(|| program("sh", environment)),
            commands: Arc::clone(&commands),
            bell: Arc::clone(bell),
            limits: Limits::now(),
            over: Arc::clone(&over),
        };
        let workspace = Arc::new(Mutex::new(Workspace::open(
            &folders.workspace,
            folders.ledger.clone(),
        )?));
        let floor = paths.clone();
        let (allowed, torn) = (Allowed::new(&paths), Arc::new(Torn::default()));
        let room = Arc::new(Room::new(paths, hello.disk, hello.inodes));
        let files = Files {
            allowed,
            workspace,
            room: Arc::clone(&room),
            torn: Arc::clone(&torn),
        };
        let lease = Arc::new(Lease::of(hello.lease_ms));
        let (reaping, watched) = (Arc::clone(&commands), Arc::clone(&commands));
        let watch = Watch {
            lease: Arc::clone(&lease),
            over,
            commands,
            room,
            torn,
            bell: Arc::clone(bell),
        };
        spawn("reap", move || reaping.reap())?;
        guard(watch, link, &watched)?;
        let calls = Calls {
            shell,
            files,
            git: program("git", environment),
            floor,
            given: AtomicBool::new(false),
        };
        Ok(Sandbox {
            calls: Arc::new(calls),
            lease,
        })
    }
}

/// Ends process 1 once Wharf has given no sign of life for a whole lease.
fn guard(watch: Watch, link: &Arc<Link>, commands: &Arc<Commands>) -> std::io::Result<()> {
    let (link, commands) = (Arc::clone(link), Arc::clone(commands));
    spawn("watch", move || {
        watch.keep();
        link.hush();
        commands.kill_all();
        leave(End::Lease)
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the image's environment is what commands shall see"
)]
fn own_environment() -> BTreeMap<OsString, OsString> {
    std::env::vars_os().collect()
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .map(drop)
}

/// Frames from standard input.
struct Frames {
    buffer: Vec<u8>,
    at: usize,
    /// Of the frames after the first, where they are sealed.
    seals: Option<Seals>,
}

impl Frames {
    /// The next frame; nothing at the end of the stream.
    fn next(&mut self) -> Result<Option<Frame>, Fault> {
        loop {
            if let Some((frame, used)) = seal::decode(&self.buffer[self.at..], &mut self.seals)? {
                self.at += used;
                return Ok(Some(frame));
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            let mut part = [0; 64 * 1024];
            match std::io::stdin().read(&mut part) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return Ok(None),
                Ok(got) => self.buffer.extend_from_slice(&part[..got]),
            }
        }
    }
}
