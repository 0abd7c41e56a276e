//! What servers differ in: known by profile, learnt from their words, once for a whole provider.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use wharf::model::list::{Listed, Models, models};
use wharf::model::{
    Effort, Error, Key, Limits, Message, Model, Provider, Reply, Request, Secret, ToolSpec, Wire,
    open_with, profile,
};

use crate::cli::{home, object, text, wharf};
use crate::server::{Answer, FakeModel};

fn provider(server: &FakeModel, wire: Wire) -> Provider {
    Provider {
        name: "mine".to_owned(),
        kind: wire,
        ..Provider::openai(Some(server.base_url()), Some(Secret::new("key-of-a-test")))
    }
}

fn open(name: &str, provider: &Provider) -> Result<Arc<dyn Model>, Error> {
    let providers = BTreeMap::from([("mine".to_owned(), provider.clone())]);
    open_with(&format!("mine/{name}"), &providers, Limits::default())
}

fn request() -> Request {
    Request {
        key: Key {
            round: 1,
            subtask: "fix".into(),
            role: "coder".into(),
            call: 1,
        },
        messages: vec![
            Message::System {
                text: "You are a coder.".into(),
            },
            Message::User {
                text: "fix it".into(),
            },
        ],
        tools: vec![ToolSpec {
            name: "bash".into(),
            description: "Runs a command.".into(),
            schema: json!({"type": "object"}),
        }],
        reply_tokens: 4096,
        temperature: None,
        effort: None,
    }
}

/// The conversation after `reply`, its calls answered and `more` said.
fn after(before: &Request, reply: &Reply, more: Option<&str>) -> Request {
    let mut next = before.clone();
    next.messages.push(Message::Assistant {
        text: reply.text.clone(),
        calls: reply.calls.clone(),
        native: reply.native.clone(),
    });
    for call in &reply.calls {
        next.messages.push(Message::Tool {
            call_id: call.id.clone(),
            name: call.name.clone(),
            text: "out".into(),
            failed: false,
        });
    }
    next.messages
        .extend(more.map(|text| Message::User { text: text.into() }));
    next
}

fn call(command: &str) -> (&'static str, Value) {
    ("bash", json!({"command": command}))
}

#[tokio::test]
async fn a_key_goes_where_the_profile_says() {
    let server = FakeModel::start(|_| Answer::text("ok")).await;
    let table = [
        (Wire::OpenAi, None, "authorization"),
        (Wire::OpenAi, Some("azure"), "api-key"),
        (Wire::Responses, Some("azure"), "api-key"),
        (Wire::Anthropic, None, "x-api-key"),
        (Wire::Anthropic, Some("litellm"), "authorization"),
    ];
    for (at, (wire, name, header)) in table.into_iter().enumerate() {
        let mut provider = provider(&server, wire);
        provider.profile = name.map(str::to_owned);
        open("m", &provider).unwrap().ask(&request()).await.unwrap();
        let headers = server.headers()[at].clone();
        for other in ["authorization", "api-key", "x-api-key"] {
            assert_eq!(
                headers.contains_key(other),
                other == header,
                "{wire:?} {name:?}"
            );
        }
        assert!(headers[header].to_str().unwrap().ends_with("key-of-a-test"));
    }
    let azure = &server.requests()[1];
    assert_eq!(azure["max_completion_tokens"], 4096);
    let mut wrong = provider(&server, Wire::Anthropic);
    wrong.profile = Some("azure".to_owned());
    assert!(matches!(open("m", &wrong), Err(Error::Setup { .. })));
}

#[tokio::test]
async fn effort_is_said_in_each_wire_s_way_and_learnt_where_there_are_two() {
    let server = FakeModel::start(|ask| {
        let refuse =
            |text: &str| Answer::status(400, &json!({"error": {"message": text}}).to_string(), &[]);
        match ask.body["model"].as_str() {
            Some("adaptive") if ask.body["thinking"]["type"] == "enabled" => {
                refuse("\"thinking.type.enabled\" is not supported for this model. Use adaptive.")
            }
            Some("router") if !ask.body["reasoning_effort"].is_null() => {
                refuse("unknown field reasoning_effort")
            }
            Some("cool") if !ask.body["temperature"].is_null() => {
                refuse("Unsupported value: 'temperature' does not support 0.2 with this model.")
            }
            _ => Answer::text("ok"),
        }
    })
    .await;
    let mut asking = request();
    asking.effort = Some(Effort::Medium);
    let ask = async |wire, name: &str, asking: &Request| {
        let model = open(name, &provider(&server, wire)).unwrap();
        model.ask(asking).await.unwrap();
        model.ask(asking).await.unwrap();
        server.requests().last().unwrap().clone()
    };
    assert_eq!(
        ask(Wire::OpenAi, "m", &asking).await["reasoning_effort"],
        "medium"
    );
    assert_eq!(
        ask(Wire::OpenAi, "router", &asking).await["reasoning"],
        json!({"effort": "medium"})
    );
    assert_eq!(
        ask(Wire::Responses, "m", &asking).await["reasoning"],
        json!({"effort": "medium"})
    );
    assert_eq!(
        ask(Wire::Anthropic, "m", &asking).await["thinking"],
        json!({"type": "enabled", "budget_tokens": 1536})
    );
    let adaptive = ask(Wire::Anthropic, "adaptive", &asking).await;
    assert_eq!(adaptive["thinking"], json!({"type": "adaptive"}));
    assert_eq!(adaptive["output_config"], json!({"effort": "medium"}));
    asking.temperature = Some(0.2);
    assert!(ask(Wire::OpenAi, "cool", &asking).await["temperature"].is_null());
    // Six models answered twice, and three of them refused once.
    assert_eq!(server.requests().len(), 6 * 2 + 3);
    assert_eq!(server.violations(), Vec::<String>::new());
    asking.reply_tokens = 1500;
    let small = open("m", &provider(&server, Wire::Anthropic)).unwrap();
    let error = small.ask(&asking).await.unwrap_err();
    assert!(error.to_string().contains("2048"), "{error}");
}

#[tokio::test]
async fn what_one_model_learns_of_its_server_the_others_know() {
    let server = FakeModel::start(|ask| match ask.body["stream"] == true {
        true => Answer::raw(&[]),
        false => Answer::text("plain"),
    })
    .await;
    for wire in [Wire::OpenAi, Wire::Anthropic, Wire::Responses] {
        let before = server.requests().len();
        let provider = provider(&server, wire);
        let (first, second) = (open("a", &provider).unwrap(), open("b", &provider).unwrap());
        for model in [&first, &first, &second, &second] {
            assert_eq!(model.ask(&request()).await.unwrap().text, "plain");
        }
        assert_eq!(server.requests().len() - before, 2 + 2 + 1 + 1, "{wire:?}");
    }
}

/// The text up to each mark of what is to be kept, the marks themselves left out.
fn kept(body: &Value) -> Vec<String> {
    let mut so_far = body["tools"].to_string();
    let mut out = Vec::new();
    let system = body["system"].as_array().into_iter().flatten();
    let turns = body["messages"].as_array().into_iter().flatten();
    let blocks = turns.flat_map(|turn| turn["content"].as_array().into_iter().flatten());
    for block in system.chain(blocks) {
        let mut block = block.clone();
        let marked = block.as_object_mut().unwrap().remove("cache_control");
        so_far.push_str(&block.to_string());
        if marked.is_some() {
            out.push(so_far.clone());
        }
    }
    out
}

/// Whatever a turn adds, the next request marks exactly what the one before it left.
#[tokio::test]
async fn a_long_conversation_reads_its_beginning_from_the_cache() {
    let many = || Answer::calls((0..30).map(|n| call(&format!("echo {n}"))).collect());
    let server = FakeModel::queue(vec![
        Answer::calls(vec![call("ls")]),
        many(),
        Answer::text("I think"),
        many(),
        Answer::text("done"),
    ])
    .await;
    let model = open("m", &provider(&server, Wire::Anthropic)).unwrap();
    let mut asking = request();
    for _ in 0..5 {
        let reply = model.ask(&asking).await.unwrap();
        let more = reply.calls.is_empty().then_some("go on");
        asking = after(&asking, &reply, more);
    }
    assert_eq!(server.violations(), Vec::<String>::new());
    let marks: Vec<Vec<String>> = server.requests().iter().map(kept).collect();
    assert_eq!(marks[0].len(), 2);
    for pair in marks.windows(2) {
        assert_eq!(pair[1].len(), 3);
        assert_eq!(pair[1][0], pair[0][0], "tools and system message");
        assert_eq!(Some(&pair[1][1]), pair[0].last(), "what the last one left");
    }
}

/// A gateway that hands lists of blocks on to a server that wants texts.
#[tokio::test]
async fn messages_become_plain_texts_where_lists_of_blocks_are_not_read() {
    let server = FakeModel::start(|ask| match ask.body["system"].is_string() {
        true => Answer::text("understood"),
        false => Answer::status(
            500,
            r#"{"error":{"type":"api_error","message":"('body', 'messages', 0, 'content'): Input should be a valid string"}}"#,
            &[],
        ),
    })
    .await;
    let model = open("m", &provider(&server, Wire::Anthropic)).unwrap();
    for _ in 0..2 {
        assert_eq!(model.ask(&request()).await.unwrap().text, "understood");
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[2]["messages"][0]["content"], "fix it");
    assert!(!requests[2].to_string().contains("cache_control"));
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn thoughts_of_responses_go_back_as_they_came() {
    let server = FakeModel::queue(vec![
        Answer::calls(vec![call("ls"), call("pwd")]),
        Answer::text("done"),
        Answer::text("other"),
    ])
    .await;
    let model = open("m", &provider(&server, Wire::Responses)).unwrap();
    let first = request();
    let reply = model.ask(&first).await.unwrap();
    let second = after(&first, &reply, None);
    model.ask(&second).await.unwrap();
    let sent = server.requests()[1]["input"].clone();
    assert_eq!(sent[1]["encrypted_content"], "gAAAA0==");
    assert_eq!(
        (&sent[2]["id"], &sent[3]["id"]),
        (&json!("fc_0_0"), &json!("fc_0_1"))
    );
    let other = open("n", &provider(&server, Wire::Responses)).unwrap();
    other.ask(&second).await.unwrap();
    let sent = server.requests()[2]["input"].to_string();
    assert!(!sent.contains("encrypted_content") && !sent.contains("fc_0_0"));
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// OpenRouter's details and Google's signatures: without them the next request is refused there.
#[tokio::test]
async fn what_hangs_on_thoughts_and_calls_goes_back_to_its_model_alone() {
    let detail = json!({"type": "reasoning.encrypted", "index": 0, "data": "opaque+/=="});
    let signature = json!({"google": {"thought_signature": "c2ln"}});
    let delta = json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "delta": {
        "reasoning": "hm", "reasoning_details": [detail],
        "tool_calls": [{"index": 0, "id": "a", "extra_content": signature,
            "function": {"name": "bash", "arguments": "{\"command\":\"ls\"}"}}]}}]});
    let server = FakeModel::queue(vec![
        Answer::raw(&[&format!("data: {delta}\n\ndata: [DONE]\n\n")]),
        Answer::text("done"),
        Answer::text("other"),
    ])
    .await;
    let mine = provider(&server, Wire::OpenAi);
    let model = open("m", &mine).unwrap();
    let reply = model.ask(&request()).await.unwrap();
    let second = after(&request(), &reply, None);
    model.ask(&second).await.unwrap();
    open("n", &mine).unwrap().ask(&second).await.unwrap();
    let said = |number: usize| server.requests()[number]["messages"][2].clone();
    assert_eq!(said(1)["reasoning_details"], json!([detail]));
    assert!(said(1)["reasoning"].is_null(), "said once");
    assert_eq!(said(1)["tool_calls"][0]["extra_content"], signature);
    let other = said(2).to_string();
    assert!(
        !other.contains("opaque") && !other.contains("c2ln"),
        "{other}"
    );
}

#[tokio::test]
async fn role_rules_and_short_ids_are_learnt() {
    let server = FakeModel::start(|ask| {
        let refuse = |text: &str| Answer::status(400, &json!({"message": text}).to_string(), &[]);
        let roles: Vec<&str> = ask
            .messages
            .iter()
            .filter_map(|m| m["role"].as_str())
            .collect();
        let long = ask
            .messages
            .iter()
            .filter_map(|m| m["tool_call_id"].as_str())
            .any(|id| id.len() != 9);
        match () {
            () if roles.contains(&"system") => refuse("System role not supported"),
            () if roles.windows(2).any(|pair| pair == ["tool", "user"]) => {
                refuse("Unexpected role 'user' after role 'tool'")
            }
            () if long => {
                refuse("Tool call id was x but must be a-z, A-Z, 0-9, with a length of 9.")
            }
            () if ask.number < 2 => Answer::calls(vec![call("ls")]),
            () => Answer::text("understood"),
        }
    })
    .await;
    let model = open("m", &provider(&server, Wire::OpenAi)).unwrap();
    let first = request();
    let reply = model.ask(&first).await.unwrap();
    let second = after(&first, &reply, Some("go on"));
    assert_eq!(model.ask(&second).await.unwrap().text, "understood");
    assert_eq!(server.requests().len(), 2 + 3);
    assert_eq!(model.ask(&second).await.unwrap().text, "understood");
    assert_eq!(server.requests().len(), 2 + 3 + 1);
    let last = server.requests()[5]["messages"].clone();
    assert_eq!(last[0]["content"], "You are a coder.\n\nfix it");
    assert_eq!(last[2]["content"], "out\n\ngo on");
}

/// A model that writes shorter replies than it was asked for says so once, over every wire.
#[tokio::test]
async fn the_longest_reply_of_a_model_is_learnt_from_its_refusal() {
    let server = FakeModel::start(|ask| {
        let names = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
        let asked = names.iter().find_map(|name| ask.body[*name].as_u64());
        match asked {
            Some(asked) if asked > 2048 => {
                let text = format!("max_tokens is too large: {asked}. This model supports at most 2048 completion tokens.");
                Answer::status(400, &json!({"error": {"message": text}}).to_string(), &[])
            }
            _ => Answer::text("ok"),
        }
    })
    .await;
    for wire in [Wire::OpenAi, Wire::Anthropic, Wire::Responses] {
        let before = server.requests().len();
        let model = open("m", &provider(&server, wire)).unwrap();
        for _ in 0..2 {
            assert_eq!(model.ask(&request()).await.unwrap().text, "ok");
        }
        assert_eq!(server.requests().len() - before, 3, "{wire:?}");
        let mut small = request();
        small.reply_tokens = 512;
        model.ask(&small).await.unwrap();
        let last = server.requests().pop().unwrap().to_string();
        assert!(last.contains(":512"), "a smaller wish stays: {last}");
    }
    // One that names ever smaller figures is not followed without end.
    let mocking = FakeModel::start(|ask| {
        let asked = ask.body["max_tokens"].as_u64().unwrap();
        let text = format!("max_tokens: {asked} > {}, which is the maximum", asked - 1);
        Answer::status(400, &json!({"error": {"message": text}}).to_string(), &[])
    })
    .await;
    let model = open("m", &provider(&mocking, Wire::OpenAi)).unwrap();
    model.ask(&request()).await.unwrap_err();
    assert_eq!(mocking.requests().len(), 4);
}

#[tokio::test]
async fn the_list_of_a_server_or_why_there_is_none() {
    let server = FakeModel::start(|_| Answer::text("ok")).await;
    let listed = models(&provider(&server, Wire::OpenAi)).await.unwrap();
    let Models::Are(list) = listed else {
        panic!("{listed:?}");
    };
    let seen: Vec<(&str, Option<u64>)> = list
        .iter()
        .map(
            |Listed {
                 id, context_window, ..
             }| (id.as_str(), *context_window),
        )
        .collect();
    assert_eq!(seen, [("fake", Some(32_768)), ("other", None)]);
    let mut elsewhere = provider(&server, Wire::OpenAi);
    elsewhere.base_url = elsewhere.base_url.replace("/v1", "/nowhere");
    let untold = models(&elsewhere).await.unwrap();
    assert!(matches!(untold, Models::Untold(_)), "{untold:?}");
    elsewhere.base_url = "http://127.0.0.1:1/v1".to_owned();
    assert!(matches!(
        models(&elsewhere).await,
        Err(Error::Connect { .. })
    ));
}

#[test]
fn a_plan_may_name_each_profile() {
    for (name, wires) in profile::names() {
        let kind = wires[0].as_str();
        let text = format!(
            "version: 1\ntask: t\nproviders:\n  mine: {{kind: {kind}, base_url: 'http://127.0.0.1:1/v1', profile: {name}}}\n"
        );
        let plan = wharf::plan::parse(&text, "p.yaml", &|path| Err(path.to_owned())).unwrap();
        assert_eq!(plan.providers["mine"].profile.as_deref(), Some(name));
        assert_eq!(plan.providers["mine"].kind, kind);
    }
    let odd = "version: 1\ntask: t\nproviders:\n  mine: {kind: openai, base_url: 'http://h/v1', profile: azur}\n";
    let error = wharf::plan::parse(odd, "p.yaml", &|path| Err(path.to_owned())).unwrap_err();
    assert!(error.to_string().contains("azur"), "{error}");
}

/// The real program, told of servers by its environment and the user's file.
async fn told(server: &FakeModel, args: &[&str]) -> (i32, Value) {
    let home = home();
    let dir = home.path().join(".config/wharf");
    std::fs::create_dir_all(&dir).unwrap();
    let own = "providers:\n  gone: {kind: openai, base_url: 'http://127.0.0.1:1/v1'}\n  \
               bare: {kind: openai-responses, base_url: 'URL/nowhere'}\n";
    let own = own.replace("URL", server.base_url().trim_end_matches("/v1"));
    std::fs::write(dir.join("config.yaml"), own).unwrap();
    let mut command = wharf(home.path());
    command
        .env("OPENAI_BASE_URL", server.base_url())
        .env("OPENAI_API_KEY", "key-of-a-test")
        .env("DOCKER_HOST", "unix:///nope")
        .args(args)
        .arg("--json");
    let out = tokio::task::spawn_blocking(move || command.output().unwrap());
    let out = out.await.unwrap();
    (out.status.code().unwrap(), object(&text(&out.stdout)))
}

#[tokio::test(flavor = "multi_thread")]
async fn models_says_what_each_provider_has_and_which_cannot_tell() {
    let server = FakeModel::start(|_| Answer::text("ok")).await;
    let (code, all) = told(&server, &["models"]).await;
    assert_eq!(code, 3, "one of them is gone: {all}");
    let of = |name: &str| {
        let list = all["providers"].as_array().unwrap();
        list.iter().find(|one| one["name"] == name).unwrap().clone()
    };
    assert_eq!(of("openai")["state"], "ok");
    assert_eq!(of("openai")["models"][0]["id"], "fake");
    assert_eq!(of("openai")["models"][0]["context_window"], 32_768);
    assert_eq!(of("anthropic")["state"], "unknown");
    assert!(
        of("anthropic")["reason"]
            .as_str()
            .unwrap()
            .contains("ANTHROPIC_API_KEY")
    );
    assert_eq!(of("bare")["state"], "unknown");
    assert_eq!(of("gone")["state"], "failed");
    assert!(
        of("gone")["next"]
            .as_str()
            .unwrap()
            .contains("start the server")
    );
    let (code, one) = told(&server, &["models", "openai"]).await;
    assert_eq!((code, one["providers"].as_array().unwrap().len()), (0, 1));
    assert!(!all.to_string().contains("key-of-a-test"));
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_makes_one_small_call_where_a_model_is_named() {
    let key = r#"{"error":{"message":"Incorrect API key provided: key-of-a-test","code":"invalid_api_key"}}"#;
    let server = FakeModel::queue(vec![
        Answer::call("ready", json!({"word": "yes"})),
        Answer::text("yes"),
        Answer::status(401, key, &[]),
    ])
    .await;
    let mut states = Vec::new();
    for _ in 0..3 {
        let (_, said) = told(&server, &["doctor", "--model", "openai/m"]).await;
        let checks = said["checks"].as_array().unwrap().clone();
        let call = checks
            .into_iter()
            .find(|check| check["name"] == "model call");
        states.push(call.unwrap());
    }
    assert_eq!(states[0]["state"], "ok", "{states:?}");
    assert_eq!(states[1]["state"], "unknown");
    assert!(
        states[1]["found"]
            .as_str()
            .unwrap()
            .contains("did not call the tool")
    );
    assert_eq!(states[2]["state"], "failed");
    assert!(states[2]["next"].as_str().unwrap().contains("variable"));
    assert!(!json!(states).to_string().contains("key-of-a-test"));
    // Without a name nobody is asked.
    told(&server, &["doctor"]).await;
    assert_eq!(server.requests().len(), 3);
}
