//! What an agent is told by the loop itself, beside its tools' results.

use crate::model::{Finish, Reply};

use super::leak;

/// Answers in a row without a usable call that end an agent.
pub const NO_CALL: u32 = 5;

/// What a reply without a call, or a cut one, is answered with; follows from the reply alone.
pub fn nudge(reply: &Reply, tools: &[String], ending: &str) -> String {
    if reply.finish == Finish::Length {
        return format!(
            "Your reply reached the length limit and was cut, so nothing of it was used. Go on in smaller \
             steps, with one tool call; when you are done, call {ending}."
        );
    }
    if let Some(tool) = leak::find(&reply.text, tools) {
        return format!(
            "You wrote a call of {tool} as text. Text is never run. Make the call through the tool interface."
        );
    }
    if reply.text.trim().is_empty() {
        return format!(
            "Your reply was empty. Call a tool to go on; when you are done, call {ending}: only that call ends \
             your work."
        );
    }
    format!(
        "Your reply had no tool call. Text alone ends nothing and nobody reads it. Call a tool to go on; when \
         you are done, call {ending}."
    )
}

/// Why a reply had no usable call, for the reason of a stop.
pub fn lacked(reply: &Reply, tools: &[String]) -> &'static str {
    if reply.finish == Finish::Length {
        "the last was cut at the reply limit"
    } else if leak::find(&reply.text, tools).is_some() {
        "the last wrote its call as text"
    } else if reply.text.trim().is_empty() {
        "the model returned nothing"
    } else {
        "the last was text alone"
    }
}

/// Answers each call of a reply that the length limit cut.
pub const CUT: &str = "not run: your reply reached its length limit, so this call may be incomplete; make it \
                       again, smaller (a long file in several parts)";

/// Answers each call of a reply that a filter cut.
pub const FILTERED: &str = "not run: the provider's filter cut your reply, so this call may be incomplete; make \
                            it again in other words";

/// Answers an ending call that stands before others in its turn.
pub const NOT_ALONE: &str = "not handed in: other calls of the same turn stand after it, or it was made twice in \
                             different words; look at the results, then make this call alone";

/// Answers each of several ending calls in one turn.
pub fn several(calls: usize, ending: &str) -> String {
    format!(
        "not handed in: {calls} {ending} calls in one turn, and none of them counts; make this call once, alone, \
         with what you mean"
    )
}

/// Answers an ending call after a call of its turn failed.
pub fn after_failure(number: u32) -> String {
    format!(
        "not handed in: #{number} of the same turn failed and you have not seen it; look at it, then make this \
         call alone"
    )
}

/// Asks a worker once to check what it edited.
pub const CHECK_FIRST: &str = "not handed in yet: no command was run after your last edit. Run what shows that \
                               it works (the acceptance commands, the tests, the program), then make this call \
                               again";

/// Begins what asks for a report again.
pub const REPORT_AGAIN: &str = "not handed in: your report ";

/// Asks for a report again.
pub fn report_again(fault: &str) -> String {
    format!(
        "{REPORT_AGAIN}{fault}. Make the call again with what you did, what you found and where, in a few \
         sentences that stand alone"
    )
}

/// Answers a call past the limit of tool calls.
pub fn no_calls_left(ending: &str) -> String {
    format!("not run: your tool calls are used up; call {ending} with what you have")
}

/// Answers a call that the agent's time ran out before.
pub const NO_TIME: &str = "not run: your time is used up";

/// Answers a call that the cancel came before.
pub const CANCELLED: &str = "cancelled";

/// Answers a call whose sandbox broke.
pub fn broken(reason: &str, told: &str, lost: bool) -> String {
    let lost = match lost {
        true => " What earlier calls of this turn changed is lost with it.",
        false => "",
    };
    format!("this call has no result: the sandbox broke ({reason}). {told}{lost}")
}

/// Answers the calls after one whose sandbox broke.
pub const AFTER_BREAK: &str = "not run: the sandbox broke earlier in this turn; look at the state of the files, \
                               then make this call again if it is still right";

/// Told when a call or cycle came back with the same results.
pub fn repeating(times: u32) -> String {
    format!(
        "[the same call, or the same few calls in turn, gave the same result {times} times now. Repeating it \
         will not change that: try something else, or report what blocks you]"
    )
}

/// A result's text without what the loop itself told at its end.
pub fn bare(text: &str) -> &str {
    let near = |line: &str| line.starts_with('[') && line.ends_with(" of your time are left]");
    let repeats = |line: &str| line.starts_with("[the same call, or the same few calls in turn,");
    let mut bare = text;
    while let Some((before, last)) = bare.rsplit_once('\n') {
        if !repeats(last) && !near(last) {
            break;
        }
        bare = before;
    }
    bare
}

/// Told when files of the turn were not carried into its snapshot.
pub fn left_out(paths: &[String]) -> String {
    format!("[not kept with your changes: {}]", paths.join("; "))
}

/// Stands in the place of turns that were summed up.
pub fn summed_up(summary: &str) -> String {
    format!(
        "# Your work so far, summed up\n\n[Your earlier turns were replaced by these notes to save room. They \
         are no source to quote from: read a file or run a command again before you rely on its exact \
         words.]\n\n{summary}"
    )
}

/// In a fence that nothing inside can close.
pub fn fenced(text: &str) -> String {
    let longest = text
        .split(|c| c != '`')
        .map(str::len)
        .max()
        .unwrap_or_default();
    let fence = "`".repeat((longest + 1).max(3));
    format!("{fence}\n{}\n{fence}", text.trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::agent::limits::Used;
    use crate::plan::AgentLimits;

    #[test]
    fn what_the_loop_told_at_the_end_of_a_result_comes_off_again() {
        let limits = AgentLimits {
            turns: 5,
            tokens: 1_000,
            time: Duration::from_secs(60),
            tool_calls: 2,
            tool_timeout: Duration::from_secs(30),
            output: 8_000,
            reply_tokens: 100,
        };
        let used = Used {
            turns: 4,
            ..Used::default()
        };
        let near = used.near(&limits, "submit_report").unwrap();
        let text = "exit code 0\n[1, 2]";
        assert_eq!(bare(text), text);
        assert_eq!(bare(&format!("{text}\n{near}")), text);
        assert_eq!(bare(&format!("{text}\n{}\n{near}", repeating(3))), text);
        assert_eq!(bare(""), "");
    }
}
