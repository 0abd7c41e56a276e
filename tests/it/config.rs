//! Which of flag, environment, plan, user config and built-in wins, and what is refused.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use wharf::config::{self, Config, Env, Error, Flags, Source, Wire};
use wharf::id::RoleName;
use wharf::plan::{
    Acceptance, AgentLimits, Compaction, History, Kind, Network, PermissionMode, Permissions, Plan,
    Provider, Role, RunLimits, Sandbox, Workspace,
};
use wharf::run::Delivery;

/// A home directory with a config file of the user's.
struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("config/wharf")).unwrap();
        std::fs::create_dir_all(dir.path().join("work")).unwrap();
        std::fs::write(dir.path().join("config/wharf/config.yaml"), config).unwrap();
        Self { dir }
    }

    fn path(&self, rest: &str) -> String {
        self.dir.path().join(rest).display().to_string()
    }

    fn load(&self, flags: &Flags, more: &[(&str, &str)]) -> Result<Config, Error> {
        let home = self.path("");
        let config = self.path("config");
        let mut vars = vec![
            ("HOME", home.as_str()),
            ("XDG_CONFIG_HOME", config.as_str()),
        ];
        vars.extend_from_slice(more);
        config::load_with(flags, &self.dir.path().join("work"), Env::of(&vars))
    }
}

fn sandbox() -> Sandbox {
    Sandbox {
        image: "wharf/base".to_owned(),
        setup: Vec::new(),
        env: BTreeMap::new(),
        cpus: 1.0,
        memory: 1 << 30,
        pids: 64,
        disk: 1 << 30,
        network: Network::None,
        runtime: None,
        ..Sandbox::default()
    }
}

fn role(name: &str) -> (RoleName, Role) {
    let role = Role {
        name: RoleName::new(name),
        kind: Kind::Worker,
        description: String::new(),
        prompt: String::new(),
        tools: Vec::new(),
        model: Vec::new(),
        temperature: None,
        context_window: None,
        sandbox: sandbox(),
        limits: AgentLimits {
            turns: 1,
            tokens: 1,
            time: Duration::from_secs(1),
            tool_calls: 1,
            tool_timeout: Duration::from_secs(1),
            output: 1,
            reply_tokens: 1,
        },
    };
    (RoleName::new(name), role)
}

/// A plan with the built-in limits, as the plan room would resolve one that names none.
fn plan() -> Plan {
    Plan {
        name: "p".to_owned(),
        task: None,
        model: Vec::new(),
        workspace: Workspace {
            path: None,
            copy: false,
            history: History::Recent,
            hide: Vec::new(),
        },
        run: RunLimits {
            parallel: 4,
            subtasks: 20,
            rounds: 2,
            tokens: 20_000_000,
            cost_usd: None,
            time: Duration::from_secs(3_600),
        },
        permissions: Permissions {
            mode: PermissionMode::Auto,
            rules: Vec::new(),
        },
        protect: Vec::new(),
        acceptance: Acceptance::default(),
        votes: 1,
        compaction: Compaction::default(),
        roles: BTreeMap::from([role("coder"), role("reviewer")]),
        tools: BTreeMap::new(),
        subtasks: Vec::new(),
        providers: BTreeMap::new(),
        prices: BTreeMap::new(),
        sandbox: sandbox(),
        hash: String::new(),
    }
}

fn source(config: &Config, key: &str) -> Source {
    let settings = config.settings();
    let found = settings.iter().find(|setting| setting.key == key);
    found.unwrap().source.clone()
}

#[test]
fn flag_environment_plan_file_and_built_in_in_this_order() {
    let home = Home::new("parallel: 2\n");
    let flag = Flags {
        parallel: Some("6".to_owned()),
        ..Flags::default()
    };
    let variable = [("WHARF_PARALLEL", "5")];
    let written = "version: 1\nrun: {parallel: 4}\n";
    let config_file = home.path("config/wharf/config.yaml");
    let cases = [
        (&flag, &variable[..], written, 6, Source::Flag("--parallel")),
        (
            &Flags::default(),
            &variable[..],
            written,
            5,
            Source::Environment("WHARF_PARALLEL"),
        ),
        (&Flags::default(), &[], written, 4, Source::Plan),
        (
            &Flags::default(),
            &[],
            "version: 1\n",
            2,
            Source::File(config_file.into()),
        ),
    ];
    for (flags, vars, text, expected, from) in cases {
        let mut plan = plan();
        let mut config = home.load(flags, vars).unwrap();
        config.apply(&mut plan, text, None).unwrap();
        assert_eq!(plan.run.parallel, expected);
        assert_eq!(source(&config, "parallel"), from);
    }
    let mut plan = plan();
    let mut config = Home::new("").load(&Flags::default(), &[]).unwrap();
    config.apply(&mut plan, "version: 1\n", None).unwrap();
    assert_eq!(plan.run.parallel, 4);
    assert_eq!(source(&config, "parallel"), Source::BuiltIn);
}

#[test]
fn every_limit_reaches_the_plan() {
    let flags = Flags {
        budget_tokens: Some("0".to_owned()),
        budget_usd: Some("2.5".to_owned()),
        timeout: Some("30m".to_owned()),
        mode: Some("deny".to_owned()),
        ..Flags::default()
    };
    let mut plan = plan();
    let mut config = Home::new("").load(&flags, &[]).unwrap();
    config.apply(&mut plan, "version: 1\n", None).unwrap();
    assert_eq!(plan.run.tokens, 0);
    assert_eq!(plan.run.cost_usd, Some(2.5));
    assert_eq!(plan.run.time, Duration::from_secs(1_800));
    assert_eq!(plan.permissions.mode, PermissionMode::Deny);
}

#[test]
fn what_makes_no_sense_is_exit_two_and_names_its_place() {
    let home = Home::new("");
    let set = |change: fn(&mut Flags)| {
        let mut flags = Flags::default();
        change(&mut flags);
        flags
    };
    let flags = [
        (
            set(|f| f.parallel = Some("-1".to_owned())),
            "--parallel is `-1`",
        ),
        (
            set(|f| f.budget_usd = Some("NaN".to_owned())),
            "--budget-usd is `NaN`",
        ),
        (
            set(|f| f.budget_tokens = Some("abc".to_owned())),
            "--budget-tokens is `abc`",
        ),
        (
            set(|f| f.timeout = Some("soon".to_owned())),
            "--timeout is `soon`",
        ),
        (
            set(|f| f.mode = Some("yolo".to_owned())),
            "--mode is `yolo`",
        ),
        (
            set(|f| f.run_id = Some("../x".to_owned())),
            "--run-id is `../x`",
        ),
        (
            set(|f| f.role_models = vec!["coder".to_owned()]),
            "--role-model is `coder`",
        ),
    ];
    for (flags, text) in flags {
        let error = home.load(&flags, &[]).map(|_| ()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().starts_with(text), "{error}");
    }
}

#[test]
fn variables_and_the_file_are_judged_like_flags() {
    let home = Home::new("");
    let both = Flags {
        branch: Some("b".to_owned()),
        patch: Some("p".into()),
        ..Flags::default()
    };
    assert!(home.load(&both, &[]).is_err());
    for variable in [
        ("WHARF_BUDGET_USD", "-2"),
        ("WHARF_APPLY", "maybe"),
        ("OPENAI_BASE_URL", "h:1"),
    ] {
        let error = home
            .load(&Flags::default(), &[variable])
            .map(|_| ())
            .unwrap_err();
        assert!(error.to_string().starts_with(variable.0), "{error}");
    }
    let error = Home::new("budget_usd: -1\n")
        .load(&Flags::default(), &[])
        .map(|_| ())
        .unwrap_err();
    assert!(
        error.to_string().starts_with("`budget_usd` in /"),
        "{error}"
    );
}

#[test]
fn a_recording_is_found_from_where_it_was_named() {
    let home = Home::new("");
    let flags = Flags {
        model: Some("replay:a,b.jsonl".to_owned()),
        role_models: vec!["coder=replay:c.jsonl".to_owned()],
        ..Flags::default()
    };
    let mut plan = plan();
    let reviewer = plan.roles.get_mut(&RoleName::new("reviewer")).unwrap();
    reviewer.model = vec!["replay:../d.jsonl".to_owned(), "openai/m".to_owned()];
    let mut config = home.load(&flags, &[]).unwrap();
    config
        .apply(&mut plan, "version: 1\n", Some(Path::new("/plans/p.yaml")))
        .unwrap();
    assert_eq!(
        plan.model,
        [format!("replay:{}", home.path("work/a,b.jsonl"))]
    );
    assert_eq!(
        plan.roles[&RoleName::new("coder")].model,
        [format!("replay:{}", home.path("work/c.jsonl"))]
    );
    assert_eq!(
        plan.roles[&RoleName::new("reviewer")].model,
        ["replay:/plans/../d.jsonl", "openai/m"]
    );
}

#[test]
fn a_run_of_ours_can_be_named_as_a_recording() {
    let home = Home::new("");
    let journal = home.path("state/runs/r1/journal.jsonl");
    std::fs::create_dir_all(home.path("state/runs/r1")).unwrap();
    std::fs::write(&journal, "").unwrap();
    let state = home.path("state");
    let flags = Flags {
        model: Some("replay:r1".to_owned()),
        ..Flags::default()
    };
    let mut plan = plan();
    let mut config = home
        .load(&flags, &[("WHARF_HOME", state.as_str())])
        .unwrap();
    config.apply(&mut plan, "version: 1\n", None).unwrap();
    assert_eq!(plan.model, [format!("replay:{journal}")]);
}

#[test]
fn a_model_for_a_role_that_is_not_there_is_refused() {
    let home = Home::new("role_models: {nobody: x/y}\n");
    let flags = Flags {
        role_models: vec!["writer=x/y".to_owned()],
        ..Flags::default()
    };
    let mut config = home.load(&flags, &[]).unwrap();
    let error = config.apply(&mut plan(), "version: 1\n", None).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("coder, reviewer"), "{error}");
    let mut config = home.load(&Flags::default(), &[]).unwrap();
    config.apply(&mut plan(), "version: 1\n", None).unwrap();
}

#[test]
fn keys_go_with_their_servers_and_are_masked_everywhere() {
    let home = Home::new(
        "providers:\n  local: {kind: openai, base_url: 'http://127.0.0.1:1/v1/', api_key_env: LOCAL_THING}\n",
    );
    let vars = [
        ("OPENAI_API_KEY", "sk-canary-openai"),
        ("LOCAL_THING", "canary-local"),
        ("PLAN_THING", "canary-plan"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://u:canary-otel@h:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=canary-header"),
    ];
    let mut plan = plan();
    plan.providers.insert(
        "mine".to_owned(),
        Provider {
            kind: "anthropic".to_owned(),
            base_url: "https://m.example".to_owned(),
            api_key_env: Some("PLAN_THING".to_owned()),
            context_window: None,
            price: Some((1.0, 0.5, 2.0)),
        },
    );
    let mut config = home.load(&Flags::default(), &vars).unwrap();
    config.apply(&mut plan, "version: 1\n", None).unwrap();
    let key = |name: &str| {
        config.providers[name]
            .key
            .as_ref()
            .map(|key| key.expose().to_owned())
    };
    assert_eq!(key("openai").unwrap(), "sk-canary-openai");
    assert_eq!(key("local").unwrap(), "canary-local");
    assert_eq!(key("mine").unwrap(), "canary-plan");
    assert_eq!(key("anthropic"), None);
    assert_eq!(config.providers["local"].base_url, "http://127.0.0.1:1/v1");
    assert_eq!(config.providers["mine"].wire, Wire::Anthropic);
    for canary in [
        "sk-canary-openai",
        "canary-local",
        "canary-plan",
        "canary-otel",
        "canary-header",
    ] {
        assert!(
            config.trace.secrets.iter().any(|secret| secret == canary),
            "{canary}"
        );
    }
    let shown = format!("{:?} {:?}", config.settings(), config.providers);
    assert!(!shown.contains("canary"), "{shown}");
    assert!(shown.contains("OPENAI_API_KEY"));
}

#[test]
fn the_plan_beside_the_operator_is_found() {
    let home = Home::new("");
    assert_eq!(home.load(&Flags::default(), &[]).unwrap().plan, None);
    std::fs::write(home.path("work/wharf.yaml"), "version: 1\n").unwrap();
    let config = home.load(&Flags::default(), &[]).unwrap();
    assert_eq!(
        config.plan.unwrap().display().to_string(),
        home.path("work/wharf.yaml")
    );
    let flags = Flags {
        plan: Some("other.yaml".into()),
        ..Flags::default()
    };
    let config = home.load(&flags, &[]).unwrap();
    assert_eq!(
        config.plan.unwrap().display().to_string(),
        home.path("work/other.yaml")
    );
}

#[test]
fn a_flag_decides_the_delivery_against_any_variable() {
    let home = Home::new("");
    let flags = Flags {
        patch: Some("out.patch".into()),
        ..Flags::default()
    };
    let config = home
        .load(&flags, &[("WHARF_BRANCH", "b"), ("WHARF_NO_VERIFY", "1")])
        .unwrap();
    let options = config.run_options();
    assert_eq!(
        options.delivery,
        Delivery::Patch(home.path("work/out.patch").into())
    );
    assert!(!options.verify);
    assert!(options.bootstrap);
    assert_eq!(
        options.state.display().to_string(),
        home.path(".local/state/wharf")
    );
}

#[test]
fn a_price_of_the_plan_beats_the_user_s_and_both_beat_what_is_known() {
    let home = Home::new(
        "prices:\n  openai/gpt-4.1: {input: 7, output: 9}\n  openai/mine: {input: 1, output: 1}\n",
    );
    let vars = [("OPENAI_API_KEY", "k")];
    let priced = |plan: &mut Plan| {
        let mut config = home.load(&Flags::default(), &vars).unwrap();
        config.apply(plan, "version: 1\n", None).unwrap();
        let providers = config.model_providers();
        let open = |name: &str| wharf::model::open(name, &providers).unwrap();
        let models = config.priced(vec![
            open("openai/gpt-4.1"),
            open("openai/mine"),
            open("openai/gpt-4o"),
        ]);
        let inputs = models
            .iter()
            .map(|model| model.about().price.map(|price| price.input));
        inputs.collect::<Vec<_>>()
    };
    let known = wharf::model::price::known("gpt-4o").unwrap().price.input;
    assert_eq!(priced(&mut plan()), [Some(7.0), Some(1.0), Some(known)]);
    let mut own = plan();
    own.prices
        .insert("openai/gpt-4.1".to_owned(), (3.0, 1.0, 5.0));
    assert_eq!(priced(&mut own), [Some(3.0), Some(1.0), Some(known)]);

    let home = Home::new("prices:\n  openai/x: {input: -1, output: 9}\n");
    let error = home.load(&Flags::default(), &[]).err().unwrap().to_string();
    assert!(error.contains("prices.openai/x"), "{error}");
    let read = |text: &str| wharf::plan::parse(text, "p.yaml", &|path| Err(path.to_owned()));
    let whole = read("version: 1\nprices: {openai/x: {input: 2, output: 4}}\n").unwrap();
    assert_eq!(whole.prices["openai/x"], (2.0, 2.0, 4.0));
    let text = whole.to_yaml(&[]).unwrap();
    assert_eq!(read(&text).unwrap().prices, whole.prices);
    assert!(read("version: 1\nprices: {x: {input: 2, output: 4}}\n").is_err());
}
