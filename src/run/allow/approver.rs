//! Who is asked for consent: the person at the terminal, a program of this machine, an address.

use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::journal::DecidedBy;
use crate::model::question;
use crate::plan::By;
use crate::run::allow::consent::Question;
use crate::run::work::desk::Desk;
use crate::tools::approvals::{Answer, Need, answer};
use crate::tools::program::{self, Program};
use crate::tools::{Call, clip};

/// A question that is open.
pub(in crate::run) struct Sought {
    pub by: DecidedBy,
    /// `terminal`, `command` or `url`.
    pub of: &'static str,
    /// What they are told to have.
    pub limit: Duration,
    /// How long their answer is waited for.
    pub wait: Duration,
    /// `Err`: it cannot be told what was answered.
    pub answer: BoxFuture<'static, Result<Answer, String>>,
}

/// Asks whoever consents in this run; None when there is nobody.
pub(in crate::run) fn seek(desk: &Desk, call: &Call, need: &Need) -> Option<Sought> {
    let shared = &desk.shared;
    let office = &shared.consent;
    let limit = office.approver.timeout;
    let asked = body(desk, call, need, limit);
    let (by, of, answer) = match &office.approver.by {
        By::Terminal => {
            let reply = shared.watch.ask(Question {
                agent: desk.who.subtask.to_string(),
                role: desk.who.role.to_string(),
                tool: call.tool.clone(),
                what: whole(call),
                reason: need.reason(),
                scopes: need.scopes(call),
                until: Instant::now() + limit,
            })?;
            let heard = async move { reply.await.map_err(|_| "the terminal is gone".to_owned()) };
            (DecidedBy::Person, "terminal", heard.boxed())
        }
        By::Command(line) => {
            let (line, dir, env) = (line.clone(), office.dir.clone(), office.env.clone());
            let cancel = shared.stop.cancel.clone();
            let run = async move {
                let program = Program {
                    line: &line,
                    dir: &dir,
                    env: &env,
                    limit,
                };
                let ended = program::run(program, asked.to_string().as_bytes(), &cancel).await;
                said(&ended.map_err(|fault| fault.to_string())?)
            };
            (DecidedBy::Approver, "command", run.boxed())
        }
        By::Url(url) => {
            let url = url.clone();
            let post = async move {
                let posted = question::post(&url, asked.to_string().into_bytes(), limit).await;
                answer(&posted?)
            };
            (DecidedBy::Approver, "url", post.boxed())
        }
    };
    Some(Sought {
        by,
        of,
        // The one who is asked has the time; the wait itself a little more, so that it says what went wrong.
        limit,
        wait: match of {
            "terminal" => limit,
            _ => limit + Duration::from_secs(2),
        },
        answer,
    })
}

/// All that a person has to see of a call: a command or a path in full, else all arguments.
fn whole(call: &Call) -> String {
    let text = |key: &str| call.arguments.get(key).and_then(Value::as_str);
    match (text("command"), text("path")) {
        (Some(command), _) => command.to_owned(),
        (None, Some(path)) => path.to_owned(),
        (None, None) => call.arguments.to_string(),
    }
}

/// A program's end as an answer: 2 is a no, as with hooks.
fn said(ended: &program::Ended) -> Result<Answer, String> {
    let told = String::from_utf8_lossy(&ended.stderr);
    let told = clip::line(told.trim(), 300);
    match ended.code {
        0 => answer(&ended.stdout),
        2 => Ok(Answer::No {
            reason: (!told.is_empty()).then_some(told),
        }),
        code => Err(format!("it exited with {code}: {told}")),
    }
}

fn body(desk: &Desk, call: &Call, need: &Need, limit: Duration) -> Value {
    json!({
        "run": desk.shared.id.to_string(),
        "task": clip::middle(&desk.shared.task, 2_000),
        "subtask": desk.who.subtask.to_string(),
        "role": desk.who.role.to_string(),
        "round": desk.who.round,
        "tool_name": call.tool,
        "tool_input": call.arguments,
        "kind": call.kind,
        "reason": need.reason(),
        "scopes": need.scopes(call),
        "timeout_seconds": limit.as_secs_f64(),
    })
}
