//! A DAG of subtasks as text that drawing programs read.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Subtask;
use crate::id::SubtaskId;

/// The language of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawing {
    Mermaid,
    Dot,
}

/// Colours of the states that are known; others are drawn plain.
const COLOURS: [(&str, &str); 5] = [
    ("done", "#b7e4c7"),
    ("failed", "#f4a5a5"),
    ("blocked", "#e0e0e0"),
    ("cancelled", "#e0e0e0"),
    ("running", "#bcd7f5"),
];

/// The longest label line.
const LABEL: usize = 60;

/// Draws subtasks with an arrow from each need; `states` may give each a word such as `done`.
pub fn draw(
    subtasks: &[Subtask],
    states: &BTreeMap<SubtaskId, String>,
    drawing: Drawing,
) -> String {
    match drawing {
        Drawing::Mermaid => mermaid(subtasks, states),
        Drawing::Dot => dot(subtasks, states),
    }
}

/// Mermaid takes ids such as `end` for words of its own, so nodes are numbered.
fn mermaid(subtasks: &[Subtask], states: &BTreeMap<SubtaskId, String>) -> String {
    let numbers = numbers(subtasks);
    let mut text = String::from("flowchart TD\n");
    for (i, subtask) in subtasks.iter().enumerate() {
        let lines: Vec<String> = label(subtask, states)
            .iter()
            .map(|line| entities(line))
            .collect();
        let class = state(subtask, states)
            .map(|word| format!(":::{word}"))
            .unwrap_or_default();
        let _ = writeln!(text, "  n{i}[\"{}\"]{class}", lines.join("<br/>"));
    }
    for (i, subtask) in subtasks.iter().enumerate() {
        for need in subtask.needs.iter().filter_map(|need| numbers.get(need)) {
            let _ = writeln!(text, "  n{need} --> n{i}");
        }
    }
    for (word, colour) in COLOURS {
        if subtasks
            .iter()
            .any(|subtask| state(subtask, states) == Some(word))
        {
            let _ = writeln!(text, "  classDef {word} fill:{colour}");
        }
    }
    text
}

fn dot(subtasks: &[Subtask], states: &BTreeMap<SubtaskId, String>) -> String {
    let numbers = numbers(subtasks);
    let mut text = String::from("digraph plan {\n  node [shape=box];\n");
    for (i, subtask) in subtasks.iter().enumerate() {
        let lines: Vec<String> = label(subtask, states)
            .iter()
            .map(|line| quoted(line))
            .collect();
        let colour = state(subtask, states)
            .and_then(|word| COLOURS.iter().find(|(name, _)| *name == word))
            .map(|(_, colour)| format!(", style=filled, fillcolor=\"{colour}\""))
            .unwrap_or_default();
        let _ = writeln!(text, "  n{i} [label=\"{}\"{colour}];", lines.join("\\n"));
    }
    for (i, subtask) in subtasks.iter().enumerate() {
        for need in subtask.needs.iter().filter_map(|need| numbers.get(need)) {
            let _ = writeln!(text, "  n{need} -> n{i};");
        }
    }
    text.push_str("}\n");
    text
}

fn numbers(subtasks: &[Subtask]) -> BTreeMap<&SubtaskId, usize> {
    subtasks
        .iter()
        .enumerate()
        .map(|(i, subtask)| (&subtask.id, i))
        .collect()
}

/// The state of a subtask, if it is one of the known words.
fn state(subtask: &Subtask, states: &BTreeMap<SubtaskId, String>) -> Option<&'static str> {
    let word = states.get(&subtask.id)?;
    COLOURS
        .iter()
        .map(|(name, _)| *name)
        .find(|name| name == word)
}

fn label(subtask: &Subtask, states: &BTreeMap<SubtaskId, String>) -> Vec<String> {
    let mut second = subtask.role.to_string();
    if let Some(word) = states.get(&subtask.id) {
        second = format!("{second}, {word}");
    }
    let lines = [
        Some(subtask.id.to_string()),
        subtask.title.clone(),
        Some(second),
    ];
    lines
        .into_iter()
        .flatten()
        .map(|line| short(&line))
        .collect()
}

fn short(line: &str) -> String {
    let plain: String = line
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match plain.char_indices().nth(LABEL) {
        Some((cut, _)) => format!("{}…", &plain[..cut]),
        None => plain,
    }
}

/// Everything but letters, digits and harmless signs as Mermaid's numbered entities.
fn entities(line: &str) -> String {
    let mut text = String::new();
    for c in line.chars() {
        if c.is_alphanumeric() || " _-.,:…".contains(c) {
            text.push(c);
        } else {
            let _ = write!(text, "#{};", c as u32);
        }
    }
    text
}

fn quoted(line: &str) -> String {
    line.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RoleName;

    fn subtask(id: &str, title: Option<&str>, needs: &[&str]) -> Subtask {
        Subtask {
            id: SubtaskId::new(id),
            role: RoleName::new("coder"),
            title: title.map(str::to_owned),
            brief: "b".to_owned(),
            needs: needs.iter().map(|need| SubtaskId::new(*need)).collect(),
        }
    }

    #[test]
    fn draws_mermaid() {
        let nodes = [
            subtask("end", None, &[]),
            subtask("b", Some("say \"hi\"]; [x"), &["end"]),
        ];
        let states = BTreeMap::from([(SubtaskId::new("end"), "done".to_owned())]);
        assert_eq!(
            draw(&nodes, &states, Drawing::Mermaid),
            "flowchart TD\n  n0[\"end<br/>coder, done\"]:::done\n  \
             n1[\"b<br/>say #34;hi#34;#93;#59; #91;x<br/>coder\"]\n  n0 --> n1\n  \
             classDef done fill:#b7e4c7\n"
        );
    }

    #[test]
    fn draws_dot() {
        let nodes = [
            subtask("a", Some("back\\slash \"q\"\nline"), &[]),
            subtask("b", None, &["a"]),
        ];
        let states = BTreeMap::from([(SubtaskId::new("b"), "failed".to_owned())]);
        assert_eq!(
            draw(&nodes, &states, Drawing::Dot),
            "digraph plan {\n  node [shape=box];\n  \
             n0 [label=\"a\\nback\\\\slash \\\"q\\\" line\\ncoder\"];\n  \
             n1 [label=\"b\\ncoder, failed\", style=filled, fillcolor=\"#f4a5a5\"];\n  n0 -> n1;\n}\n"
        );
    }

    #[test]
    fn an_unknown_state_is_no_class() {
        let nodes = [subtask("a", None, &[])];
        let states = BTreeMap::from([(SubtaskId::new("a"), "x; click".to_owned())]);
        let text = draw(&nodes, &states, Drawing::Mermaid);
        assert!(!text.contains(":::"), "{text}");
    }
}
