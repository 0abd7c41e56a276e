//! The conversation as it may be sent: normalised first, then checked against the strictest rules.

use std::collections::HashSet;

use serde_json::Value;

use super::profile::{Quirk, Quirks};
use super::{Call, Error, Message, Request, ids};

/// What stands for a tool result without text.
const NO_OUTPUT: &str = "(no output)";

/// The request's messages, fit for any server: no empty ones, no two user messages in a row, sound
/// names and arguments. A list that breaks a rule is a fault of ours and is not sent.
pub fn prepare(request: &Request) -> Result<Vec<Message>, Error> {
    let messages = normalise(&request.messages);
    check(&messages)
        .and_then(|()| check_tools(request))
        .map_err(|what| Error::Setup {
            what: format!("the conversation cannot be sent: {what}"),
            hint: "this is a bug in Wharf; the run's journal shows how it came about".to_owned(),
        })?;
    Ok(messages)
}

/// The arguments as a JSON object, `{}` when they are none.
pub fn object(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(map)) => Value::Object(map),
        _ => Value::Object(serde_json::Map::new()),
    }
}

/// Prepared messages in the form that a server's rules of roles and ids ask for.
pub fn fitted(messages: &[Message], quirks: Quirks) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        match (message, out.last_mut()) {
            (Message::User { text }, Some(Message::Tool { text: before, .. }))
                if quirks.has(Quirk::FoldUser) =>
            {
                before.push_str("\n\n");
                before.push_str(text);
            }
            (Message::User { text }, Some(Message::System { text: system }))
                if quirks.has(Quirk::NoSystem) =>
            {
                let text = format!("{system}\n\n{text}");
                out.clear();
                out.push(Message::User { text });
            }
            _ => out.push(message.clone()),
        }
    }
    if quirks.has(Quirk::ShortIds) {
        shorten(&mut out);
    }
    out
}

fn shorten(messages: &mut [Message]) {
    for message in messages {
        match message {
            Message::Assistant { calls, .. } => {
                calls
                    .iter_mut()
                    .for_each(|call| call.id = ids::short(&call.id));
            }
            Message::Tool { call_id, .. } => *call_id = ids::short(call_id),
            Message::System { .. } | Message::User { .. } => {}
        }
    }
}

/// True when `arguments` are a JSON object.
pub fn is_object(arguments: &str) -> bool {
    matches!(serde_json::from_str(arguments), Ok(Value::Object(_)))
}

fn normalise(messages: &[Message]) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        match message {
            Message::System { text } | Message::User { text } if text.trim().is_empty() => {}
            Message::User { text } => match out.last_mut() {
                Some(Message::User { text: before }) => {
                    before.push_str("\n\n");
                    before.push_str(text);
                }
                _ => out.push(message.clone()),
            },
            Message::Assistant { text, calls, .. }
                if text.trim().is_empty() && calls.is_empty() => {}
            Message::Assistant {
                text,
                calls,
                native,
            } => out.push(Message::Assistant {
                text: text.clone(),
                calls: calls.iter().map(sound).collect(),
                native: native.clone(),
            }),
            Message::Tool { text, .. } if text.trim().is_empty() => {
                let mut filled = message.clone();
                if let Message::Tool { text, .. } = &mut filled {
                    NO_OUTPUT.clone_into(text);
                }
                out.push(filled);
            }
            Message::System { .. } | Message::Tool { .. } => out.push(message.clone()),
        }
    }
    out
}

/// The agent has answered unsound arguments with an error; servers get a form they can read.
fn sound(call: &Call) -> Call {
    Call {
        id: call.id.clone(),
        name: ids::fit_name(&call.name),
        arguments: if is_object(&call.arguments) {
            call.arguments.clone()
        } else {
            "{}".to_owned()
        },
    }
}

fn check(messages: &[Message]) -> Result<(), String> {
    let mut seen: HashSet<&str> = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    let mut last_said = Said::Nothing;
    for (at, message) in messages.iter().enumerate() {
        if let Some(id) = open.first()
            && !matches!(message, Message::Tool { .. })
        {
            return Err(format!("call {id} has no result before message {at}"));
        }
        last_said = match message {
            Message::System { .. } if at == 0 => Said::Nothing,
            Message::System { .. } => return Err(format!("message {at} is a late system message")),
            Message::User { .. } => Said::Ours,
            Message::Assistant { .. } if last_said != Said::Ours => {
                return Err(format!("message {at} of the assistant answers nothing"));
            }
            Message::Assistant { calls, .. } => {
                open = check_calls(calls, &mut seen)?;
                Said::Theirs
            }
            Message::Tool { call_id, .. } => {
                let Some(place) = open.iter().position(|id| id == call_id) else {
                    return Err(format!("result {call_id} at message {at} has no open call"));
                };
                open.remove(place);
                Said::Ours
            }
        };
    }
    match (open.first(), last_said) {
        (Some(id), _) => Err(format!("call {id} has no result")),
        (None, Said::Ours) => Ok(()),
        (None, Said::Theirs | Said::Nothing) => Err("its end asks nothing".to_owned()),
    }
}

/// Whose words came last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    Nothing,
    Ours,
    Theirs,
}

fn check_calls<'a>(calls: &'a [Call], seen: &mut HashSet<&'a str>) -> Result<Vec<&'a str>, String> {
    for call in calls {
        if call.id.is_empty() {
            return Err(format!("a call of {} has no id", call.name));
        }
        if !seen.insert(&call.id) {
            return Err(format!("call id {} stands twice", call.id));
        }
    }
    Ok(calls.iter().map(|call| call.id.as_str()).collect())
}

fn check_tools(request: &Request) -> Result<(), String> {
    let mut names = HashSet::new();
    for tool in &request.tools {
        if !ids::is_fit(&tool.name) {
            return Err(format!("tool name {:?} is refused by servers", tool.name));
        }
        if !names.insert(&tool.name) {
            return Err(format!("tool {} stands twice", tool.name));
        }
        if !tool.schema.is_object() {
            return Err(format!("the schema of tool {} is no object", tool.name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Key;

    fn system() -> Message {
        Message::System { text: "s".into() }
    }

    fn user(text: &str) -> Message {
        Message::User { text: text.into() }
    }

    fn assistant(text: &str, calls: &[(&str, &str, &str)]) -> Message {
        let call = |&(id, name, arguments): &(&str, &str, &str)| Call {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        };
        Message::Assistant {
            text: text.into(),
            calls: calls.iter().map(call).collect(),
            native: None,
        }
    }

    fn tool(id: &str, text: &str) -> Message {
        Message::Tool {
            call_id: id.into(),
            name: "bash".into(),
            text: text.into(),
            failed: false,
        }
    }

    fn sent(messages: Vec<Message>) -> Result<Vec<Message>, Error> {
        prepare(&Request {
            key: Key {
                round: 1,
                subtask: "a".into(),
                role: "coder".into(),
                call: 1,
            },
            messages,
            tools: vec![],
            reply_tokens: 100,
            temperature: None,
            effort: None,
        })
    }

    #[test]
    fn users_are_merged_and_empty_answers_dropped() {
        let out = sent(vec![
            system(),
            user("a"),
            assistant(" ", &[]),
            user("b"),
            user(""),
        ]);
        assert_eq!(out.unwrap(), [system(), user("a\n\nb")]);
    }

    #[test]
    fn names_arguments_and_empty_results_are_made_sound() {
        let out = sent(vec![
            user("a"),
            assistant(
                "",
                &[
                    ("1", "functions.bash", "{\"a\":"),
                    ("2", "bash", "{ \"a\": 1 }"),
                ],
            ),
            tool("2", "x"),
            tool("1", ""),
        ]);
        let wanted = [("1", "functions_bash", "{}"), ("2", "bash", "{ \"a\": 1 }")];
        assert_eq!(
            out.unwrap(),
            [
                user("a"),
                assistant("", &wanted),
                tool("2", "x"),
                tool("1", NO_OUTPUT)
            ]
        );
    }

    #[test]
    fn a_server_s_rules_of_roles_and_ids_are_kept() {
        let list = [
            system(),
            user("a"),
            assistant("", &[("call_1", "bash", "{}"), ("call_2", "bash", "{}")]),
            tool("call_1", "x"),
            tool("call_2", "y"),
            user("b"),
        ];
        let none = Quirks::default();
        assert_eq!(fitted(&list, none), list);
        let out = fitted(&list, none.with(Quirk::FoldUser).with(Quirk::NoSystem));
        assert_eq!(out[0], user("s\n\na"));
        assert_eq!(out[out.len() - 1], tool("call_2", "y\n\nb"));
        let out = fitted(&list, none.with(Quirk::ShortIds));
        assert_eq!(check(&out), Ok(()));
        for message in &out {
            if let Message::Tool { call_id, .. } = message {
                assert!(call_id.len() == 9 && call_id.bytes().all(|b| b.is_ascii_alphanumeric()));
            }
        }
    }

    #[test]
    fn broken_lists_are_not_sent() {
        let call = [("1", "bash", "{}")];
        let broken = [
            vec![],
            vec![system()],
            vec![user("a"), system(), user("b")],
            vec![assistant("a", &[]), user("b")],
            vec![user("a"), assistant("b", &[])],
            vec![
                user("a"),
                assistant("b", &[]),
                assistant("c", &[]),
                user("d"),
            ],
            vec![user("a"), assistant("", &call)],
            vec![user("a"), assistant("", &call), user("b")],
            vec![user("a"), tool("1", "x")],
            vec![
                user("a"),
                assistant("", &call),
                tool("1", "x"),
                tool("1", "y"),
            ],
            vec![
                user("a"),
                assistant("", &call),
                tool("1", "x"),
                assistant("", &call),
                tool("1", "y"),
            ],
            vec![
                user("a"),
                assistant("", &[("", "bash", "{}")]),
                tool("", "x"),
            ],
        ];
        for messages in broken {
            let shown = format!("{messages:?}");
            assert!(
                matches!(sent(messages), Err(Error::Setup { .. })),
                "{shown}"
            );
        }
    }
}
