//! Pairs stay whole, requests fit, and what was taken out is named.

use proptest::prelude::*;

use serde_json::json;

use super::shorten::cut;
use super::*;
use crate::model::Call;
use crate::model::{Finish, Usage};
use crate::tools;

fn compaction(at: f64, keep: usize) -> Compaction {
    Compaction {
        at,
        keep,
        ..Compaction::default()
    }
}

fn reply(text: &str, ids: &[String]) -> Reply {
    let calls = ids.iter().map(|id| Call {
        id: id.clone(),
        name: "bash".into(),
        arguments: r#"{"command":"seq 2000"}"#.into(),
    });
    Reply {
        text: text.into(),
        calls: calls.collect(),
        finish: Finish::Calls,
        usage: Usage::default(),
        model: None,
        id: None,
        native: None,
    }
}

fn output(number: u32, id: &str, text: String) -> CallOutput {
    CallOutput {
        traced: Default::default(),
        number,
        call_id: id.into(),
        tool: "bash".into(),
        arguments: json!({"command": "seq 2000"}),
        text,
        failed: false,
        exit_code: Some(0),
        seconds: 0.0,
    }
}

fn valid(list: &[Message]) -> Result<(), String> {
    if !matches!(list, [Message::System { .. }, Message::User { .. }, ..]) {
        return Err("begins otherwise".into());
    }
    let mut open: Vec<String> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    let mut after_user = false;
    for message in list {
        let user = matches!(message, Message::User { .. });
        match message {
            Message::Tool { call_id, .. } => {
                let due = !open.is_empty() && open.remove(0) == *call_id;
                if !due || !seen.insert(call_id.clone()) {
                    return Err(format!("{call_id} answered out of place"));
                }
            }
            _ if !open.is_empty() => return Err(format!("{open:?} not answered")),
            Message::Assistant { text, calls, .. } => {
                if text.is_empty() && calls.is_empty() {
                    return Err("empty assistant".into());
                }
                open = calls.iter().map(|c| c.id.clone()).collect();
            }
            Message::User { .. } if after_user => return Err("two users".into()),
            _ => {}
        }
        after_user = user;
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err("dangling".into())
    }
}

#[test]
fn an_elided_output_says_what_it_was() {
    let compaction = compaction(0.1, 2);
    let mut history = History::new("s", "f", compaction, 4_000, 1_000);
    for n in 1..=3 {
        let id = format!("c{n}");
        history.calls(
            &reply("", std::slice::from_ref(&id)),
            &[output(n, &id, "x".repeat(1_234))],
            &[],
        );
    }
    assert!(history.fit());
    let texts: Vec<String> = history
        .messages()
        .into_iter()
        .filter_map(|m| match m {
            Message::Tool { text, .. } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(
        texts[0],
        "[output of #1: bash \"seq 2000\" elided: 1,234 characters; run it again if you need it]"
    );
    assert_eq!(texts[2].len(), 1_234);
    assert!(!history.fit(), "nothing more to elide");
}

#[test]
fn one_output_larger_than_the_window_is_clipped_in_the_sent_copy() {
    let mut history = History::new("s", "f", compaction(0.7, 6), 8_000, 2_000);
    history.calls(
        &reply("", &["a".into()]),
        &[output(1, "a", "9\n".repeat(500_000))],
        &[],
    );
    history.fit();
    let bytes: usize = serde_json::to_string(&history.messages()).unwrap().len();
    assert!(bytes < 32_000, "{bytes}");
    assert_eq!(valid(&history.messages()), Ok(()));
}

#[test]
fn unreadable_arguments_are_sent_as_an_object() {
    let mut broken = reply("", &["a".into()]);
    broken.calls[0].arguments = "{\"command\":\"rm -rf build".into();
    let mut history = History::new("s", "f", compaction(0.7, 6), 8_000, 2_000);
    history.calls(&broken, &[output(1, "a", "no".into())], &[]);
    let sent = history.messages();
    let Message::Assistant { calls, .. } = &sent[2] else {
        panic!("{sent:?}")
    };
    assert!(
        tools::is_object(&calls[0].arguments),
        "{}",
        calls[0].arguments
    );
}

#[test]
fn a_summary_takes_the_place_of_the_beginning_and_of_the_summary_before() {
    let mut history = History::new("s", "f", compaction(0.5, 2), 2_000, 500);
    let add = |history: &mut History, n: u32| {
        let id = format!("c{n}");
        let said = format!("thought {n} {}", "long ".repeat(60));
        history.calls(
            &reply(&said, std::slice::from_ref(&id)),
            &[output(n, &id, format!("output {n}"))],
            &[],
        );
    };
    (1..=6).for_each(|n| add(&mut history, n));
    let part = history.part(10_000).unwrap();
    assert_eq!((part.items, part.before.as_deref()), (5, None));
    assert!(part.transcript.contains("[said] thought 1 ") && part.transcript.contains("output 5"));
    assert!(!part.transcript.contains("output 6"));
    history.condense(part.items, "first notes");
    let sent = serde_json::to_string(&history.messages()).unwrap();
    assert!(
        sent.contains("first notes") && sent.contains("output 6") && !sent.contains("output 5")
    );
    (7..=12).for_each(|n| add(&mut history, n));
    let part = history.part(10_000).unwrap();
    assert_eq!(part.before.as_deref(), Some("first notes"));
    history.condense(part.items, "second notes");
    let sent = serde_json::to_string(&history.messages()).unwrap();
    assert!(sent.contains("second notes") && !sent.contains("first notes"));
    assert_eq!(
        history.part(10_000).map(|part| part.items),
        None,
        "nothing left that is worth it"
    );
}

#[test]
fn the_estimate_follows_the_model_s_own_count() {
    let mut history = History::new("s", &"w".repeat(4_000), compaction(0.7, 6), 8_000, 2_000);
    let before = history.estimate();
    history.calibrate(before, before * 2);
    assert_eq!(history.estimate() / before, 2);
}

proptest! {
    #[test]
    fn a_cut_keeps_what_is_asked_and_no_more_than_a_step_beyond(
        sizes in proptest::collection::vec(1usize..6, 0..30),
        keep in 0usize..40,
    ) {
        let at = cut(&sizes, keep);
        let kept: usize = sizes[at.min(sizes.len())..].iter().sum();
        let all: usize = sizes.iter().sum();
        prop_assert!(at <= sizes.len());
        prop_assert!(kept >= keep.min(all));
        prop_assert!(at == 0 || kept < keep.max(1) + sizes[at]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn pairs_stay_whole_and_requests_fit_whatever_is_elided(
        turns in proptest::collection::vec((0usize..4, 0usize..20_000, any::<bool>()), 1..50),
        keep in 0usize..10,
        overflows in proptest::collection::vec(any::<bool>(), 50),
        summed in proptest::collection::vec(any::<bool>(), 50),
    ) {
        let mut history = History::new("system", "first", compaction(0.7, keep), 8_000, 2_000);
        let mut number = 0;
        for (index, (calls, size, said)) in turns.iter().enumerate() {
            let ids: Vec<String> = (0..*calls).map(|c| format!("{index}-{c}")).collect();
            let text = if *said { "text" } else { "" };
            if ids.is_empty() {
                history.text(&reply(text, &ids), "nudge".into());
            } else {
                let results: Vec<CallOutput> = ids.iter().map(|id| {
                    number += 1;
                    output(number, id, "й".repeat(*size))
                }).collect();
                history.calls(&reply(text, &ids), &results, &[]);
            }
            if summed[index] && let Some(part) = history.part(4_000) {
                prop_assert!(part.transcript.len() <= 16_200, "{}", part.transcript.len());
                let messages = history.size().messages;
                history.condense(part.items, "what was done");
                prop_assert!(history.size().messages < messages);
                prop_assert!(history.size().messages > keep.min(messages - 2));
                prop_assert_eq!(valid(&history.messages()), Ok(()));
            }
            history.fit();
            prop_assert_eq!(valid(&history.messages()), Ok(()));
            prop_assert!(history.estimate() <= 6_000, "{}", history.estimate());
            if overflows[index] && index % 17 == 0 {
                history.overflowed();
                history.fit();
                prop_assert_eq!(valid(&history.messages()), Ok(()));
            }
        }
    }
}
