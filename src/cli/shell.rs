//! `wharf shell`: a sandbox at what a subtask left, for a person.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::fault::Fault;
use super::{find, out, plan_file, state, text};
use crate::config::{Config, Flags, raised};
use crate::plan::Plan;
use crate::run::{self, Said, Stream, Visit, Visiting};

/// How long a line may take unless --timeout says otherwise.
const LIMIT: Duration = Duration::from_secs(600);
/// The exit code of whoever is interrupted.
const INTERRUPTED: i32 = 130;

/// Open a sandbox at what a subtask left, and run commands in it
///
/// It is made like that of the subtask's agent: image, limits, files. Nothing done in it changes the
/// run, and all of it is gone at the end. Without a command, lines are read from standard input, and
/// each runs in a shell of its own, in the directory that the last one ended in; variables are not
/// kept, there is no terminal inside, and output comes when a line has ended. Ctrl-C ends a line.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  wharf shell last fix\n  wharf shell last fix -- python3 -m pytest -q\n  \
wharf shell last result -- 'grep -rn TODO . | wc -l'"
)]
pub struct Args {
    /// A run's id, the beginning of one, or `last`
    run: String,
    /// A subtask or another agent of the run; `base` or `result` for the run's own trees
    subtask: String,
    /// How long a line may take [default: 10m]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    timeout: Option<String>,
    /// One command, whose exit code becomes that of wharf; a single word is a line for the shell
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Opens the sandbox, runs what is asked for, and gives the exit code of that.
pub async fn act(args: &Args) -> Result<i32, Fault> {
    let limit = raised(None, None, args.timeout.as_deref())?.time;
    let limit = limit.unwrap_or(LIMIT);
    let config = state::settings(&Flags::default())?;
    let found = find::one(&config.state, &args.run)?;
    let kept = run::kept_plan(&found.dir)?;
    let path = kept.kept.plan_path.clone();
    let path = path.unwrap_or_else(|| PathBuf::from("plan.yaml"));
    let mut plan = plan_file::kept(&kept.text, &path, &kept.files)?;
    kept.kept.lay(&mut plan);
    let visit = open(&config, &found.dir, args, &plan);
    let mut visit = tokio::select! {
        visit = visit => visit?,
        () = interrupt() => return Ok(INTERRUPTED),
    };
    let code = match args.command.as_slice() {
        [] => lines(&mut visit, &args.subtask, limit).await,
        words => one(&mut visit, &line_of(words), limit)
            .await
            .map(|s| s.code),
    };
    visit.close().await;
    code
}

async fn open(
    config: &Config,
    dir: &std::path::Path,
    args: &Args,
    plan: &Plan,
) -> Result<Visit, Fault> {
    let engine = state::engine(config).await?;
    for line in engine.bury(&config.state).await? {
        out::note(&format!("removed {line}"));
    }
    let say = |line: &str| out::note(&text::line(line, 160));
    let how = Visiting {
        dir,
        place: &args.subtask,
        plan,
        options: config.run_options(),
        engine: engine.to_run(),
        say: &say,
    };
    Ok(run::visit(how, &CancellationToken::new()).await?)
}

/// A single word is a line as it stands; several are words that the shell is not to take apart.
fn line_of(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => {
            let quoted = words
                .iter()
                .map(|w| format!("'{}'", w.replace('\'', r"'\''")));
            quoted.collect::<Vec<_>>().join(" ")
        }
    }
}

/// Lines from standard input until it ends or one says `exit`.
async fn lines(visit: &mut Visit, place: &str, limit: Duration) -> Result<i32, Fault> {
    let is_person = std::io::stdin().is_terminal();
    if is_person {
        out::note(&greeting(visit, place));
    }
    let mut typed = read_lines()?;
    let mut last = 0;
    loop {
        if is_person {
            out::ask(&format!("{}$ ", text::line(visit.directory(), 60)));
        }
        let line = tokio::select! {
            line = typed.recv() => line,
            () = interrupt() => return Ok(INTERRUPTED),
        };
        let Some(line) = line else {
            // Whoever pipes lines in learns what the last one came to.
            return Ok(if is_person { 0 } else { last });
        };
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            [] => continue,
            ["exit"] => return Ok(last),
            ["exit", code] => return Ok(code.parse().unwrap_or(2)),
            _ => {}
        }
        last = one(visit, &line, limit).await?.code;
        if is_person && last != 0 {
            out::note(&format!("[exit code {last}]"));
        }
    }
}

fn greeting(visit: &Visit, place: &str) -> String {
    let about = &visit.about;
    let mut text = format!(
        "{place} of run {}: {} in /workspace, image {}, {}\n\
         each line runs in a shell of its own, `exit` or Ctrl-D ends; nothing done here changes the run",
        about.run,
        text::plural(about.files, "file"),
        text::line(&about.image, 200),
        about.network,
    );
    if about.goes_on {
        text.push_str("\nthe run goes on: when its process ends, this sandbox may be removed");
    }
    text
}

/// One line, its output printed; an interrupt ends the line and not the sandbox.
async fn one(visit: &mut Visit, line: &str, limit: Duration) -> Result<Said, Fault> {
    let cancel = CancellationToken::new();
    let said = {
        let running = visit.line(line, limit, &cancel);
        tokio::pin!(running);
        tokio::select! {
            said = &mut running => said?,
            () = interrupt() => {
                cancel.cancel();
                running.await?
            }
        }
    };
    put(&said.stdout, out::foreign)?;
    put(&said.stderr, out::foreign_aside)?;
    if let Some(note) = &said.note {
        out::note(&format!("[{note}]"));
    }
    Ok(said)
}

fn put(stream: &Stream, to: fn(&[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
    to(&stream.head)?;
    if let Some((bytes, path)) = &stream.cut {
        let place = path.as_deref();
        let place = place.map_or(String::new(), |path| format!(", all in {path}"));
        out::note(&format!("\n[{} not shown{place}]", text::bytes(*bytes)));
    }
    to(&stream.tail)
}

/// Fires at Ctrl-C; never where that cannot be heard.
async fn interrupt() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The lines of standard input, read in a thread of their own: nothing else can wait for a person.
fn read_lines() -> Result<tokio::sync::mpsc::Receiver<String>, Fault> {
    let (send, receive) = tokio::sync::mpsc::channel(1);
    let read = move || {
        let mut stdin = std::io::stdin().lock();
        let mut bytes = Vec::new();
        while let Ok(1..) = stdin.read_until(b'\n', &mut bytes) {
            let line = String::from_utf8_lossy(&bytes)
                .trim_end_matches('\n')
                .to_owned();
            bytes.clear();
            if send.blocking_send(line).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("input".to_owned());
    thread
        .spawn(read)
        .map_err(|error| Fault::environment(format!("read standard input: {error}")))?;
    Ok(receive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_is_a_line_and_several_are_taken_as_they_are() {
        let line =
            |words: &[&str]| line_of(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert_eq!(line(&["cat a | wc -l"]), "cat a | wc -l");
        assert_eq!(line(&["echo", "it's $x"]), r"'echo' 'it'\''s $x'");
    }
}
