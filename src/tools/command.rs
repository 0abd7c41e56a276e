//! Commands in the sandbox and the words of their results: exit code first, then what was printed.

use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::files::{number, text};
use super::spec::TIMEOUT_MAX;
use super::{Output, OwnTool, Set, clip, variables};
use crate::sandbox::{Command, Error, Exit, Finished, ProcessAction, Sandbox, Stream};

/// Characters of a command's output that `run_acceptance` keeps, from its end.
const ACCEPTANCE_TAIL: usize = 2_000;

/// Characters of the path of a long output.
const SPOOL_CHARS: usize = 200;

/// `bash`.
pub async fn bash(
    set: &Set,
    arguments: &Value,
    sandbox: &dyn Sandbox,
    cancel: &CancellationToken,
) -> Result<Output, Error> {
    let timeout = match number(arguments, "timeout_seconds") {
        Some(seconds) => Duration::from_secs(seconds.clamp(1, TIMEOUT_MAX as i64) as u64),
        None => set.timeout,
    };
    let command = Command {
        line: text(arguments, "command").to_string(),
        timeout,
        background: arguments.get("background").and_then(Value::as_bool) == Some(true),
        keep: set.output / 2,
    };
    let finished = sandbox.run(&command, cancel).await?;
    if let (Exit::Running, Some(id)) = (finished.exit, finished.background) {
        return Ok(Output::done(format!(
            "started in the background as process {id}; see its output with process {{\"id\": {id}, \
             \"action\": \"output\"}}"
        )));
    }
    Ok(result(&finished, timeout, set.memory))
}

/// `process`.
pub async fn process(set: &Set, arguments: &Value, sandbox: &dyn Sandbox) -> Result<Output, Error> {
    let id = number(arguments, "id").unwrap_or(-1);
    let Ok(id) = u32::try_from(id) else {
        return Ok(Output::refused(
            "tool_error",
            format!("there is no process {id}"),
        ));
    };
    let action = match text(arguments, "action") {
        "stop" => ProcessAction::Stop,
        _ => ProcessAction::Output,
    };
    match sandbox.process(id, action).await? {
        Ok(finished) => Ok(seen(&finished, id, action, set)),
        Err(reason) => Ok(Output::refused(
            "tool_error",
            format!("process {id}: {reason}"),
        )),
    }
}

fn seen(finished: &Finished, id: u32, action: ProcessAction, set: &Set) -> Output {
    let body = streams(finished);
    match (finished.exit, action) {
        (Exit::Running, _) => Output::done(format!("process {id} is still running\n{body}")),
        (_, ProcessAction::Stop) => {
            let mut output = Output::done(format!("process {id} was stopped\n{body}"));
            output.exit_code = code(finished.exit);
            output
        }
        _ => {
            let mut output = result(finished, set.timeout, set.memory);
            output.text = format!("process {id} ended\n{}", output.text);
            output
        }
    }
}

/// `run_acceptance`: every command runs, whatever the ones before came to.
pub async fn acceptance(
    set: &Set,
    sandbox: &dyn Sandbox,
    cancel: &CancellationToken,
) -> Result<Output, Error> {
    if set.acceptance.is_empty() {
        // Nothing ran, so nothing can rest on it.
        return Ok(Output::refused(
            "no_acceptance_commands",
            "this task has no acceptance commands; check with bash what can be checked",
        ));
    }
    let mut said = String::new();
    let mut worst = Output::done("");
    let mut passed = 0;
    for (line, timeout) in &set.acceptance {
        let command = Command {
            line: line.clone(),
            timeout: *timeout,
            background: false,
            keep: ACCEPTANCE_TAIL * 2,
        };
        let finished = sandbox.run(&command, cancel).await?;
        let one = result(&finished, *timeout, set.memory);
        let printed = clip::tail(&streams(&finished), ACCEPTANCE_TAIL);
        let first = one.text.lines().next().unwrap_or_default();
        said.push_str(&format!(
            "\n$ {}\n{first}\n{printed}\n",
            clip::line(line, 200)
        ));
        passed += usize::from(!one.failed);
        if one.failed && !worst.failed {
            worst = one;
        }
        if finished.exit == Exit::Cancelled {
            break;
        }
    }
    let all = set.acceptance.len();
    worst.exit_code = worst.exit_code.or((!worst.failed).then_some(0));
    worst.text = format!("{passed} of {all} acceptance commands passed{said}");
    Ok(worst)
}

/// A tool of the operator's: its command with the arguments as JSON on standard input, and each in a
/// variable of its own where it fits. Neither is ever read as shell text.
pub async fn own(
    set: &Set,
    own: &OwnTool,
    arguments: &Value,
    sandbox: &dyn Sandbox,
    cancel: &CancellationToken,
) -> Result<Output, Error> {
    // JSON text holds no raw newline, so no line of it can be the mark that ends it.
    let command = Command {
        line: format!(
            "{}{{\n{}\n}} <<'WHARF_ARGUMENTS'\n{arguments}\nWHARF_ARGUMENTS",
            variables::of(arguments),
            own.command
        ),
        timeout: set.timeout,
        background: false,
        keep: set.output / 2,
    };
    let finished = sandbox.run(&command, cancel).await?;
    Ok(result(&finished, set.timeout, set.memory))
}

/// The words of a finished command.
fn result(finished: &Finished, timeout: Duration, memory: u64) -> Output {
    let (head, error_type) = match finished.exit {
        Exit::Code(0) => ("exit code: 0".to_string(), None),
        Exit::Code(code) => (format!("exit code: {code}"), Some("nonzero_exit")),
        Exit::TimedOut => (
            format!(
                "exit code: 124 (timed out after {} s; everything it started was killed)",
                timeout.as_secs()
            ),
            Some("timeout"),
        ),
        Exit::OutOfMemory(code) => (
            format!(
                "exit code: {code} (out of memory: the sandbox's limit of {} killed a process of it)",
                size(memory)
            ),
            Some("oom_killed"),
        ),
        Exit::Full(code) => (
            format!(
                "exit code: {code} (killed: the disk is full, see the end of stderr; a file it was writing is \
                 not kept until it is written again or removed)"
            ),
            Some("disk_full"),
        ),
        Exit::Cancelled => (
            "cancelled; everything it started was killed".to_string(),
            Some("cancelled"),
        ),
        Exit::Running => ("still running".to_string(), None),
    };
    Output {
        text: format!("{head}\n{}", streams(finished)),
        failed: error_type.is_some(),
        exit_code: code(finished.exit),
        error_type,
    }
}

fn code(exit: Exit) -> Option<i32> {
    match exit {
        Exit::Code(code) | Exit::OutOfMemory(code) | Exit::Full(code) => Some(code),
        Exit::TimedOut => Some(124),
        Exit::Cancelled | Exit::Running => None,
    }
}

fn streams(finished: &Finished) -> String {
    let mut text = String::new();
    for (name, stream) in [("stdout", &finished.stdout), ("stderr", &finished.stderr)] {
        if stream.total > 0 {
            let printed = printed(stream);
            text.push_str(&format!("{name}:\n{}\n", printed.trim_end_matches('\n')));
        }
    }
    if text.is_empty() {
        text.push_str("(no output)\n");
    }
    text
}

fn printed(stream: &Stream) -> String {
    let kept = (stream.head.len() + stream.tail.len()) as u64;
    let cut = stream.total.saturating_sub(kept);
    let rest = stream.spool.as_ref().map(|text| {
        let path = clip::line(&text.path, SPOOL_CHARS);
        if text.bytes >= stream.total {
            format!("the full text is in {path}")
        } else {
            let bytes = clip::thousands(text.bytes);
            format!("its first {bytes} bytes are in {path}")
        }
    });
    clip::stream(&stream.head, &stream.tail, cut, rest.as_deref())
}

/// 2147483648 as `2.0 GiB`.
fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib >= 1024.0 {
        format!("{:.1} GiB", mib / 1024.0)
    } else {
        format!("{mib:.0} MiB")
    }
}
