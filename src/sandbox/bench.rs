//! Where setup commands run: a container with a network, each command an exec whose environment
//! leaves no trace in the image.

use std::time::Duration;

use bollard::container::LogOutput;
use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use futures::StreamExt;
use tokio::io::AsyncWriteExt;

use super::build::{Stage, Tail};
use super::call::{self, SHORT};
use super::docker::Docker;
use super::profile::USER;
use super::{Error, ImageSpec, unique};

/// Longest time of one setup command.
const COMMAND_LIMIT: Duration = Duration::from_secs(1800);
/// Where the host's authorities lie meanwhile; /tmp is memory and is not committed.
const CA_PATH: &str = "/tmp/.wharf-ca.pem";
/// Variables by which common tools are told of authorities.
const CA_NAMES: [&str; 7] = [
    "SSL_CERT_FILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
];
/// Prints one line for each thing worth telling an agent; what is missing prints nothing.
const DESCRIBE: &str = r#"
[ -r /etc/os-release ] && (. /etc/os-release; echo "$PRETTY_NAME")
for tool in git python3 pytest node npm go cargo rustc java ruby gcc make rg jq; do
  command -v "$tool" >/dev/null 2>&1 || continue
  case $tool in
    go) set -- go version ;;
    java) set -- java --version ;;
    *) set -- "$tool" --version ;;
  esac
  said=$("$@" 2>/dev/null) || continue
  number=$(printf '%s' "$said" | sed -n '1s/[^0-9]*\([0-9][0-9.]*\).*/\1/p' 2>/dev/null)
  echo "$tool $number"
done
true
"#;

/// Runs a line and says so when it has ended, whatever it came to: an engine that drops the stream ends
/// it as a command does, and what it then tells of the exit is its own.
const TO_ITS_END: &str = r#"/bin/sh -c "$1"; code=$?; printf %s "$2"; exit "$code""#;

/// A started container in which commands are run before it is committed.
pub(super) struct Bench<'a> {
    docker: &'a Docker,
    container: &'a str,
    env: Vec<String>,
}

/// One exec: what is run, what it reads.
struct Exec<'a> {
    line: &'a str,
    input: &'a [u8],
    folder: &'a str,
    limit: Duration,
}

impl<'a> Bench<'a> {
    /// Prepares the environment: the host's proxies and authorities.
    pub(super) async fn new(
        docker: &'a Docker,
        container: &'a str,
        path: &str,
    ) -> Result<Bench<'a>, Error> {
        let proxies = docker.options.proxies.iter();
        let mut env: Vec<String> = proxies
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        env.push(format!("PATH={path}"));
        let mut bench = Bench {
            docker,
            container,
            env,
        };
        bench.trust_host().await?;
        Ok(bench)
    }

    /// Lends the commands the authorities that the host trusts, where it names any.
    async fn trust_host(&mut self) -> Result<(), Error> {
        let Some(path) = &self.docker.options.ca_bundle else {
            return Ok(());
        };
        let pem = match tokio::fs::read(path).await {
            Ok(pem) => pem,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "authorities of the host not read");
                return Ok(());
            }
        };
        let line = format!("cat > {CA_PATH}");
        let exec = Exec {
            line: &line,
            input: &pem,
            folder: "/",
            limit: SHORT,
        };
        let (code, output) = self.exec(&exec, |_| ()).await?;
        if code != 0 {
            return Err(Error::Engine {
                operation: "lending the host's authorities to the setup",
                reason: output,
            });
        }
        let names = CA_NAMES.map(|name| format!("{name}={CA_PATH}"));
        self.env.extend(names);
        Ok(())
    }

    /// One line on what the image has; empty when it does not say.
    pub(super) async fn describe(&self) -> String {
        let exec = Exec {
            line: DESCRIBE,
            input: b"",
            folder: "/",
            limit: Duration::from_secs(60),
        };
        match self.exec(&exec, |_| ()).await {
            Ok((0, output)) => output.lines().map(str::trim).collect::<Vec<_>>().join(", "),
            Ok((code, _)) => {
                tracing::debug!(code, "the image does not describe itself");
                String::new()
            }
            Err(error) => {
                tracing::debug!(%error, "the image does not describe itself");
                String::new()
            }
        }
    }

    /// Runs the setup commands in order, then takes their files away again.
    pub(super) async fn setup(&self, spec: &ImageSpec, stage: &mut Stage<'_>) -> Result<(), Error> {
        for line in &spec.setup {
            stage.line(line);
            let exec = Exec {
                line,
                input: b"",
                folder: "/workspace",
                limit: COMMAND_LIMIT,
            };
            let (code, output) = self.exec(&exec, |text| stage.line(text)).await?;
            if code != 0 {
                return Err(Error::Setup {
                    command: line.clone(),
                    code,
                    output,
                });
            }
        }
        self.clear(spec).await
    }

    /// Takes the files of the setup away: the tree that is uploaded later brings its own.
    async fn clear(&self, spec: &ImageSpec) -> Result<(), Error> {
        if spec.setup_files.is_empty() {
            return Ok(());
        }
        let lines = spec.setup_files.iter().map(|(path, _)| removal(path));
        let line = lines.collect::<Vec<_>>().join("\n");
        let exec = Exec {
            line: &line,
            input: b"",
            folder: "/workspace",
            limit: Duration::from_secs(60),
        };
        let (code, output) = self.exec(&exec, |_| ()).await?;
        match code {
            0 => Ok(()),
            _ => Err(Error::Engine {
                operation: "clearing the setup files away",
                reason: output,
            }),
        }
    }

    /// Runs one line by the image's shell; gives its exit code and the end of what it printed.
    async fn exec(&self, exec: &Exec<'_>, each: impl FnMut(&str)) -> Result<(i64, String), Error> {
        let mark = unique::name();
        let words = ["/bin/sh", "-c", TO_ITS_END, "sh", exec.line, &mark];
        let config = ExecConfig {
            cmd: Some(words.map(str::to_owned).to_vec()),
            env: Some(self.env.clone()),
            user: Some(USER.to_owned()),
            working_dir: Some(exec.folder.to_owned()),
            attach_stdin: Some(!exec.input.is_empty()),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..ExecConfig::default()
        };
        let api = &self.docker.api;
        let call = api.create_exec(self.container, config);
        let id = call::bounded("preparing a setup command", SHORT, call)
            .await?
            .id;
        let call = api.start_exec(&id, None);
        let started = call::bounded("starting a setup command", SHORT, call).await?;
        let following = follow(started, exec.input, &mark, each);
        let output = match tokio::time::timeout(exec.limit, following).await {
            Ok(output) => output?,
            Err(_) => {
                return Err(Error::Engine {
                    operation: "running a setup command",
                    reason: format!("{} took longer than {} s", exec.line, exec.limit.as_secs()),
                });
            }
        };
        Ok((self.exit_code(&id).await?, output))
    }

    /// The code of an exec whose output ended; it may need a moment to be known.
    async fn exit_code(&self, id: &str) -> Result<i64, Error> {
        for _ in 0..100 {
            let call = self.docker.api.inspect_exec(id);
            let seen = call::bounded("asking how a setup command ended", SHORT, call).await?;
            if let (Some(false), Some(code)) = (seen.running, seen.exit_code) {
                return Ok(code);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(Error::Engine {
            operation: "asking how a setup command ended",
            reason: "the engine does not say".to_owned(),
        })
    }
}

/// Shell words that remove a file and the folders it leaves empty.
fn removal(path: &str) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let file = format!("rm -f -- {} || exit 1", quoted(path));
    match path.rsplit_once('/') {
        Some((folder, _)) => format!("{file}; rmdir -p -- {} 2>/dev/null; true", quoted(folder)),
        None => file,
    }
}

/// Feeds an exec and reads it to its end.
async fn follow(
    started: StartExecResults,
    feed: &[u8],
    mark: &str,
    mut each: impl FnMut(&str),
) -> Result<String, Error> {
    let broken = |reason: String| Error::Engine {
        operation: "following a setup command",
        reason,
    };
    let StartExecResults::Attached {
        mut output,
        mut input,
    } = started
    else {
        return Err(broken("the engine ran it detached".to_owned()));
    };
    if !feed.is_empty() {
        input
            .write_all(feed)
            .await
            .map_err(|e| broken(e.to_string()))?;
        input.shutdown().await.map_err(|e| broken(e.to_string()))?;
    }
    let mut tail = Tail::default();
    let mut end = End::new(mark);
    while let Some(item) = output.next().await {
        let chunk: LogOutput = item.map_err(|fault| broken(call::words(&fault)))?;
        if let LogOutput::StdOut { message } = &chunk {
            end.look(message);
        }
        let text = String::from_utf8_lossy(chunk.as_ref()).replace(mark, "");
        tail.push(&text);
        each(&text);
    }
    match end.seen {
        true => Ok(tail.text().replace(mark, "")),
        false => Err(broken(format!(
            "the engine's stream ended before the command did, after: {}",
            tail.text()
        ))),
    }
}

/// Looks for a mark in a stream that comes in pieces.
struct End<'a> {
    mark: &'a [u8],
    rest: Vec<u8>,
    seen: bool,
}

impl<'a> End<'a> {
    fn new(mark: &'a str) -> Self {
        End {
            mark: mark.as_bytes(),
            rest: Vec::new(),
            seen: false,
        }
    }

    fn look(&mut self, more: &[u8]) {
        self.rest.extend_from_slice(more);
        let mut windows = self.rest.windows(self.mark.len());
        self.seen |= windows.any(|window| window == self.mark);
        let keep = self.mark.len().saturating_sub(1);
        self.rest.drain(..self.rest.len().saturating_sub(keep));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_seen_however_it_is_cut() {
        for cut in 0..=10 {
            let mut end = End::new("mark");
            let (one, two) = b"a mark, so".split_at(cut);
            end.look(one);
            end.look(two);
            assert!(end.seen, "cut at {cut}");
        }
        let mut end = End::new("mark");
        end.look(b"mar k ma");
        end.look(b" rk");
        assert!(!end.seen);
    }

    #[test]
    fn removal_quotes_what_a_shell_would_read() {
        assert_eq!(removal("it's"), r"rm -f -- 'it'\''s' || exit 1");
        assert!(removal("a/b $(x)").contains("rmdir -p -- 'a' 2>"));
    }
}
