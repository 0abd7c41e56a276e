//! What model servers do to those who ask them, over a real connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use wharf::model::{
    Call, Error, Finish, Key, Limits, Message, Model, Provider, Reply, Request, Secret, StatusKind,
    ToolSpec, open_with,
};

use crate::server::{Answer, FakeModel};

/// Short enough for a test, long enough for a busy machine.
fn limits() -> Limits {
    Limits {
        connect: Duration::from_secs(5),
        first_byte: Duration::from_secs(20),
        idle: Duration::from_secs(20),
        total: Duration::from_secs(60),
        trailing: Duration::from_secs(5),
    }
}

fn model_at(base_url: &str, key: Option<&str>, limits: Limits) -> Arc<dyn Model> {
    let provider = Provider::openai(Some(base_url.to_owned()), key.map(Secret::new));
    let providers = BTreeMap::from([("openai".to_owned(), provider)]);
    open_with("openai/fake", &providers, limits).unwrap()
}

fn model(server: &FakeModel) -> Arc<dyn Model> {
    model_at(&server.base_url(), None, limits())
}

fn user(text: &str) -> Message {
    Message::User { text: text.into() }
}

fn request(messages: Vec<Message>) -> Request {
    let mut all = vec![Message::System {
        text: "You are a coder.".into(),
    }];
    all.extend(messages);
    Request {
        key: Key {
            round: 1,
            subtask: "fix".into(),
            role: "coder".into(),
            call: 1,
        },
        messages: all,
        tools: vec![ToolSpec {
            name: "bash".into(),
            description: "Runs a command.".into(),
            schema: json!({"type": "object", "properties": {"command": {"type": "string"}}}),
        }],
        reply_tokens: 800,
        temperature: None,
        effort: None,
    }
}

fn simple() -> Request {
    request(vec![user("fix it")])
}

/// The conversation after `reply`, each call answered by `results` in turn.
fn after(before: &Request, reply: &Reply, results: &[&str]) -> Request {
    let mut next = before.clone();
    next.messages.push(Message::Assistant {
        text: reply.text.clone(),
        calls: reply.calls.clone(),
        native: reply.native.clone(),
    });
    for (call, text) in reply.calls.iter().zip(results) {
        next.messages.push(Message::Tool {
            call_id: call.id.clone(),
            name: call.name.clone(),
            text: (*text).into(),
            failed: false,
        });
    }
    next
}

fn echo(text: &str) -> Value {
    json!({"command": format!("echo {text}")})
}

/// A chunk with one choice.
fn chunk(delta: &str, finish: Option<&str>) -> String {
    let finish = json!(finish);
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
    )
}

async fn ask_once(answer: Answer) -> Result<Reply, Error> {
    let server = FakeModel::queue(vec![answer]).await;
    model(&server).ask(&simple()).await
}

fn kind_of(result: Result<Reply, Error>) -> StatusKind {
    match result {
        Err(Error::Status { kind, .. }) => kind,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_conversation_passes_the_strictest_server() {
    let server = FakeModel::queue(vec![
        Answer::calls(vec![
            ("bash", echo("one")),
            ("bash", json!("{\"command\": cut")),
        ])
        .usage(50, 7),
        Answer::calls(vec![("functions.bash ", json!(""))]),
        Answer::text("done"),
    ])
    .await;
    let model = model(&server);
    let first = simple();
    let reply = model.ask(&first).await.unwrap();
    assert_eq!(
        (reply.usage.input, reply.usage.output, reply.usage.estimated),
        (50, 7, false)
    );
    assert_eq!(reply.finish, Finish::Calls);
    assert_eq!(reply.calls[1].arguments, "{\"command\": cut");
    let mut second = after(&first, &reply, &["one", ""]);
    second.messages.extend([user("hurry"), user("please")]);
    let reply = model.ask(&second).await.unwrap();
    assert_eq!(reply.calls[0].arguments, "{}");
    let third = after(&second, &reply, &["no such tool"]);
    let reply = model.ask(&third).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.finish), ("done", Finish::Stop));
    assert_eq!(server.violations(), Vec::<String>::new());
    let sent = &server.requests()[2]["messages"];
    assert_eq!(sent[2]["content"], Value::Null);
    assert_eq!(sent[2]["tool_calls"][1]["function"]["arguments"], "{}");
    assert_eq!(
        sent[5],
        json!({"role": "user", "content": "hurry\n\nplease"})
    );
    assert!(
        server
            .headers()
            .iter()
            .all(|headers| !headers.contains_key("authorization"))
    );
}

#[tokio::test]
async fn the_key_goes_into_its_header_and_nowhere_else() {
    let server = FakeModel::queue(vec![
        Answer::text("ok"),
        Answer::status(401, "{\"error\":\"wrong key sk-very-secret\"}", &[]),
    ])
    .await;
    let model = model_at(&server.base_url(), Some("sk-very-secret"), limits());
    let asking = request(vec![user("my key is sk-very-secret, see")]);
    model.ask(&asking).await.unwrap();
    let error = model.ask(&asking).await.unwrap_err();
    assert!(error.to_string().contains("wrong key [secret]"), "{error}");
    assert_eq!(
        server.headers()[0]["authorization"],
        "Bearer sk-very-secret"
    );
    let bodies = json!(server.requests()).to_string();
    assert!(!bodies.contains("sk-very-secret") && bodies.contains("my key is [secret], see"));
}

#[tokio::test]
async fn odd_framing_byte_by_byte() {
    let good = [
        chunk(r#"{"content":"hé"}"#, None),
        chunk(r#"{"content":"llo"}"#, Some("stop")),
    ];
    let text = format!(
        ": PROCESSING\n\n:\nevent: ping\ndata: {{\"type\":\"ping\"}}\n\ndata: : keepalive\n\nretry: 3000\n\ndata:\n\n{}data: [DONE]\n\n",
        good.concat().replace('\n', "\r\n")
    );
    let pieces = text
        .bytes()
        .map(|byte| (Duration::ZERO, vec![byte]))
        .collect();
    let reply = ask_once(Answer::Raw("text/event-stream".into(), pieces))
        .await
        .unwrap();
    assert_eq!(reply.text, "héllo");
    assert!(reply.usage.estimated);
}

/// Content types are what servers get wrong most often: what stands in the body counts.
#[tokio::test]
async fn events_are_read_whatever_type_they_are_said_to_have() {
    let finished = chunk(r#"{"content":"hello"}"#, Some("stop"));
    for kind in ["application/json", "text/plain", "application/octet-stream"] {
        for before in [
            "",
            "\n\n",
            ": comment\n\n",
            "event: message\n",
            "id: 1\n",
            "retry: 1\n",
        ] {
            let text = format!("{before}{finished}data: [DONE]\n\n");
            let pieces = text.bytes().map(|byte| (Duration::ZERO, vec![byte]));
            let reply = ask_once(Answer::Raw(kind.into(), pieces.collect())).await;
            assert_eq!(reply.unwrap().text, "hello", "{kind} {before:?}");
        }
    }
}

/// Whoever never stops sending is cut off by what a whole answer may have, not by the time it takes.
#[tokio::test]
async fn a_flood_of_nothing_ends_at_the_size_of_an_answer() {
    let blank = (Duration::ZERO, vec![b'\n'; 1 << 20]);
    let pieces = vec![blank; 200];
    let server = FakeModel::start(move |ask| match ask.body["stream"] == true {
        true => Answer::Raw("text/event-stream".into(), pieces.clone()),
        false => Answer::status(200, &" ".repeat(17 << 20), &[]),
    })
    .await;
    let error = model(&server).ask(&simple()).await.unwrap_err();
    assert!(error.to_string().contains("too long"), "{error}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn an_answer_that_broke_runs_none_of_its_calls() {
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "bash", "arguments": echo("x").to_string()}}]});
    for reason in ["error", "abort", "network_error", "malformed_function_call"] {
        let error = ask_once(Answer::raw(&[&chunk(&call.to_string(), Some(reason))])).await;
        assert!(
            matches!(error, Err(Error::Cut { .. })),
            "{reason}: {error:?}"
        );
    }
    let cut = ask_once(Answer::raw(&[&chunk(
        &call.to_string(),
        Some("MAX_TOKENS"),
    )]))
    .await;
    assert_eq!(cut.unwrap().finish, Finish::Length);
}

#[tokio::test]
async fn figures_that_cannot_be_are_estimated() {
    for lie in ["18446744073709551615", "1e300", "-7", "\"many\""] {
        let figures = format!(
            "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{lie},\"completion_tokens\":{lie}}}}}\n\n"
        );
        let said = chunk(r#"{"content":"hello"}"#, Some("stop"));
        let reply = ask_once(Answer::raw(&[&said, &figures, "data: [DONE]\n\n"])).await;
        let usage = reply.unwrap().usage;
        assert!(usage.estimated && usage.input < 10_000, "{lie}: {usage:?}");
    }
}

#[tokio::test]
async fn a_stream_cut_anywhere_is_whole_or_an_error() {
    let server = FakeModel::start(|ask| {
        let answer = Answer::calls(vec![(
            "bash",
            json!({"command": "rm -rf /workspace/bauté"}),
        )]);
        answer.usage(9, 9).cut(ask.number * 7)
    })
    .await;
    let model = model(&server);
    let mut whole = 0;
    for _ in 0..220 {
        match model.ask(&simple()).await {
            Ok(reply) => {
                whole += 1;
                assert_eq!(
                    reply.calls[0].arguments,
                    json!({"command": "rm -rf /workspace/bauté"}).to_string()
                );
                assert_eq!(reply.finish, Finish::Calls);
            }
            Err(error) => assert!(matches!(error, Error::Cut { .. }) && whole == 0, "{error}"),
        }
    }
    assert!(whole > 10, "the whole stream was never reached");
}

#[tokio::test]
async fn a_clean_close_is_no_end() {
    let text = chunk(r#"{"content":"hello"}"#, None);
    let half = r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"bash","arguments":"{\"command\":\"rm"}}]}"#;
    for pieces in [
        vec![text.clone()],
        vec![text.clone(), text.clone()],
        vec![chunk(half, None)],
        vec![chunk(half, None), "data: [DONE]\n\n".into()],
    ] {
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let error = ask_once(Answer::raw(&pieces)).await.unwrap_err();
        assert!(matches!(error, Error::Cut { .. }), "{error}");
    }
    let finished = chunk(r#"{"content":"hello"}"#, Some("stop"));
    assert_eq!(
        ask_once(Answer::raw(&[&finished])).await.unwrap().text,
        "hello"
    );
}

#[tokio::test]
async fn a_length_stop_says_so_even_with_sound_arguments() {
    let answer = Answer::call("bash", json!({"command": "rm -rf /workspace/"})).finish("length");
    assert_eq!(ask_once(answer).await.unwrap().finish, Finish::Length);
}

#[tokio::test]
async fn ids_become_unique_in_the_conversation() {
    let delta = |id: &str, text: &str| {
        let call = json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": "bash", "arguments": echo(text).to_string()}}]});
        chunk(&call.to_string(), Some("tool_calls"))
    };
    let no_id = r#"{"tool_calls":[{"index":0,"function":{"name":"bash","arguments":"{\"command\":\"echo hi\"}"}}]}"#;
    let answers = [
        delta("bash:0", "one"),
        delta("bash:0", "two"),
        chunk(no_id, Some("tool_calls")),
        delta("", "x"),
    ];
    let mut answers: Vec<Answer> = answers.iter().map(|text| Answer::raw(&[text])).collect();
    answers.push(Answer::text("done"));
    let server = FakeModel::queue(answers).await;
    let model = model(&server);
    let mut asking = simple();
    let mut ids = Vec::new();
    for _ in 0..4 {
        let reply = model.ask(&asking).await.unwrap();
        ids.extend(reply.calls.iter().map(|call| call.id.clone()));
        asking = after(&asking, &reply, &["result"]);
    }
    model.ask(&asking).await.unwrap();
    assert_eq!(ids, ["call_1", "call_2", "call_3", "call_4"]);
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn errors_inside_a_200_are_errors() {
    let error = "data: {\"error\":{\"message\":\"slow down\",\"code\":429}}\n\n";
    let text = chunk(r#"{"content":"par"}"#, None);
    assert_eq!(
        kind_of(ask_once(Answer::raw(&[error])).await),
        StatusKind::Limited
    );
    assert_eq!(
        kind_of(ask_once(Answer::raw(&[&text, error])).await),
        StatusKind::Limited
    );
    let named = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    assert_eq!(
        kind_of(ask_once(Answer::raw(&[named])).await),
        StatusKind::Limited
    );
    let garbage = ask_once(Answer::raw(&[
        &text,
        "data: {\"choi\n\n",
        &chunk("{}", Some("stop")),
    ]))
    .await;
    assert!(matches!(garbage, Err(Error::Cut { .. })), "{garbage:?}");
}

#[tokio::test]
async fn pages_and_odd_bodies_where_an_answer_should_be() {
    let html = |code, body| Answer::status(code, body, &[("content-type", "text/html")]);
    let login = ask_once(html(200, "<!DOCTYPE html><h1>Log in to the server</h1>")).await;
    let text = login.as_ref().unwrap_err().to_string();
    assert!(
        text.contains("127.0.0.1") && text.contains("200") && text.contains("text/html"),
        "{text}"
    );
    assert_eq!(kind_of(login), StatusKind::Refused);
    assert_eq!(
        kind_of(ask_once(html(502, "<html>bad gateway</html>")).await),
        StatusKind::Server
    );
    assert_eq!(
        kind_of(ask_once(html(403, "<html>blocked</html>")).await),
        StatusKind::Key
    );
    let away = Answer::status(
        302,
        "",
        &[("location", "http://127.0.0.1:1/login?next=secret")],
    );
    assert_eq!(kind_of(ask_once(away).await), StatusKind::Refused);
    let null = ask_once(Answer::status(
        200,
        "null",
        &[("content-type", "application/json")],
    ))
    .await;
    assert!(matches!(null, Err(Error::Cut { .. })), "{null:?}");
    let long = ask_once(Answer::status(500, &"x".repeat(100_000), &[]))
        .await
        .unwrap_err();
    assert!(long.to_string().len() < 400, "{long}");
}

/// Nobody asked for it, and it is no answer whatever it is said to be.
#[tokio::test]
async fn a_packed_body_is_no_answer() {
    let packed = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xabV\xcaH\xcd\xc9\xc9W\xb2RP*\xcf/\xcaIQ\xaa\x05\0";
    for kind in ["application/json", "text/event-stream", "text/html"] {
        let body = vec![(Duration::ZERO, packed.to_vec())];
        let server = FakeModel::start(move |_| Answer::Raw(kind.into(), body.clone())).await;
        let answer = model(&server).ask(&simple()).await;
        assert!(
            matches!(
                answer,
                Err(Error::Cut { .. }
                    | Error::Status {
                        kind: StatusKind::Refused,
                        ..
                    })
            ),
            "{kind}: {answer:?}"
        );
        assert!(server.requests().len() <= 2, "{kind}");
    }
}

#[tokio::test]
async fn the_wait_a_server_asks_for_arrives() {
    let body = r#"{"error":{"message":"slow down"}}"#;
    match ask_once(Answer::status(
        429,
        body,
        &[("retry-after", "7"), ("content-type", "application/json")],
    ))
    .await
    {
        Err(Error::Status {
            status: 429,
            kind: StatusKind::Limited,
            retry_after,
            ..
        }) => {
            assert_eq!(retry_after, Some(Duration::from_secs(7)));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_understood() {
    let body = json!({"choices": [{"message": {"content": null, "tool_calls": [
        {"id": "a", "function": {"name": "bash", "arguments": echo("hi")}},
        {"id": "a", "function": {"name": "bash", "arguments": null}},
    ]}, "finish_reason": "tool_calls"}]});
    let reply = ask_once(Answer::status(
        200,
        &body.to_string(),
        &[("content-type", "application/json")],
    ))
    .await
    .unwrap();
    let calls: Vec<Call> = reply.calls;
    assert_eq!(calls[0].arguments, echo("hi").to_string());
    assert_eq!(
        (calls[0].id.as_str(), calls[1].id.as_str()),
        ("a", "call_2")
    );
    assert_eq!(calls[1].arguments, "{}");
}

#[tokio::test]
async fn an_empty_stream_is_asked_again_plainly_and_twice_is_remembered() {
    let server = FakeModel::start(|ask| match ask.body["stream"] == true {
        true if ask.number == 0 => Answer::raw(&[]).cut(0),
        true => Answer::raw(&[": nothing\n\n"]),
        false => Answer::text("plain"),
    })
    .await;
    let model = model(&server);
    for _ in 0..3 {
        assert_eq!(model.ask(&simple()).await.unwrap().text, "plain");
    }
    let streamed: Vec<bool> = server
        .requests()
        .iter()
        .map(|body| body["stream"] == true)
        .collect();
    assert_eq!(streamed, [true, false, true, false, false]);

    let never = FakeModel::start(|_| Answer::raw(&[])).await;
    let error = self::model(&never).ask(&simple()).await.unwrap_err();
    assert!(matches!(error, Error::Cut { .. }), "{error}");
    assert_eq!(never.requests().len(), 2);
}

#[tokio::test]
async fn an_overflow_behind_an_empty_stream_is_found() {
    let server = FakeModel::start(|ask| match ask.body["stream"] == true {
        true => Answer::raw(&[]),
        false => Answer::status(
            400,
            r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#,
            &[],
        ),
    })
    .await;
    assert_eq!(
        kind_of(model(&server).ask(&simple()).await),
        StatusKind::ContextOverflow
    );
}

#[tokio::test]
async fn what_a_server_cannot_read_is_written_otherwise() {
    let server = FakeModel::start(|ask| {
        let refuse =
            |text: &str| Answer::status(400, &json!({"error": {"message": text}}).to_string(), &[]);
        match () {
            () if ask.body["max_tokens"] != Value::Null => {
                refuse("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
            }
            () if ask.body["stream_options"] != Value::Null => {
                refuse("unknown field stream_options")
            }
            () => Answer::text("understood"),
        }
    })
    .await;
    let model = model(&server);
    for _ in 0..2 {
        assert_eq!(model.ask(&simple()).await.unwrap().text, "understood");
    }
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn a_server_that_breaks_at_null_gets_an_empty_text() {
    let server = FakeModel::start(|ask| match ask.messages.get(2) {
        None => Answer::call("bash", echo("one")),
        Some(message) if message["content"].is_null() => Answer::status(500, "", &[]),
        Some(_) => Answer::text("fine"),
    })
    .await;
    let model = model(&server);
    let first = simple();
    let reply = model.ask(&first).await.unwrap();
    let reply = model.ask(&after(&first, &reply, &["one"])).await.unwrap();
    assert_eq!(reply.text, "fine");
    assert_eq!(server.requests()[2]["messages"][2]["content"], "");
}

#[tokio::test]
async fn a_bare_500_is_tried_in_one_other_form_at_most() {
    let server = FakeModel::queue(vec![Answer::call("bash", echo("one"))]).await;
    let broken = FakeModel::start(|_| Answer::status(500, "", &[])).await;
    let first = simple();
    let reply = model(&server).ask(&first).await.unwrap();
    let error = model(&broken).ask(&after(&first, &reply, &["one"])).await;
    assert_eq!(kind_of(error), StatusKind::Server);
    assert_eq!(broken.requests().len(), 2);
}

#[tokio::test]
async fn every_wait_has_its_limit() {
    let short = Duration::from_millis(60);
    let limit_of = async |answer: Answer, limits: Limits| {
        let server = FakeModel::queue(vec![answer]).await;
        match model_at(&server.base_url(), None, limits)
            .ask(&simple())
            .await
        {
            Err(Error::Timeout { limit, .. }) => limit,
            other => panic!("{other:?}"),
        }
    };
    let first = Limits {
        first_byte: short,
        ..limits()
    };
    assert_eq!(limit_of(Answer::Silence, first).await, short);
    let drip = |pause: u64, count: usize| {
        let piece = chunk(r#"{"content":"x"}"#, None).into_bytes();
        let mut pieces = vec![(Duration::ZERO, piece.clone())];
        pieces.extend((0..count).map(|_| (Duration::from_millis(pause), piece.clone())));
        Answer::Raw("text/event-stream".into(), pieces)
    };
    let idle = Limits {
        idle: short,
        ..limits()
    };
    assert_eq!(limit_of(drip(60_000, 1), idle).await, short);
    let total = Limits {
        total: short * 2,
        ..limits()
    };
    assert_eq!(limit_of(drip(10, 1000), total).await, short * 2);
}

#[tokio::test]
async fn a_finished_answer_does_not_wait_for_figures() {
    let finished = chunk(r#"{"content":"hello"}"#, Some("stop")).into_bytes();
    let pieces = vec![
        (Duration::ZERO, finished),
        (Duration::from_secs(60), b":\n".to_vec()),
    ];
    let server = FakeModel::queue(vec![Answer::Raw("text/event-stream".into(), pieces)]).await;
    let limits = Limits {
        trailing: Duration::from_millis(50),
        ..limits()
    };
    let reply = model_at(&server.base_url(), None, limits)
        .ask(&simple())
        .await
        .unwrap();
    assert_eq!(
        (reply.text.as_str(), reply.usage.estimated),
        ("hello", true)
    );
}

#[tokio::test]
async fn nobody_at_the_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let model = model_at(
        &format!("http://user:pass@127.0.0.1:{port}/v1?x=1"),
        None,
        limits(),
    );
    let error = model.ask(&simple()).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("refused") && !text.contains("pass") && !text.contains("x=1"),
        "{text}"
    );
}

#[tokio::test]
async fn a_list_against_the_rules_is_not_sent() {
    let server = FakeModel::queue(vec![Answer::text("never")]).await;
    let late = request(vec![
        user("a"),
        Message::System {
            text: "late".into(),
        },
        user("b"),
    ]);
    let error = model(&server).ask(&late).await.unwrap_err();
    assert!(matches!(error, Error::Setup { .. }), "{error}");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn the_server_itself_refuses_what_breaks_its_rules() {
    use crate::server::violations;
    let call = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{}"}}]});
    let result = json!({"role": "tool", "tool_call_id": "a", "content": "x"});
    let user = json!({"role": "user", "content": "u"});
    let of = |messages: &[&Value]| violations(&json!({"messages": messages, "max_tokens": 1}));
    assert_eq!(of(&[&user, &call, &result]), Vec::<String>::new());
    let mut object = call.clone();
    object["tool_calls"][0]["function"]["arguments"] = json!({});
    let empty = json!({"role": "assistant", "content": ""});
    for broken in [
        vec![&user, &user],
        vec![&user, &call],
        vec![&user, &call, &user],
        vec![&user, &result],
        vec![&user, &call, &result, &result],
        vec![&user, &empty, &user],
        vec![&user, &object, &result],
        vec![&user, &call, &result, &call, &result],
    ] {
        assert!(!of(&broken).is_empty(), "{broken:?}");
    }
}

#[tokio::test]
async fn a_script_tells_roles_and_conversations_apart() {
    use crate::server::Role;
    let server = FakeModel::start(|ask| {
        let told = format!(
            "{:?} {} {} {} {:?} {} {}",
            ask.role,
            ask.first,
            ask.ordinal,
            ask.last(),
            ask.results(),
            ask.tools.len(),
            ask.headers.contains_key("content-type"),
        );
        assert_ne!(ask.role, Role::Verifier);
        Answer::text(&told)
    })
    .await;
    let model = model(&server);
    let mut planning = request(vec![user("plan")]);
    planning.tools[0].name = "submit_plan".into();
    let mut working = request(vec![user("work")]);
    working.tools[0].name = "submit_report".into();
    let said = async |request: &Request| model.ask(request).await.unwrap().text;
    assert_eq!(said(&planning).await, "Coordinator plan 0 plan [] 1 true");
    assert_eq!(said(&planning).await, "Coordinator plan 1 plan [] 1 true");
    let call = Call {
        id: "a".into(),
        name: "submit_report".into(),
        arguments: "{}".into(),
    };
    working.messages.push(Message::Assistant {
        text: String::new(),
        calls: vec![call],
        native: None,
    });
    working.messages.push(Message::Tool {
        call_id: "a".into(),
        name: "submit_report".into(),
        text: "#1 no".into(),
        failed: true,
    });
    assert_eq!(
        said(&working).await,
        "Worker work 0 #1 no [\"#1 no\"] 1 true"
    );
    assert_eq!(said(&simple()).await, "Other fix it 0 fix it [] 1 true");
}

/// Reads one request off a connection, its body included.
async fn read_request(stream: &mut tokio::net::TcpStream) {
    use tokio::io::AsyncReadExt as _;
    let mut text = Vec::new();
    while !text.ends_with(b"}") {
        assert_ne!(stream.read_buf(&mut text).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_kept_connection_that_the_server_closes_is_no_failure() {
    use tokio::io::AsyncWriteExt as _;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let body =
        json!({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}).to_string();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let server = tokio::spawn(async move {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
            // The next request on this connection is read and never answered.
            tokio::spawn(async move { read_request(&mut stream).await });
        }
    });
    let model = model_at(&format!("http://127.0.0.1:{port}/v1"), None, limits());
    for _ in 0..2 {
        assert_eq!(model.ask(&simple()).await.unwrap().text, "hi");
    }
    server.await.unwrap();
}
