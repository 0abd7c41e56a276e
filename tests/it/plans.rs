//! Plan files: every shipped one reads, every broken one is refused at its place with a hint.

use proptest::prelude::*;
use wharf::id::{RoleName, SubtaskId};
use wharf::plan::{self, Error, Kind, Plan, Subtask};

mod graph;

const BAD: &str = include_str!("plans/bad.txt");

/// The files beside the plans of this module.
fn load(path: &str) -> Result<String, String> {
    match path {
        "bare.md" => Ok("just text\n".to_owned()),
        "odd-tool.md" => Ok("---\nname: tester\ntools: Read, WebFetch\n---\nTest it.\n".to_owned()),
        "none/*.md" => Ok(String::new()),
        _ => Err("no such file".to_owned()),
    }
}

fn read(text: &str) -> Result<Plan, Error> {
    plan::parse(text, "x.yaml", &load)
}

/// Titles and texts of the table of broken plans.
fn bad_plans() -> Vec<(&'static str, &'static str)> {
    let pieces = BAD.split("#### ").skip(1);
    pieces.filter_map(|piece| piece.split_once('\n')).collect()
}

#[test]
fn every_broken_plan_is_refused_at_its_place_with_a_hint() {
    let mut shown = String::new();
    for (title, text) in bad_plans() {
        let error = read(text)
            .err()
            .unwrap_or_else(|| panic!("accepted: {title}"));
        shown += &format!("#### {title}\n{error}\n");
    }
    insta::assert_snapshot!(shown);
    assert!(bad_plans().len() >= 90);
}

#[test]
fn a_message_has_place_line_caret_and_hint() {
    let error = read("version: 1\nsubtasks:\n  - {id: a, role: coder, brief: b, need: []}\n");
    let error = error.unwrap_err();
    assert_eq!((error.line, error.column), (3, 36));
    assert_eq!(
        error.to_string(),
        "x.yaml:3:36: unknown key `need`\n 3 |   - {id: a, role: coder, brief: b, need: []}\n   \
         |                                    ^\nhint: did you mean `needs`?"
    );
}

#[test]
fn a_key_pasted_into_the_file_is_not_shown_again() {
    let text = "version: 1\nproviders:\n  local: {kind: openai, base_url: \"http://x/v1\", api_key_env: sk-123}\n";
    assert!(!read(text).unwrap_err().to_string().contains("sk-123"));
}

#[test]
fn a_file_too_large_or_too_deep_or_too_clever_is_refused() {
    let large = format!("version: 1\ntask: {}\n", "x".repeat(2 << 20));
    let deep = format!(
        "version: 1\ntask: {}{}\n",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let mut bomb = String::from("version: 1\ntask: x\nname: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for i in 1..9 {
        bomb += &format!(
            "k{i}: &a{i} [{}]\n",
            vec![format!("*a{}", i - 1); 9].join(", ")
        );
    }
    for text in [large, deep, bomb] {
        let error = read(&text).unwrap_err();
        assert!(error.line >= 1 && !error.hint.is_empty(), "{error}");
        assert!(error.to_string().len() < 1000);
    }
}

/// Files that are too much: text, line, what is said.
fn too_much() -> Vec<(String, usize, &'static str)> {
    let mut bomb = String::from("version: 1\ntask: x\nname: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for i in 1..9 {
        let of = vec![format!("*a{}", i - 1); 9].join(", ");
        bomb += &format!("k{i}: &a{i} [{of}]\n");
    }
    let list = |item: &str, times: usize| format!("protect: [{}]\n", vec![item; times].join(", "));
    let aliases = |times: usize| format!("version: 1\ntask: &t x\n{}", list("*t", times));
    let anchors: Vec<String> = (0..1500).map(|n| format!("&a{n} x")).collect();
    let anchors = format!("version: 1\nprotect: [{}]\n", anchors.join(", "));
    let deep: String = (1..100).map(|n| format!("{}-\n", " ".repeat(n))).collect();
    let deep = format!("version: 1\nprotect:\n{deep}");
    let brackets = format!("version: 1\ntask: {}{}\n", "[".repeat(99), "]".repeat(99));
    let long = format!("version: 1\n{}", list("x", 60_000));
    let written_out = "too large to be a plan once its aliases are written out";
    vec![
        (bomb, 7, written_out),
        (aliases(2000), 3, "too many aliases"),
        (aliases(200), 3, "too many aliases"),
        (anchors, 2, "too many anchors"),
        (long, 2, "too large to be a plan"),
        (deep, 34, "nested too deep"),
        (brackets, 2, "nested too deep"),
        (
            "version: 1\nprotect: [*b]\n".to_owned(),
            2,
            "an alias names no anchor",
        ),
        (
            "version: 1\nprotect: &a [*a]\n".to_owned(),
            2,
            "an alias stands inside",
        ),
    ]
}

/// What passes a limit is named as what it is, with its line; none is told in the reader's own words.
#[test]
fn a_file_that_is_too_much_is_told_as_what_it_is() {
    for (text, line, says) in too_much() {
        let error = read(&text).unwrap_err();
        assert_eq!(error.line, line, "{error}");
        assert!(error.message.contains(says), "{error}");
        assert!(!error.hint.is_empty(), "{error}");
        for raw in ["budget", "{", "breach", "recurs"] {
            assert!(!error.message.contains(raw), "{error}");
        }
        // What follows from the part that is gone is told as no fault of its own.
        let found = plan::faults(&text, "x.yaml", &load);
        let lost = found
            .iter()
            .filter(|e| e.message.contains("names no anchor"));
        assert_eq!(
            lost.count(),
            usize::from(says.contains("names no anchor")),
            "{found:?}"
        );
    }
}

#[test]
fn a_tab_is_told_at_its_own_place() {
    for (text, place) in [
        ("version: 1\nrun:\n\tparallel: 2\n", (3, 1)),
        ("version: 1\nrun:\n\t\tparallel: 2\n", (3, 1)),
        ("version: 1\nrun:\n  parallel: 2\n\trounds: 1\n", (4, 1)),
        ("version: 1\nprotect:\n\t- x\n", (3, 1)),
        ("version: 1\ntask: |\n\tdo it\n", (3, 1)),
        ("version: 1\ntask: a\n\tb\n", (3, 1)),
        ("version: 1\nprotect: [\n\tx]\n", (3, 1)),
        ("version: 1\nprotect:\n  -\ta: b\n\t  c: d\n", (4, 1)),
    ] {
        let error = read(text).unwrap_err();
        assert_eq!((error.line, error.column), place, "{text:?}: {error}");
        assert!(error.message.contains("a tab stands"), "{error}");
        assert!(error.hint.contains("spaces"), "{error}");
    }
}

proptest! {
    #[test]
    fn reading_never_panics_and_always_names_a_place(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Err(error) = read(&String::from_utf8_lossy(&bytes)) {
            prop_assert!(error.line >= 1 && error.column >= 1);
            prop_assert!(!error.hint.is_empty());
            let _ = error.to_string();
        }
    }

    #[test]
    fn a_damaged_plan_never_panics(which in 0..200usize, cut in 0..400usize, put in "[\\[\\]{}:,&*!|>'\"#%@`\\-\n\t a0é]{0,3}") {
        let plans = bad_plans();
        let text = plans[which % plans.len()].1;
        let place = (0..=cut.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap();
        let damaged = format!("{}{put}{}", &text[..place], &text[place..]);
        for text in [damaged.as_str(), &text[..place]] {
            if let Err(error) = read(text) {
                prop_assert!(error.line >= 1 && error.column >= 1);
                prop_assert!(!error.hint.is_empty(), "{}", error);
            }
        }
    }
}

#[test]
fn the_built_in_plan_has_the_roles_and_defaults_of_the_contract() {
    let plan = Plan::built_in().unwrap();
    let roles: Vec<(&str, Kind)> = plan
        .roles
        .values()
        .map(|r| (r.name.as_str(), r.kind))
        .collect();
    assert_eq!(
        roles,
        [
            ("coder", Kind::Worker),
            ("coordinator", Kind::Coordinator),
            ("merger", Kind::Worker),
            ("researcher", Kind::Worker),
            ("reviewer", Kind::Worker),
            ("verifier", Kind::Verifier),
        ]
    );
    let tools = |name: &str| plan.roles[&RoleName::new(name)].tools.join(" ");
    assert_eq!(tools("coordinator"), "read_file list_files grep");
    assert_eq!(
        tools("researcher"),
        "bash process read_file list_files grep"
    );
    assert_eq!(tools("reviewer"), tools("researcher"));
    assert_eq!(
        tools("verifier"),
        "bash process read_file list_files grep run_acceptance"
    );
    assert_eq!(tools("coder"), plan::TOOLS.join(" "));
    assert_eq!(tools("merger"), tools("coder"));
    assert!(
        plan.roles
            .values()
            .all(|role| !role.prompt.contains("<!--"))
    );
}

#[test]
fn the_built_in_plan_has_the_limits_of_the_contract() {
    let plan = Plan::built_in().unwrap();
    let run = &plan.run;
    assert_eq!(
        (run.parallel, run.subtasks, run.rounds, run.tokens),
        (4, 20, 2, 20_000_000)
    );
    assert_eq!((run.cost_usd, run.time.as_secs()), (None, 3600));
    let coder = &plan.roles[&RoleName::new("coder")];
    assert_eq!(
        (
            coder.limits.turns,
            coder.limits.tool_calls,
            coder.limits.output
        ),
        (40, 200, 8000)
    );
    assert_eq!(coder.limits.time.as_secs(), 1200);
    assert_eq!(
        (coder.sandbox.memory, coder.sandbox.disk, coder.sandbox.pids),
        (2 << 30, 4 << 30, 256)
    );
    assert_eq!(coder.sandbox.image.to_string(), "wharf/python");
    assert_eq!(
        (plan.compaction.at, plan.compaction.keep, plan.votes),
        (0.7, 6, 1)
    );
    assert_eq!(plan.workspace.hide.len(), 7);
}

const RICH: &str = r#"
version: 1
name: rich
task: |
  Do: several "things" # not a comment
  on two lines
model: [anthropic/big, openai/small]
workspace: {path: ../repo, copy: true, history: none, hide: ["*.key"], include: ["gen/**"]}
run: {parallel: 2, subtasks: 5, rounds: 3, tokens: 1000, cost_usd: 1.5, time: 1h30m}
agent: {turns: 10, tool_timeout: 45s, temperature: 0.5}
sandbox: {image: "python:3.12", setup: ["pip install x"], env: {PORT: 8080, EMPTY: ""}, cpus: 0.5, memory: 512m, inodes: 9000, fsize: 64m, nofile: 4096, strict: true, network: full, runtime: runsc}
permissions: {mode: plan, rules: [{tool: bash, command: "git push*", action: deny}, {tool: write_file, path: "docs/**", action: allow}]}
protect: ["tests/**", "!tests/new/**"]
acceptance:
  commands: ["make test", {run: "make lint", timeout: 90s}]
  criteria: ["it: works", "yes"]
compaction: {at: 0.5, keep: 4}
roles:
  coder: {description: mine, tools: [bash, lint], model: local/m, agent: {turns: 60, context_window: 9000}, sandbox: {memory: 1g, env: {DEBUG: "1"}, runtime: default}}
  tester: {prompt: "Test\n\n  it.\n", sandbox: {network: none}}
tools:
  lint: {description: lints, command: "ruff check .", schema: {type: object, properties: {path: {type: string}}}}
providers:
  local: {kind: openai, base_url: "http://127.0.0.1:11434/v1", context_window: 8192, price: {input: 1, output: 2.5}}
"#;

#[test]
fn keys_are_merged_from_built_in_top_level_and_role() {
    let plan = read(RICH).unwrap();
    let coder = &plan.roles[&RoleName::new("coder")];
    assert!(coder.prompt.starts_with("You are a coder."));
    assert_eq!(coder.description, "mine");
    assert_eq!(coder.tools, ["bash", "lint"]);
    assert_eq!(coder.model, ["local/m"]);
    assert_eq!(
        (coder.limits.turns, coder.limits.tool_timeout.as_secs()),
        (60, 45)
    );
    assert_eq!(
        (coder.temperature, coder.context_window),
        (Some(0.5), Some(9000))
    );
    assert_eq!((coder.sandbox.memory, coder.sandbox.cpus), (1 << 30, 0.5));
    assert_eq!(coder.sandbox.runtime, None);
    let env: Vec<String> = coder
        .sandbox
        .env
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    assert_eq!(env, ["DEBUG=1", "EMPTY=", "PORT=8080"]);
    let tester = &plan.roles[&RoleName::new("tester")];
    assert_eq!(tester.limits.turns, 10);
    assert_eq!(tester.sandbox.network, plan::Network::None);
    assert_eq!(tester.tools.last().unwrap(), "lint");
    assert_eq!(plan.sandbox.runtime.as_deref(), Some("runsc"));
    // gVisor's own threads count, so the default is more under it.
    assert_eq!((plan.sandbox.pids, plan.sandbox.strict), (1024, true));
    assert_eq!(
        (plan.sandbox.inodes, plan.sandbox.fsize),
        (9000, Some(64 << 20))
    );
    assert_eq!(
        (plan.sandbox.nofile.soft, plan.sandbox.nofile.hard),
        (4096, 4096)
    );
    assert_eq!(plan.acceptance.commands[0].timeout.as_secs(), 600);
    assert_eq!(plan.acceptance.commands[1].timeout.as_secs(), 90);
    assert_eq!(plan.providers["local"].price, Some((1.0, 1.0, 2.5)));
    assert_eq!(plan.acceptance.criteria, ["it: works", "yes"]);
}

fn subtask(id: &str, needs: &[&str]) -> Subtask {
    Subtask {
        id: SubtaskId::new(id),
        role: RoleName::new("coder"),
        title: None,
        brief: format!("do {id}"),
        needs: needs.iter().map(|need| SubtaskId::new(*need)).collect(),
    }
}

/// Equal in all but the hash of the text.
fn assert_same(mut left: Plan, mut right: Plan) {
    left.hash.clear();
    right.hash.clear();
    assert_eq!(left, right);
}

#[test]
fn a_written_plan_reads_back_as_the_same() {
    let alone = "version: 1\nname: alone\nroles: {extends: none, only: {prompt: hi}, judge: {kind: verifier, prompt: judge}}\nsubtasks: [{id: a, role: only, brief: b}]\n";
    for text in [RICH, alone, plan::DEFAULT, "version: 1\n"] {
        let mut plan = plan::parse(text, "x.yaml", &|path| {
            std::fs::read_to_string(format!("plans/{path}")).map_err(|e| e.to_string())
        })
        .unwrap();
        let mut nodes = vec![subtask("a", &[]), subtask("b", &["a"])];
        nodes[1].brief = "line: one\n\n  - two # three\nend \\ \"q\"\t\u{e9}\n".to_owned();
        nodes[1].title = Some("yes".to_owned());
        if plan.name == "alone" {
            nodes
                .iter_mut()
                .for_each(|node| node.role = RoleName::new("only"));
        }
        let written = plan.to_yaml(&nodes).unwrap();
        let again = read(&written).unwrap_or_else(|error| panic!("{error}\n{written}"));
        plan.subtasks = nodes;
        plan.run.rounds = 1;
        assert_same(plan, again);
    }
}

#[test]
fn a_plan_without_changes_writes_little() {
    let plan = Plan::built_in().unwrap();
    let text = plan.to_yaml(&[subtask("a", &[])]).unwrap();
    assert!(text.lines().count() <= 8, "{text}");
}

#[test]
fn role_files_of_other_tools_are_read() {
    let load = |path: &str| {
        match path {
        "./roles/*.md" => Ok("./roles/b.md\n./roles/a.md\n".to_owned()),
        "./roles/a.md" => Ok("---\r\nname: tester\r\ndescription: Writes tests\r\ntools: Read, Glob, LS, Bash\r\nmodel: inherit\r\ncolor: blue\r\n---\r\n\r\nTest it.\r\n".to_owned()),
        "./roles/b.md" => Ok("---\nname: coder\ntools: [bash, edit_file]\n---\n<!-- v2 -->\nCode --- it.\n---\nAll.\n".to_owned()),
        _ => Err("no such file".to_owned()),
    }
    };
    let text = "version: 1\nrole_files: [\"./roles/*.md\"]\nroles: {coder: {agent: {turns: 7}}}\n";
    let plan = plan::parse(text, "dir/my.plan.yaml", &load).unwrap();
    assert_eq!(plan.name, "my");
    let tester = &plan.roles[&RoleName::new("tester")];
    assert_eq!(tester.prompt, "Test it.");
    assert_eq!(tester.tools, ["read_file", "list_files", "bash"]);
    assert!(tester.model.is_empty());
    let coder = &plan.roles[&RoleName::new("coder")];
    assert_eq!(coder.prompt, "Code --- it.\n---\nAll.");
    assert_eq!((coder.tools.len(), coder.limits.turns), (2, 7));
    assert!(coder.description.starts_with("Changes files"));
    let other = plan::parse(text, "dir/my.plan.yaml", &|path| {
        load(path).map(|t| t.replace("Test", "Try"))
    });
    assert_ne!(other.unwrap().hash, plan.hash);
}

#[test]
fn a_fault_in_a_role_file_is_shown_in_that_file() {
    let load = |_: &str| Ok("---\nname: tester\nmodle: a/b\n---\nTest.\n".to_owned());
    let error = plan::parse("version: 1\nrole_files: t.md\n", "x.yaml", &load).unwrap_err();
    assert_eq!(
        (error.file.as_str(), error.line, error.column),
        ("t.md", 3, 1)
    );
    assert_eq!(
        (error.snippet.as_str(), error.hint.as_str()),
        ("modle: a/b", "did you mean `model`?")
    );
}

#[test]
fn without_a_verifier_or_with_fixed_subtasks_a_plan_still_reads() {
    let text = "version: 1\nrun: {rounds: 3}\nroles: {extends: none, only: {prompt: hi}}\nsubtasks: [{id: a, role: only, brief: b}]\n";
    let plan = read(text).unwrap();
    assert_eq!(plan.run.rounds, 1);
    assert_eq!(plan.roles.len(), 1);
    assert_eq!(plan.subtasks[0].needs, []);
    assert_eq!(plan.hash.len(), 64);
}

#[test]
fn zero_limits_are_limits() {
    let plan =
        read("version: 1\nrun: {tokens: 0, cost_usd: 0, time: 0s}\nagent: {turns: 0}\n").unwrap();
    assert_eq!((plan.run.tokens, plan.run.cost_usd), (0, Some(0.0)));
}

#[test]
fn the_schema_knows_every_key_and_refuses_others() {
    let schema = plan::schema();
    let text = serde_json::to_string_pretty(&schema).unwrap();
    for key in [
        "version",
        "role_files",
        "acceptance",
        "extends",
        "tool_timeout",
        "api_key_env",
        "cost_usd",
    ] {
        assert!(text.contains(&format!("\"{key}\"")), "{key}");
    }
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["required"], serde_json::json!(["version"]));
    insta::assert_snapshot!(text);
}

/// Every file under `plans/` that ends in `.yaml`.
fn shipped() -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir("plans").into_iter().flatten().flatten();
    let mut paths: Vec<_> = files.map(|file| file.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "yaml"));
    paths.sort();
    paths
}

#[test]
fn every_shipped_plan_reads_and_is_named_in_the_readme() {
    let readme = std::fs::read_to_string("plans/README.md").unwrap();
    assert!(shipped().len() >= 4);
    for path in shipped() {
        let text = std::fs::read_to_string(&path).unwrap();
        let load = |file: &str| {
            std::fs::read_to_string(format!("plans/{file}")).map_err(|e| e.to_string())
        };
        let plan = plan::parse(&text, &path.display().to_string(), &load)
            .unwrap_or_else(|error| panic!("{error}"));
        let file = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(format!("{}.yaml", plan.name), file);
        assert!(readme.contains(file), "{file} is not in plans/README.md");
        assert!(plan.task.is_some() || plan.name == "default");
    }
}

#[test]
fn the_quickstart_stands_for_its_claims() {
    let text = std::fs::read_to_string("plans/quickstart.yaml").unwrap();
    let plan = plan::parse(&text, "plans/quickstart.yaml", &load).unwrap();
    assert_eq!(plan.model, ["replay:quickstart.cassette.jsonl"]);
    assert_eq!(plan.workspace.path.as_deref(), Some("quickstart"));
    assert!(plan.workspace.copy);
    assert_eq!(plan.acceptance.criteria.len(), 3);
    let code = std::fs::read_to_string("plans/quickstart/prices/money.py").unwrap();
    assert!(code.contains("ROUND_HALF_EVEN") && code.contains("- amount(discount)"));
}

#[test]
fn every_key_of_the_schema_is_documented() {
    let docs = std::fs::read_to_string("docs/plan-files.md").unwrap();
    let schema = plan::schema();
    let mut missing = Vec::new();
    let defs = schema["$defs"].as_object().unwrap();
    for part in defs.values().chain([&schema]) {
        for key in part["properties"]
            .as_object()
            .into_iter()
            .flat_map(|keys| keys.keys())
        {
            if !docs.contains(&format!("`{key}`")) && !docs.contains(&format!(".{key}`")) {
                missing.push(key.clone());
            }
        }
    }
    assert!(missing.is_empty(), "docs/plan-files.md lacks {missing:?}");
}

#[test]
fn every_prompt_is_short_versioned_and_names_how_to_end() {
    for role in Plan::built_in().unwrap().roles.values() {
        let file = format!("plans/prompts/{}.md", role.name);
        let text = std::fs::read_to_string(&file).unwrap();
        let first = format!("<!-- {}, version ", role.name);
        assert!(text.starts_with(&first), "{file}");
        assert!(text.ends_with(&format!("{}\n", role.prompt)), "{file}");
        let ending = match role.kind {
            Kind::Coordinator => "submit_plan",
            Kind::Worker => "submit_report",
            Kind::Verifier => "submit_verdict",
        };
        assert!(
            role.prompt.contains(&format!("End by calling `{ending}`")),
            "{file}"
        );
        for other in plan::ENDINGS.iter().filter(|name| **name != ending) {
            assert!(!role.prompt.contains(other), "{file} names {other}");
        }
        assert!(role.prompt.len() < 3200, "{file}: {}", role.prompt.len());
    }
}
