//! A tool call that a model wrote as text: recognised, never run.

/// The tool whose call the text seems to hold, among those that exist.
pub fn find<'a>(text: &str, tools: &'a [String]) -> Option<&'a str> {
    const MARKS: [&str; 7] = [
        "<tool_call",
        "<invoke",
        "<function_call",
        "<function=",
        "[TOOL_CALLS]",
        "<|tool",
        "to=functions.",
    ];
    let marked = MARKS.iter().any(|mark| text.contains(mark));
    let json = text.contains("\"name\"")
        && (text.contains("\"arguments\"") || text.contains("\"parameters\""));
    if !marked && !json {
        return None;
    }
    tools.iter().map(String::as_str).find(|tool| {
        text.match_indices(tool).any(|(at, _)| {
            let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            !word(text[..at].chars().next_back()) && !word(text[at + tool.len()..].chars().next())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaked_call_of_a_known_tool_is_seen_in_its_many_spellings() {
        let tools = ["bash".to_string(), "read_file".to_string()];
        let leaked = [
            "<tool_call>{\"name\":bash,\"arguments\":{\"command\":\"touch leaked\"}}</tool_call>",
            "<invoke name=\"bash\"><parameter name=\"command\">ls</parameter></invoke>",
            "<function=bash>",
            "```json\n{\"name\": \"bash\", \"parameters\": {}}\n```",
            "[TOOL_CALLS] [{\"name\": \"bash\"}]",
        ];
        for text in leaked {
            assert_eq!(find(text, &tools), Some("bash"), "{text}");
        }
        for text in [
            "I will now run bash.",
            "<tool_call>{\"name\":\"other\"}",
            "rebash <invoke",
            "",
        ] {
            assert_eq!(find(text, &tools), None, "{text}");
        }
    }
}
