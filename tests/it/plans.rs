//! Plan files: every shipped one reads, every broken one is refused at its place with a hint.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use wharf::id::{RoleName, SubtaskId};
use wharf::plan::{self, Dag, Error, GraphError, Kind, Plan, Subtask};

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
    assert_eq!(coder.sandbox.image, "wharf/python");
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
workspace: {path: ../repo, copy: true, history: none, hide: ["*.key"]}
run: {parallel: 2, subtasks: 5, rounds: 3, tokens: 1000, cost_usd: 1.5, time: 1h30m}
agent: {turns: 10, tool_timeout: 45s, temperature: 0.5}
sandbox: {image: "python:3.12", setup: ["pip install x"], env: {PORT: 8080, EMPTY: ""}, cpus: 0.5, memory: 512m, network: full, runtime: runsc}
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

fn roles() -> BTreeMap<RoleName, plan::Role> {
    Plan::built_in().unwrap().roles
}

fn names(ids: &[SubtaskId]) -> Vec<&str> {
    ids.iter().map(SubtaskId::as_str).collect()
}

#[test]
fn a_diamond_is_ordered_and_released_by_its_needs() {
    let nodes = vec![
        subtask("d", &["b", "c"]),
        subtask("c", &["a"]),
        subtask("b", &["a"]),
        subtask("a", &[]),
        subtask("z", &[]),
    ];
    let dag = Dag::new(nodes, 20, &roles()).unwrap();
    assert_eq!(names(dag.order()), ["a", "z", "b", "c", "d"]);
    assert_eq!(dag.layers().len(), 3);
    let set = |ids: &[&str]| {
        ids.iter()
            .map(|id| SubtaskId::new(*id))
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(names(&dag.ready(&set(&[]), &set(&[]))), ["a", "z"]);
    assert_eq!(
        names(&dag.ready(&set(&["a"]), &set(&["a", "z"]))),
        ["b", "c"]
    );
    assert_eq!(
        names(&dag.ready(&set(&["a", "b"]), &set(&["a", "b", "z"]))),
        ["c"]
    );
    assert_eq!(
        names(&dag.dependents(&SubtaskId::new("a"))),
        ["b", "c", "d"]
    );
    assert_eq!(
        names(&dag.dependents(&SubtaskId::new("d"))),
        [] as [&str; 0]
    );
}

#[test]
fn a_later_round_adds_to_what_is_done() {
    let first = Dag::new(vec![subtask("a", &[])], 1, &roles()).unwrap();
    let second = first
        .extend(vec![subtask("c", &["a"])], 1, &roles())
        .unwrap();
    let done = BTreeSet::from([SubtaskId::new("a")]);
    assert_eq!(names(&second.ready(&done, &done)), ["c"]);
    assert_eq!(first.len(), 1);
    let again = first
        .extend(vec![subtask("a", &[])], 1, &roles())
        .unwrap_err();
    assert_eq!(
        again.to_string(),
        "the id `a` stands twice; every subtask needs an id of its own"
    );
    let circle = first.extend(
        vec![subtask("x", &["y"]), subtask("y", &["x", "a"])],
        2,
        &roles(),
    );
    assert!(matches!(circle, Err(GraphError::Cycle { .. })));
}

#[test]
fn a_coordinator_is_told_exactly_what_is_wrong() {
    let told = |nodes: Vec<Subtask>| Dag::new(nodes, 3, &roles()).unwrap_err().to_string();
    let mut shown = String::new();
    let mut role = subtask("a", &[]);
    role.role = RoleName::new("writer");
    for nodes in [
        vec![],
        vec![subtask("a", &[]); 2],
        (0..4).map(|i| subtask(&format!("s{i}"), &[])).collect(),
        vec![
            subtask("a", &["b"]),
            subtask("b", &["c"]),
            subtask("c", &["a"]),
        ],
        vec![subtask("a", &["zzz"]), subtask("b", &[])],
        vec![subtask("b", &["A"]), subtask("a", &[])],
        vec![subtask("Fix It", &[])],
        vec![subtask("emoji-😀", &[])],
        vec![subtask("", &[])],
        vec![subtask(&"x".repeat(41), &[])],
        vec![subtask("merge-1", &[])],
        vec![role],
    ] {
        shown += &told(nodes);
        shown.push('\n');
    }
    insta::assert_snapshot!(shown);
}

/// Some subtasks, each needing some of those before it in a hidden order.
fn dags() -> impl Strategy<Value = Vec<Subtask>> {
    (1..12usize).prop_flat_map(|count| {
        let needs = proptest::collection::vec(any::<u16>(), count);
        let order = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
        (needs, order).prop_map(|(needs, order)| {
            let node = |(i, bits): (usize, &u16)| {
                let ids = (0..i)
                    .filter(|j| bits >> j & 1 == 1)
                    .map(|j| format!("n{}", order[j]));
                let ids: Vec<String> = ids.collect();
                let needs: Vec<&str> = ids.iter().map(String::as_str).collect();
                subtask(&format!("n{}", order[i]), &needs)
            };
            needs.iter().enumerate().map(node).collect()
        })
    })
}

proptest! {
    #[test]
    fn order_follows_needs_and_not_the_way_they_were_written(nodes in dags(), seed in any::<u64>()) {
        let roles = roles();
        let dag = Dag::new(nodes.clone(), 20, &roles).unwrap();
        let place = |id: &SubtaskId| dag.order().iter().position(|other| other == id).unwrap();
        prop_assert_eq!(dag.order().len(), nodes.len());
        for node in &nodes {
            for need in &node.needs {
                prop_assert!(place(need) < place(&node.id));
            }
        }
        let mut other = nodes.clone();
        other.rotate_left(usize::try_from(seed % nodes.len() as u64).unwrap());
        other.reverse();
        let again = Dag::new(other, 20, &roles).unwrap();
        prop_assert_eq!(again.order(), dag.order());
    }

    #[test]
    fn any_order_of_finishes_starts_each_once_after_its_needs(nodes in dags(), mut seed in any::<u64>()) {
        let dag = Dag::new(nodes, 20, &roles()).unwrap();
        let (mut done, mut started) = (BTreeSet::new(), BTreeSet::new());
        while done.len() < dag.len() {
            for id in dag.ready(&done, &started) {
                prop_assert!(dag.get(&id).unwrap().needs.iter().all(|need| done.contains(need)));
                prop_assert!(started.insert(id));
            }
            let open: Vec<SubtaskId> = started.difference(&done).cloned().collect();
            prop_assert!(!open.is_empty());
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let pick = usize::try_from(seed >> 33).unwrap() % open.len();
            done.insert(open[pick].clone());
        }
    }

    #[test]
    fn a_circle_is_always_found_and_named(nodes in dags(), from in any::<usize>(), to in any::<usize>()) {
        let mut nodes = nodes;
        let (from, to) = (from % nodes.len(), to % nodes.len());
        let dag = Dag::new(nodes.clone(), 20, &roles()).unwrap();
        let (first, last) = (nodes[from].id.clone(), nodes[to].id.clone());
        let closes = first == last || dag.dependents(&first).contains(&last);
        if nodes[from].needs.contains(&last) {
            return Ok(());
        }
        nodes[from].needs.push(last);
        match Dag::new(nodes.clone(), 20, &roles()) {
            Ok(_) => prop_assert!(!closes),
            Err(GraphError::Cycle { path, index, place }) => {
                prop_assert!(closes && path.len() >= 2);
                prop_assert_eq!(path.first(), path.last());
                for pair in path.windows(2) {
                    let node = nodes.iter().find(|node| node.id == pair[0]).unwrap();
                    prop_assert!(node.needs.contains(&pair[1]));
                }
                prop_assert_eq!(&nodes[index].needs[place], &path[1]);
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
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
