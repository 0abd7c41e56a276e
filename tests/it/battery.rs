//! Abuse inside a sandbox, a row a test: what must fail fails, and the sandbox, its neighbours and the
//! engine stay usable. `data` says what must be seen, `page` holds it against docs/sandbox.md.
//!
//! `WHARF_TEST_RUNTIME` names another runtime of the engine (`runsc`); what must be seen there is a
//! column of its own.

#![expect(
    clippy::disallowed_methods,
    reason = "tests ask the environment for their runtime"
)]

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use wharf::sandbox::{
    Command, Docker, Engine as _, Error, Exit, Finished, Network, Sandbox, Spec, Tree,
};

use crate::container::{engine, open, python, spec};
use crate::toolbox::tree;

mod bombs; // processes, memory, disk, descriptors, output
mod data;
mod leaks; // what the change carries, what is inside
mod page;
mod probes; // calls, files and addresses that must be refused

pub(crate) use probes::let_through;

/// One row under test.
struct Trial {
    docker: Docker,
    look: bollard::Docker,
    spec: Spec,
    row: &'static data::Row,
    runtime: String,
}

/// None when tests go without an engine.
async fn trial(number: u8) -> Option<Trial> {
    let (docker, look) = engine().await?;
    let mut spec = spec(python(&docker).await, &format!("row-{number}"));
    let runtime = std::env::var("WHARF_TEST_RUNTIME").ok();
    spec.runtime = runtime.clone();
    if runtime.is_some() {
        // Threads of the runtime's own count.
        spec.pids = 1024;
    }
    Some(Trial {
        docker,
        look,
        spec,
        row: &data::ROWS[usize::from(number) - 1],
        runtime: runtime.unwrap_or_else(|| "runc".to_owned()),
    })
}

impl Trial {
    async fn open(&self) -> Inside {
        Inside(open(&self.docker, &self.spec).await)
    }

    /// Another sandbox beside, with limits of its own.
    async fn neighbour(&self, network: Network) -> Inside {
        let mut spec = self.spec.clone();
        (spec.memory, spec.pids, spec.network) = (512 << 20, spec.pids.max(128), network);
        spec.labels.subtask += "-neighbour";
        Inside(open(&self.docker, &spec).await)
    }

    async fn open_at(&self, tree: &Tree) -> Inside {
        let cancel = CancellationToken::new();
        Inside(self.docker.open(&self.spec, tree, &cancel).await.unwrap())
    }

    /// Holds what was seen against what must be, and against the page.
    fn saw(&self, seen: &str) {
        let wanted = match (self.runtime.as_str(), self.row.runsc) {
            ("runc", _) | ("runsc", data::Wanted::Same) => self.row.runc,
            ("runsc", data::Wanted::Is(words)) => words,
            (runtime, _) => panic!(
                "nobody knows what row {} comes to under {runtime}; seen: {seen}",
                self.row.number
            ),
        };
        assert_eq!(seen, wanted, "row {}: {}", self.row.number, self.row.what);
        page::settle(self.row, &self.runtime, seen);
    }
}

/// A sandbox as the rows see it.
struct Inside(Arc<dyn Sandbox>);

impl Inside {
    async fn ask(&self, line: &str, seconds: u64) -> Result<Finished, Error> {
        let command = Command {
            line: line.to_owned(),
            timeout: Duration::from_secs(seconds),
            background: false,
            keep: 20_000,
        };
        self.0.run(&command, &CancellationToken::new()).await
    }

    /// Exit and everything it printed.
    async fn run(&self, line: &str) -> (Exit, String) {
        let done = self.ask(line, 60).await.unwrap();
        (done.exit, said(&done))
    }

    /// What Python says to this.
    async fn python(&self, code: &str) -> String {
        self.python_within(code, 60).await
    }

    /// The same with a limit of its own, in seconds.
    async fn python_within(&self, code: &str, seconds: u64) -> String {
        let line = format!("python3 - <<'END'\n{code}\nEND");
        let done = self.ask(&line, seconds).await.unwrap();
        let said = said(&done);
        assert_eq!(done.exit, Exit::Code(0), "{said}");
        said.trim_end().to_owned()
    }

    /// Whether it still answers.
    async fn answers(&self) -> &'static str {
        match self.ask("echo alive", 20).await {
            Ok(done) if said(&done) == "alive\n" => "the sandbox answers",
            Ok(_) => "the sandbox answers wrongly",
            Err(_) => "the sandbox does not answer",
        }
    }

    /// Whether a process with this word in its command line is there; the shell that looks is not.
    async fn running(&self, word: &str) -> &'static str {
        let (head, tail) = word.split_at(1);
        let look = format!("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q '[{head}]{tail}'");
        match self.run(&look).await.0 {
            Exit::Code(1) => "nothing left running",
            Exit::Code(0) => "it runs on",
            _ => "nobody can tell what runs",
        }
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

/// Both streams, as text.
fn said(done: &Finished) -> String {
    let all = [
        &done.stdout.head,
        &done.stdout.tail,
        &done.stderr.head,
        &done.stderr.tail,
    ];
    let bytes: Vec<u8> = all.into_iter().flatten().copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How a command ended, in the words of the table.
fn ended(done: &Result<Finished, Error>) -> String {
    match done {
        Err(Error::Broken { .. }) => "the sandbox is broken, and says so".to_owned(),
        Err(other) => format!("{other}"),
        Ok(done) => match done.exit {
            Exit::Code(code) => format!("exit code {code}"),
            Exit::TimedOut => "killed at its time limit".to_owned(),
            Exit::OutOfMemory(code) => format!("out of memory, exit code {code}"),
            Exit::Full(code) => format!("disk full, exit code {code}"),
            Exit::Cancelled => "cancelled".to_owned(),
            Exit::Running => "running".to_owned(),
        },
    }
}
