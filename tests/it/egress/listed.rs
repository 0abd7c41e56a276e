//! The `network` key of the plan file, and the credentials that it names.

use proptest::prelude::*;
use wharf::config::{Env, Flags, load_with};
use wharf::id::{RoleName, SubtaskId};
use wharf::plan::{self, Host, Inject, Network, Plan, Reach, Subtask};

fn read(text: &str) -> Plan {
    plan::parse(text, "x.yaml", &|path| Err(format!("no file {path}"))).unwrap()
}

const WHOLE: &str = r#"version: 1
sandbox:
  network:
    allow: [Example.ORG., "*.example.org", "a.example:8443", 10.0.0.7, "10.0.0.7:5432", "[2001:db8::1]:80", "2001:db8::2", api.example]
    private: true
    bytes: 64m
    connections: 7
    inject:
      - {host: api.example, header: Authorization, env: TOKEN, prefix: "Bearer "}
      - {host: "a.example:8443", header: X-Key, env: KEY, tls: false}
roles:
  coder: {sandbox: {network: none}}
  reviewer: {sandbox: {network: {allow: [b.example], private: null, bytes: null, connections: null, inject: null}}}
"#;

fn reach(network: &Network) -> &Reach {
    match network {
        Network::Allow(reach) => reach,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_form_of_a_host_is_read() {
    let plan = read(WHOLE);
    let whole = reach(&plan.sandbox.network);
    let hosts: Vec<(Host, Option<u16>)> = whole
        .allow
        .iter()
        .map(|a| (a.host.clone(), a.port))
        .collect();
    let address = |text: &str| Host::Address(text.parse().unwrap());
    let wanted = [
        (Host::Name("example.org".into()), None),
        (Host::Below("example.org".into()), None),
        (Host::Name("a.example".into()), Some(8443)),
        (address("10.0.0.7"), None),
        (address("10.0.0.7"), Some(5432)),
        (address("2001:db8::1"), Some(80)),
        (address("2001:db8::2"), None),
        (Host::Name("api.example".into()), None),
    ];
    assert_eq!(hosts, wanted);
    assert_eq!(
        (whole.private, whole.bytes, whole.connections),
        (true, 64 << 20, 7)
    );
    let api = Inject {
        host: "api.example".into(),
        port: 443,
        tls: true,
        header: "Authorization".into(),
        prefix: "Bearer ".into(),
        env: "TOKEN".into(),
    };
    assert_eq!(whole.inject[0], api);
    assert_eq!(whole.inject[1].address(), "http://a.example:8443/");
    assert_eq!(
        (whole.inject[1].tls, api.address().as_str()),
        (false, "http://api.example/")
    );
}

#[test]
fn a_role_has_a_list_of_its_own_or_the_plans_whole() {
    let plan = read(WHOLE);
    let of = |name: &str| &plan.roles[&RoleName::new(name)].sandbox.network;
    assert_eq!(*of("coder"), Network::None);
    let own = reach(of("reviewer"));
    assert_eq!(own.allow.len(), 1);
    assert_eq!(
        (own.private, own.bytes, own.connections, own.inject.len()),
        (false, 1 << 30, 64, 0)
    );
    assert_eq!(of("researcher"), &plan.sandbox.network);
}

#[test]
fn a_plan_that_is_written_again_says_the_same() {
    let plan = read(WHOLE);
    let node = Subtask {
        id: SubtaskId::new("a"),
        role: RoleName::new("coder"),
        title: None,
        brief: "b".into(),
        needs: vec![],
    };
    let again = read(&plan.to_yaml(&[node]).unwrap());
    assert_eq!(again.sandbox, plan.sandbox);
    for (name, role) in &again.roles {
        assert_eq!(role.sandbox, plan.roles[name].sandbox, "{name}");
    }
}

proptest! {
    #[test]
    fn whatever_is_listed_is_refused_or_a_host(text in "[a-zA-Z0-9.:*/\\[\\]_-]{1,24}") {
        let file = format!("version: 1\nsandbox: {{network: {{allow: [\"{text}\"]}}}}\n");
        if let Ok(plan) = plan::parse(&file, "x.yaml", &|_| Err(String::new())) {
            let shown = reach(&plan.sandbox.network).allow[0].to_string();
            let again = read(&file.replace(&text, &shown));
            prop_assert_eq!(&again.sandbox.network, &plan.sandbox.network);
            prop_assert!(!shown.contains('/') && shown != "*");
        }
    }
}

#[test]
fn a_credential_is_read_from_the_environment_and_must_be_there() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().to_str().unwrap();
    let apply = |more: &[(&str, &str)]| {
        let env = [&[("HOME", home), ("WHARF_HOME", home)], more].concat();
        let mut config = load_with(&Flags::default(), dir.path(), Env::of(&env)).unwrap();
        let applied = config.apply(&mut read(WHOLE), WHOLE, None);
        applied.map(|()| config)
    };
    let config = apply(&[
        ("TOKEN", "canary-one"),
        ("KEY", "canary-two"),
        ("OTHER", "canary-three"),
    ])
    .unwrap();
    let options = config.engine_options();
    let names: Vec<&String> = options.credentials.keys().collect();
    assert_eq!(names, ["KEY", "TOKEN"]);
    assert!(!format!("{options:?}").contains("canary"));
    // Models and spans are told to mask them.
    for value in ["canary-one", "canary-two"] {
        assert!(config.secrets.iter().any(|secret| secret == value));
        assert!(config.trace.secrets.iter().any(|secret| secret == value));
    }
    for (env, part) in [
        (vec![("TOKEN", "canary-one")], "KEY is ``"),
        (vec![("TOKEN", ""), ("KEY", "canary-two")], "TOKEN is ``"),
        (
            vec![("TOKEN", "canary\none"), ("KEY", "canary-two")],
            "cannot stand in a header",
        ),
    ] {
        let error = apply(&env).err().unwrap();
        assert!(error.to_string().contains(part), "{error}");
        assert!(!error.to_string().contains("canary"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}
