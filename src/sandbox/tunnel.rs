//! An engine on another machine: a socket of our own, each of whose connections is carried by `ssh`
//! to `docker system dial-stdio` there, as the docker program does it.
//!
//! The first connection logs in and the others share it, so a call costs a round trip and no login.
//! `ssh` asks nothing of a person: what its agent and configuration do not answer is a refusal.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;
use tokio::sync::watch;

/// Characters kept of what `ssh` complains of.
const COMPLAINT: usize = 300;
/// How long its complaints may come after its output ended.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// The near end's name.
const SOCKET: &str = "engine.sock";

/// A way to an engine; it ends, and all that goes through it, when it is dropped.
pub(super) struct Tunnel {
    dir: tempfile::TempDir,
    serving: tokio::task::JoinHandle<()>,
    said: watch::Receiver<String>,
}

impl Tunnel {
    /// Opens the near end for `[user@]host[:port][/socket]`; nothing is dialled before its first use.
    pub(super) fn open(place: &str, ssh: &Path) -> Result<Tunnel, String> {
        let place = Place::read(place)?;
        let dir = tempfile::tempdir().map_err(|error| format!("a place for a socket: {error}"))?;
        let listener = UnixListener::bind(dir.path().join(SOCKET))
            .map_err(|error| format!("a socket in {}: {error}", dir.path().display()))?;
        let (tell, said) = watch::channel(String::new());
        let arguments = place.arguments(&dir.path().join("login"));
        let program = Program {
            path: ssh.to_owned(),
            arguments,
        };
        let serving = tokio::spawn(serve(listener, program, tell));
        Ok(Tunnel { dir, serving, said })
    }

    /// The near end.
    pub(super) fn socket(&self) -> PathBuf {
        self.dir.path().join(SOCKET)
    }

    /// The last that `ssh` complained of, if it did.
    pub(super) fn complaint(&self) -> Option<String> {
        let said = self.said.borrow();
        (!said.is_empty()).then(|| said.clone())
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Where an `ssh://` address leads.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    user: Option<String>,
    host: String,
    port: Option<u16>,
    /// The engine's socket there, when it is not the usual one.
    socket: Option<String>,
}

impl Place {
    fn read(text: &str) -> Result<Place, String> {
        let (authority, path) = match text.split_once('/') {
            Some((authority, path)) => (authority, format!("/{path}")),
            None => (text, String::new()),
        };
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) => {
                let number = port.parse::<u16>();
                (
                    host,
                    Some(number.map_err(|_| format!("{port} is no port"))?),
                )
            }
            None => (place, None),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err("an ssh address holds no password".to_owned());
        }
        // What begins with a dash would be an option to ssh.
        let plain = |text: &str| {
            let fine = |c: char| c.is_ascii_alphanumeric() || "._-%".contains(c);
            !text.is_empty() && !text.starts_with('-') && text.chars().all(fine)
        };
        if !plain(host) || !user.is_none_or(plain) {
            return Err(format!("{authority} is no user and host"));
        }
        // It goes through a shell over there.
        let fine = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        if !path.chars().all(fine) {
            return Err(format!("{path} is no path of a socket"));
        }
        Ok(Place {
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port,
            socket: (path.len() > 1).then_some(path),
        })
    }

    fn arguments(&self, login: &Path) -> Vec<String> {
        let control = format!("ControlPath={}", login.display());
        let mut words: Vec<String> = Vec::new();
        for option in [
            "BatchMode=yes",
            "ConnectTimeout=10",
            "ServerAliveInterval=15",
            "ServerAliveCountMax=3",
            "ControlMaster=auto",
            "ControlPersist=30",
            &control,
        ] {
            words.extend(["-o".to_owned(), option.to_owned()]);
        }
        words.push("-T".to_owned());
        if let Some(port) = self.port {
            words.extend(["-p".to_owned(), port.to_string()]);
        }
        if let Some(user) = &self.user {
            words.extend(["-l".to_owned(), user.clone()]);
        }
        words.extend(["--", self.host.as_str(), "docker"].map(str::to_owned));
        if let Some(socket) = &self.socket {
            words.extend(["-H".to_owned(), format!("unix://{socket}")]);
        }
        words.extend(["system", "dial-stdio"].map(str::to_owned));
        words
    }
}

struct Program {
    path: PathBuf,
    arguments: Vec<String>,
}

/// Carries connections until it is aborted, and all of them end with it.
async fn serve(listener: UnixListener, program: Program, tell: watch::Sender<String>) {
    let mut carried = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => carried.push(carry(client, &program, &tell)),
                Err(error) => {
                    tell.send_replace(error.to_string());
                    return;
                }
            },
            Some(()) = carried.next() => {}
        }
    }
}

/// One connection. The far end's last byte is its end; that of the near end is passed on, since a
/// container's input ends with it.
async fn carry(client: UnixStream, program: &Program, tell: &watch::Sender<String>) {
    let child = Command::new(&program.path)
        .args(&program.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A Ctrl-C at the terminal is Wharf's to hear: the sandboxes are still needed to save what is in them.
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            tell.send_replace(format!(
                "{} does not start: {error}",
                program.path.display()
            ));
            return;
        }
    };
    let (Some(mut stdin), Some(mut stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return;
    };
    let (mut near, mut back) = client.into_split();
    let mut there = pin!(async move {
        // The copy's end is the end of what goes there, however it came.
        drop(tokio::io::copy(&mut near, &mut stdin).await);
        drop(stdin.shutdown().await);
        drop(stdin);
        std::future::pending::<()>().await;
    });
    let mut heard = pin!(hear(stderr, tell));
    let mut quiet = false;
    {
        let mut here = pin!(tokio::io::copy(&mut stdout, &mut back));
        loop {
            tokio::select! {
                _ = &mut here => break,
                () = &mut there => {}
                () = &mut heard, if !quiet => quiet = true,
            }
        }
    }
    // Whoever waits at the near end asks why as soon as it ends.
    if !quiet {
        drop(tokio::time::timeout(LAST_WORDS, heard).await);
    }
    drop(back);
}

/// Keeps the last line that was complained of.
async fn hear(stderr: impl AsyncRead + Unpin, tell: &watch::Sender<String>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let plain: String = line.chars().filter(|c| !c.is_control()).collect();
        if !plain.trim().is_empty() {
            tell.send_replace(plain.trim().chars().take(COMPLAINT).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart() {
        let whole = Place::read("me@build.host:2222/run/user/1/docker.sock").unwrap();
        assert_eq!(
            whole,
            Place {
                user: Some("me".into()),
                host: "build.host".into(),
                port: Some(2222),
                socket: Some("/run/user/1/docker.sock".into()),
            }
        );
        let words = whole.arguments(Path::new("/d/login")).join(" ");
        assert!(words.contains("-o BatchMode=yes"), "{words}");
        assert!(
            words.ends_with(
                "-T -p 2222 -l me -- build.host docker -H unix:///run/user/1/docker.sock system dial-stdio"
            ),
            "{words}"
        );
        let bare = Place::read("host").unwrap();
        assert!(bare.arguments(Path::new("/d")).ends_with(&[
            "--".to_owned(),
            "host".to_owned(),
            "docker".to_owned(),
            "system".to_owned(),
            "dial-stdio".to_owned(),
        ]));
    }

    #[test]
    fn what_would_be_an_option_or_a_shells_word_is_refused() {
        for text in [
            "",
            "-oProxyCommand=x",
            "a b",
            "-l@host",
            "me:secret@host",
            "host:port",
            "host/a;b",
            "host/$(x)",
        ] {
            assert!(Place::read(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn what_ssh_complains_of_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("ssh");
        std::fs::write(
            &program,
            "#!/bin/sh\necho 'me@host: Permission denied' >&2\n",
        )
        .unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let tunnel = Tunnel::open("host", &program).unwrap();
        let mut client = UnixStream::connect(tunnel.socket()).await.unwrap();
        let mut answer = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut client, &mut answer)
            .await
            .unwrap();
        assert_eq!(
            (answer.len(), tunnel.complaint().as_deref()),
            (0, Some("me@host: Permission denied"))
        );
    }
}
