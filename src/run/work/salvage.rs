//! What is known of an agent that ended without a report: files it changed, commands it ran last.

use crate::agent::CallOutput;
use crate::run::end::words;
use crate::tools::clip;

/// Commands that are named.
const COMMANDS: usize = 5;
/// Files that are named.
const FILES: usize = 12;
/// Characters of a command.
const LINE: usize = 120;

/// Its last commands, each with its exit code.
pub(in crate::run) fn commands(results: &[CallOutput]) -> Vec<String> {
    let ran = results.iter().filter_map(|result| {
        let code = result.exit_code?;
        let line = result.arguments["command"].as_str();
        let line = line.unwrap_or(&result.tool);
        Some(format!("`{}`: exit code {code}", clip::line(line, LINE)))
    });
    let all: Vec<String> = ran.collect();
    all[all.len().saturating_sub(COMMANDS)..].to_vec()
}

/// A reason with these facts after it.
pub(in crate::run) fn with_facts(
    reason: String,
    changed: &[String],
    commands: &[String],
) -> String {
    let mut text = reason;
    match changed.len() {
        0 => text.push_str("; it changed no file"),
        _ => text.push_str(&format!(
            "; it changed {}",
            words::few(changed, FILES, ", ")
        )),
    }
    match commands {
        [] => text.push_str("; it ran no command to its end"),
        commands => text.push_str(&format!("; its last commands: {}", commands.join(", "))),
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ran(tool: &str, line: &str, code: Option<i32>) -> CallOutput {
        CallOutput {
            traced: Default::default(),
            number: 1,
            call_id: "c".into(),
            tool: tool.into(),
            arguments: json!({"command": line}),
            text: String::new(),
            failed: code != Some(0),
            exit_code: code,
            seconds: 0.0,
        }
    }

    #[test]
    fn the_last_commands_and_files_are_named_and_the_rest_counted() {
        let mut results: Vec<CallOutput> = (0..9)
            .map(|n| ran("bash", &format!("c{n}"), Some(n)))
            .collect();
        results.push(ran("bash", "cut off", None));
        let commands = commands(&results);
        assert_eq!(commands.len(), COMMANDS);
        assert_eq!(commands[4], "`c8`: exit code 8");
        let files: Vec<String> = (0..14).map(|n| format!("f{n}")).collect();
        let text = with_facts("it stopped".into(), &files, &commands[4..]);
        assert!(text.starts_with("it stopped; it changed f0, ") && text.contains("f11 and 2 more"));
        assert!(
            text.ends_with("its last commands: `c8`: exit code 8"),
            "{text}"
        );
        let none = with_facts("it stopped".into(), &[], &[]);
        assert_eq!(
            none,
            "it stopped; it changed no file; it ran no command to its end"
        );
    }
}
