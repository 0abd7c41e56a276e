//! The ending call: when it is handed in, and when it is handed back first.

use std::collections::BTreeSet;

use serde_json::Value;

use super::turn::Course;
use super::work::{WHY, Worker};
use super::{Stop, report, words};
use crate::tools::{self, Call, Output, clip};
use crate::{model, plan};

impl Worker<'_> {
    /// The ending call: handed in when it is the last of its turn and nothing before it failed.
    pub(super) async fn end(
        &mut self,
        course: &mut Course,
        made: &model::Call,
        call: Call,
        last: bool,
    ) {
        let refusal = if course.endings > 1 {
            // Which of them is meant cannot be told, and the last word is not it by itself.
            Some(words::several(course.endings, self.tools.ending()))
        } else if !last {
            Some(words::NOT_ALONE.to_string())
        } else if let Some(number) = course.failed {
            Some(words::after_failure(number))
        } else if self.must_check(&call.arguments) {
            self.asked_to_check = true;
            course.usable = true;
            Some(words::CHECK_FIRST.to_string())
        } else if let Some(fault) = self.fault(&call.arguments) {
            Some(self.ask_again(course, fault))
        } else {
            match self.bounded(self.checkpoint.accept(&call.arguments)).await {
                Ok(Ok(Ok(()))) => None,
                Ok(Ok(Err(reason))) => Some(reason),
                Ok(Err(stop)) | Err(stop) => {
                    let told = stop.to_string();
                    course.stop = Some(stop);
                    Some(told)
                }
            }
        };
        let output = match refusal {
            None => {
                course.ended = Some(call.arguments.clone());
                course.usable = true;
                Output::done("handed in")
            }
            Some(reason) => {
                course.handed_back = Some(clip::line(&reason, WHY));
                Output::refused("denied", reason)
            }
        };
        self.answer(course, made, Some(call), output);
    }

    /// How many calls of a turn would end the agent; those with the very same words count as one.
    pub(super) fn endings(&self, made: &[model::Call], checked: &[Result<Call, Output>]) -> usize {
        let ending = self.tools.ending();
        let ends = |(made, checked): &(&model::Call, &Result<Call, Output>)| match checked {
            Ok(call) => call.tool == ending,
            Err(_) => made.name.trim().eq_ignore_ascii_case(ending),
        };
        let ends = made.iter().zip(checked).filter(ends);
        let said: BTreeSet<&str> = ends.map(|(made, _)| made.arguments.trim()).collect();
        said.len()
    }

    /// What is wrong with a report; other ending calls are checked by the run.
    fn fault(&self, arguments: &Value) -> Option<String> {
        let reports = self.tools.ending() == tools::Ending::Report.tool();
        report::fault(arguments).filter(|_| reports)
    }

    /// A report without use is asked for once more, in the same conversation; then it ends the agent.
    fn ask_again(&mut self, course: &mut Course, fault: String) -> String {
        let told = words::report_again(&fault);
        if self.asked_again || self.used.turns >= self.role.limits.turns {
            course.stop = Some(Stop::NoReport { fault });
        } else {
            self.asked_again = true;
            course.usable = true;
        }
        told
    }

    /// A worker with a shell that calls edits done without having run anything after them.
    fn must_check(&self, report: &Value) -> bool {
        self.unchecked
            && !self.asked_to_check
            && self.role.kind == plan::Kind::Worker
            && self.tools.has("bash")
            && self.used.may_call(&self.role.limits)
            && self.used.turns < self.role.limits.turns
            && report.get("status").and_then(Value::as_str) == Some("done")
    }
}
