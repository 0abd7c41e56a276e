//! One turn: a whole reply is checked, then its calls run in order, then all results are handed over.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::barren::Lack;
use super::stall::{Pace, STOPPED};
use super::work::{Step, WHY, Worker};
use super::{CallOutput, Stop, Traced, Turn, words};
use crate::model::{self, Finish, Reply};
use crate::tools::{self, Call, Kind, Output, clip};
use crate::{sandbox, trace};

/// How long a call that was told to stop may take to do so.
const GRACE: Duration = Duration::from_secs(10);

/// A turn that is being worked.
#[derive(Default)]
pub(super) struct Course {
    results: Vec<CallOutput>,
    wrote: bool,
    broke: bool,
    pub usable: bool,
    /// The first call of the turn that failed.
    pub failed: Option<u32>,
    /// Calls of the turn that would end the agent, those that cannot be understood included.
    pub endings: usize,
    /// Why the last unusable call was none.
    pub refused: String,
    /// Why the last ending call was handed back.
    pub handed_back: Option<String>,
    pub ended: Option<Value>,
    pub stop: Option<Stop>,
}

impl Worker<'_> {
    /// Answers a reply: with results, or with a nudge when there is nothing to run.
    pub(super) async fn reply(&mut self, reply: Reply) -> Result<Step, Stop> {
        if reply.calls.is_empty() {
            let nudge = self.nudge(&reply);
            let lacked = self.lacked(&reply);
            self.history.text(&reply, nudge);
            self.hand_over(Course::default()).await?;
            return Ok(Step::Barren(Lack::Call(lacked)));
        }
        let cut = match reply.finish {
            Finish::Length => Some(words::CUT),
            Finish::Filtered => Some(words::FILTERED),
            _ => None,
        };
        let mut course = Course::default();
        if let Some(words) = cut {
            for call in &reply.calls {
                let output = Output::refused("invalid_arguments", words);
                self.answer(&mut course, call, None, output);
            }
            course.refused = self.lacked(&reply);
        } else {
            self.calls(&mut course, &reply).await;
        }
        if let Some(stop) = course.stop.take_if(|stop| !stop.keeps_turn()) {
            self.results.append(&mut course.results);
            return Err(stop);
        }
        self.note(&mut course);
        let (ended, stop) = (course.ended.take(), course.stop.take());
        let (usable, refused) = (course.usable, std::mem::take(&mut course.refused));
        let lack = course.handed_back.take().map(Lack::Taken);
        let lack = lack.unwrap_or(Lack::Call(refused));
        let results = course.results.clone();
        let left_out = self.hand_over(course).await?;
        self.history.calls(&reply, &results, &left_out);
        match (ended, stop) {
            (Some(value), _) => Ok(Step::Ended(value)),
            (None, Some(stop)) => Err(stop),
            (None, None) if usable => Ok(Step::Went),
            (None, None) => Ok(Step::Barren(lack)),
        }
    }

    async fn hand_over(&mut self, course: Course) -> Result<Vec<String>, Stop> {
        let turn = Turn {
            number: self.used.turns,
            results: course.results,
            wrote: course.wrote,
        };
        self.results.extend(turn.results.iter().cloned());
        self.checkpoint.turn(&turn).await
    }

    /// Every call is checked before the first one runs.
    async fn calls(&mut self, course: &mut Course, reply: &Reply) {
        let checked: Vec<Result<Call, Output>> = reply
            .calls
            .iter()
            .map(|call| self.tools.check(&call.name, &call.arguments))
            .collect();
        let last = checked.len() - 1;
        course.endings = self.endings(&reply.calls, &checked);
        for (index, (made, checked)) in reply.calls.iter().zip(checked).enumerate() {
            if course.stop == Some(Stop::Cancelled) || self.checkpoint.cancel().is_cancelled() {
                course.stop = Some(Stop::Cancelled);
                let output = Output::refused("cancelled", words::CANCELLED);
                self.answer(course, made, checked.ok(), output);
                continue;
            }
            match checked {
                Err(refusal) => {
                    course.refused = clip::line(&refusal.text, WHY);
                    if refusal.error_type == Some("denied") {
                        self.checkpoint.refused(&made.name, &made.id, &refusal.text);
                    }
                    self.answer(course, made, None, refusal);
                }
                Ok(call) if call.tool == self.tools.ending() => {
                    self.end(course, made, call, index == last).await;
                }
                Ok(call) => self.one(course, made, call).await,
            }
        }
    }

    /// One call that may run.
    async fn one(&mut self, course: &mut Course, made: &model::Call, call: Call) {
        course.usable = true;
        let refusal = if course.broke {
            Some(words::AFTER_BREAK.to_string())
        } else if Instant::now() >= self.deadline {
            Some(words::NO_TIME.to_string())
        } else if !self.used.may_call(&self.role.limits) {
            Some(words::no_calls_left(self.tools.ending()))
        } else {
            None
        };
        if let Some(reason) = refusal {
            let output = Output::refused("denied", reason);
            return self.answer(course, made, Some(call), output);
        }
        self.used.tool_calls += 1;
        let began = Instant::now();
        let number = self.next_number(course);
        let Some(permit) = self.permitted(course, made, call).await else {
            return;
        };
        let (ran, traced) = self.run(made, &permit.call, number).await;
        let mut output = match ran {
            Ok(output) => self.looked_at(course, made, &permit, output).await,
            Err(error) => self.failed(course, error).await,
        };
        let call = permit.call;
        let writes = matches!(call.kind, Kind::Write | Kind::Execute | Kind::External);
        course.wrote |= writes && !course.broke;
        if course.stop.is_none() && !course.broke {
            self.pace(course, &call, &mut output);
        }
        let ran = Ran {
            output,
            took: began.elapsed(),
            traced,
        };
        self.settle(course, made, Some(call), ran);
    }

    /// Runs a call under its span; the text comes without its number.
    async fn run(
        &self,
        made: &model::Call,
        call: &Call,
        number: u32,
    ) -> (Result<Output, sandbox::Error>, Traced) {
        self.checkpoint.doing(&doing(call));
        let span = self
            .span
            .tool(&call.tool, &made.id, self.role.name.as_str());
        let sandbox = self.checkpoint.sandbox();
        let exec = (call.kind == Kind::Execute).then(|| span.exec(&start(sandbox.facts())));
        let token = self.checkpoint.cancel().child_token();
        let running = self.tools.run(call, number, sandbox.as_ref(), &token);
        let ran = within(running, &token, self.deadline).await;
        let failure = match &ran {
            Ok(output) if output.failed => output.error_type.or(Some("tool_error")),
            Ok(_) => None,
            Err(error) => Some(error.word()),
        };
        if let Some(exec) = exec {
            match &ran {
                Ok(output) => output
                    .exit_code
                    .into_iter()
                    .for_each(|code| exec.exited(code)),
                Err(error) => exec.fail(error.word(), error.word()),
            }
            exec.end();
        }
        if let Some(word) = failure {
            span.fail(word, word);
        }
        span.end();
        let traced = Traced {
            error_type: failure.map(str::to_owned),
            executed: call.kind == Kind::Execute,
        };
        let ran = ran.map(|mut output| {
            let prefix = format!("#{number} ");
            if let Some(bare) = output.text.strip_prefix(&prefix) {
                output.text = bare.to_string();
            }
            output
        });
        (ran, traced)
    }

    /// What is told of a call whose sandbox failed; the sandbox is opened again where it may be.
    async fn failed(&mut self, course: &mut Course, error: sandbox::Error) -> Output {
        if matches!(error, sandbox::Error::Cancelled) || self.checkpoint.cancel().is_cancelled() {
            if self.checkpoint.cancel().is_cancelled() {
                course.stop = Some(Stop::Cancelled);
            }
            return Output::refused("cancelled", words::CANCELLED);
        }
        course.broke = true;
        let lost = std::mem::take(&mut course.wrote);
        let reason = error.reason();
        let told = match self.bounded(self.checkpoint.reopen(error)).await {
            Ok(Ok(told)) => told,
            Ok(Err(stop)) | Err(stop) => {
                let told = stop.to_string();
                course.stop = Some(stop);
                told
            }
        };
        Output::refused("sandbox_broken", words::broken(&reason, &told, lost))
    }

    pub(super) fn pace(&mut self, course: &mut Course, call: &Call, output: &mut Output) {
        match self
            .stall
            .observe(&call.tool, &call.arguments, &output.text)
        {
            Pace::Moving => {}
            Pace::Repeating(times) => {
                output.text = format!("{}\n{}", output.text.trim_end(), words::repeating(times));
            }
            Pace::Stalled(times) => {
                debug_assert!(times >= STOPPED);
                course.stop = Some(Stop::Stalled {
                    tool: call.tool.clone(),
                    times,
                });
            }
        }
    }

    /// Answers a call that did not reach the sandbox, under a span of its own.
    pub(super) fn answer(
        &mut self,
        course: &mut Course,
        made: &model::Call,
        call: Option<Call>,
        output: Output,
    ) {
        let name = call.as_ref().map_or("unknown", |call| call.tool.as_str());
        let span = self.span.tool(name, &made.id, self.role.name.as_str());
        if let Some(word) = output.error_type {
            span.fail(word, word);
        }
        span.end();
        let traced = Traced {
            error_type: output.error_type.map(str::to_owned),
            executed: false,
        };
        let ran = Ran {
            output,
            took: Duration::ZERO,
            traced,
        };
        self.settle(course, made, call, ran);
    }

    /// Puts a call's result into the turn.
    fn settle(&mut self, course: &mut Course, made: &model::Call, call: Option<Call>, ran: Ran) {
        let number = self.next_number(course);
        let output = ran.output.numbered(number);
        let (tool, arguments) = match call {
            Some(call) => (call.tool, call.arguments),
            None => (
                clip::line(&made.name, 80),
                Value::String(made.arguments.clone()),
            ),
        };
        if output.failed && course.failed.is_none() && tool != self.tools.ending() {
            course.failed = Some(number);
        }
        let result = CallOutput {
            number,
            call_id: made.id.clone(),
            tool,
            arguments,
            text: output.text,
            failed: output.failed,
            exit_code: output.exit_code,
            seconds: ran.took.as_secs_f64(),
            traced: ran.traced,
        };
        self.remember(&result);
        course.results.push(result);
    }

    fn next_number(&self, course: &Course) -> u32 {
        (self.results.len() + course.results.len() + 1) as u32
    }

    /// What is told after a turn stands at the end of its last result.
    fn note(&mut self, course: &mut Course) {
        self.used.time = self.elapsed();
        self.used.unanswered = self.checkpoint.unanswered();
        let near = self.used.near(&self.role.limits, self.tools.ending());
        let near = near.or_else(|| self.used.marks(&self.role.limits));
        if let (Some(last), Some(near)) = (course.results.last_mut(), near)
            && course.ended.is_none()
        {
            last.text = format!("{}\n{near}", last.text.trim_end());
        }
    }
}

/// What a call came to.
struct Ran {
    output: Output,
    took: Duration,
    traced: Traced,
}

/// Waits for a call; past the deadline it is told to stop, and either way has a bounded grace to do so.
async fn within(
    running: impl Future<Output = Result<Output, sandbox::Error>>,
    token: &CancellationToken,
    deadline: Instant,
) -> Result<Output, sandbox::Error> {
    tokio::pin!(running);
    tokio::select! {
        biased;
        done = &mut running => return done,
        () = token.cancelled() => {}
        () = tokio::time::sleep_until(deadline) => token.cancel(),
    }
    match tokio::time::timeout(GRACE, running).await {
        Ok(done) => done,
        Err(_) => Err(sandbox::Error::Cancelled),
    }
}

fn start(facts: &sandbox::Facts) -> trace::ExecStart {
    trace::ExecStart {
        executable: facts.shell.clone().unwrap_or_default(),
        container: facts.container.clone(),
        image: facts.image.clone(),
        runtime: facts.runtime.clone(),
    }
}

/// One short line for the live board.
fn doing(call: &tools::Call) -> String {
    let arguments = &call.arguments;
    let what = ["command", "path", "pattern"]
        .iter()
        .find_map(|key| arguments.get(*key)?.as_str());
    match what {
        Some(what) => format!("{}: {}", call.tool, clip::line(what, 60)),
        None => call.tool.clone(),
    }
}
