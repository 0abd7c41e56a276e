//! What a sandbox's container is made of: one pure function from spec and engine to a create body.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig,
    ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};

use super::egress::VARIABLES;
use super::facts::EngineFacts;
use super::filter::Dialect;
use super::{Error, FileLimits, Labels, Network, Spec};

/// Where the baked image holds the toolbox.
pub const TOOLBOX_PATH: &str = "/.wharf/toolbox";
/// The agent's home.
pub const HOME: &str = "/home/agent";
/// Temporary files go to the disk of the home: /tmp is memory and is charged to the container.
pub const TMPDIR: &str = "/home/agent/.tmp";
/// The agent's user and group, by number: the image need not know them.
pub const USER: &str = "1000:1000";
/// Bytes of /tmp; the spool of long outputs is there.
const TMP: u64 = 256 << 20;
/// Bytes that must remain of the memory limit when /tmp is full, or a full /tmp would kill every
/// later command.
const BESIDE_TMP: u64 = 64 << 20;

pub(super) const MACHINE: &str = "wharf.machine";
pub(super) const STATE: &str = "wharf.state";
/// Marks what is not a sandbox: `base`, `python`, `baked`, `built`, `layer`, `build`.
pub(super) const KIND: &str = "wharf.kind";
pub(super) const RUN: &str = "wharf.run";
pub(super) const SUBTASK: &str = "wharf.subtask";

/// The create body of a sandbox. `network` names the sandbox's own network for `Network::Full`.
pub fn profile(spec: &Spec, facts: &EngineFacts, network: Option<&str>) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(spec.image.id.clone()),
        hostname: Some("sandbox".to_owned()),
        user: Some(USER.to_owned()),
        working_dir: Some("/workspace".to_owned()),
        entrypoint: Some(vec![TOOLBOX_PATH.to_owned()]),
        cmd: Some(Vec::new()),
        env: Some(environment(spec)),
        labels: Some(spec.labels.to_map()),
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        stop_signal: Some("SIGKILL".to_owned()),
        tty: Some(false),
        open_stdin: Some(true),
        stdin_once: Some(true),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        host_config: Some(host(spec, facts, network)),
        ..ContainerCreateBody::default()
    }
}

/// Refuses a spec that the engine would refuse in worse words, or that would poison itself.
pub fn check(spec: &Spec, facts: &EngineFacts) -> Result<(), Error> {
    let refuse = |reason: String| {
        Err(Error::Engine {
            operation: "checking the sandbox's limits",
            reason,
        })
    };
    if spec.memory < TMP + BESIDE_TMP {
        return refuse(format!(
            "memory of {} MiB is too little: /tmp alone may take {} MiB of it; give at least {} MiB",
            spec.memory >> 20,
            TMP >> 20,
            (TMP + BESIDE_TMP) >> 20
        ));
    }
    if !spec.cpus.is_finite() || spec.cpus < 0.01 {
        return refuse(format!("cpus of {} make no sense", spec.cpus));
    }
    if !facts.seccomp {
        return refuse("the engine has no seccomp, without which no sandbox is opened".to_owned());
    }
    match &spec.runtime {
        // It would run what it always does, and say nothing.
        Some(runtime) if facts.dialect != Dialect::Docker && *runtime != facts.default_runtime => {
            refuse(format!(
                "Podman takes no runtime from its clients; set {runtime} as the one it uses \
                 (containers.conf), or drop sandbox.runtime"
            ))
        }
        Some(runtime) if !facts.runtimes.contains(runtime) => refuse(format!(
            "the engine has no runtime {runtime}; it has {}",
            facts
                .runtimes
                .iter()
                .cloned()
                .collect::<Vec<_>>()
                .join(", ")
        )),
        _ => Ok(()),
    }
}

/// Only what stands here is inside: nothing of the host's environment is passed on.
/// PATH is the baked image's own.
fn environment(spec: &Spec) -> Vec<String> {
    let mut env: std::collections::BTreeMap<&str, &str> = [
        ("HOME", HOME),
        ("TMPDIR", TMPDIR),
        ("LANG", "C.UTF-8"),
        ("PAGER", "cat"),
        ("GIT_PAGER", "cat"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("DEBIAN_FRONTEND", "noninteractive"),
        ("PIP_NO_INPUT", "1"),
        ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("TERM", "dumb"),
    ]
    .into();
    if matches!(spec.network, Network::Allow(_)) {
        env.extend(VARIABLES);
    }
    env.extend(spec.env.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    env.iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect()
}

fn host(spec: &Spec, facts: &EngineFacts, network: Option<&str>) -> HostConfig {
    let memory = whole(spec.memory);
    HostConfig {
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(security(facts)),
        privileged: Some(false),
        readonly_rootfs: Some(false),
        network_mode: Some(match (&spec.network, network) {
            (Network::Full, Some(name)) => name.to_owned(),
            _ => "none".to_owned(),
        }),
        memory: Some(memory),
        memory_swap: Some(memory),
        nano_cpus: Some(nano_cpus(spec.cpus, facts.cores)),
        pids_limit: Some(whole(spec.pids)),
        ulimits: Some(ulimits(&spec.files)),
        ipc_mode: Some("none".to_owned()),
        cgroupns_mode: facts
            .cgroupns
            .then_some(HostConfigCgroupnsModeEnum::PRIVATE),
        auto_remove: Some(true),
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".to_owned()),
            config: None,
        }),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        tmpfs: Some(HashMap::from([("/tmp".to_owned(), tmp_options(facts))])),
        oom_score_adj: Some(500),
        runtime: spec.runtime.clone(),
        ..HostConfig::default()
    }
}

/// /tmp may hold programs: workspace and home may too, so forbidding it here would stop no one and
/// break tools that build and run there. Where its files cannot be counted, each still costs memory.
fn tmp_options(facts: &EngineFacts) -> String {
    let files = match facts.dialect {
        Dialect::Docker => ",nr_inodes=50k",
        Dialect::Podman { .. } => "",
    };
    format!("rw,exec,nosuid,nodev,size={TMP}{files},mode=1777")
}

fn security(facts: &EngineFacts) -> Vec<String> {
    let mut list = vec!["no-new-privileges:true".to_owned(), facts.dialect.option()];
    if facts.apparmor && facts.dialect == Dialect::Docker {
        list.push("apparmor=docker-default".to_owned());
    }
    list
}

/// No core files; `nproc` is counted for each user of the host and is never set.
fn ulimits(files: &FileLimits) -> Vec<ResourcesUlimits> {
    let (soft, hard) = files.open;
    let mut list = vec![
        ulimit("nofile", whole(soft), whole(hard)),
        ulimit("core", 0, 0),
    ];
    if files.size != u64::MAX {
        list.push(ulimit("fsize", whole(files.size), whole(files.size)));
    }
    list
}

fn ulimit(name: &str, soft: i64, hard: i64) -> ResourcesUlimits {
    ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(soft),
        hard: Some(hard),
    }
}

/// The engine refuses more processors than it has, so a plan's wish is cut to them.
#[expect(
    clippy::cast_possible_truncation,
    reason = "bounded by the cores of a machine"
)]
fn nano_cpus(cpus: f64, cores: u32) -> i64 {
    (cpus.min(f64::from(cores)) * 1e9).round() as i64
}

fn whole(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl Labels {
    /// As the engine keeps them.
    pub fn to_map(&self) -> HashMap<String, String> {
        [
            (MACHINE, &self.machine),
            (STATE, &self.state),
            (RUN, &self.run),
            (SUBTASK, &self.subtask),
        ]
        .map(|(key, value)| (key.to_owned(), value.clone()))
        .into()
    }

    /// None unless all four are there: what is not wholly ours is not ours.
    pub fn from_map(map: &HashMap<String, String>) -> Option<Labels> {
        let get = |key: &str| map.get(key).filter(|value| !value.is_empty()).cloned();
        Some(Labels {
            machine: get(MACHINE)?,
            state: get(STATE)?,
            run: get(RUN)?,
            subtask: get(SUBTASK)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{FileLimits, Image};

    fn spec() -> Spec {
        Spec {
            image: Image {
                id: "sha256:1".into(),
                name: "x".into(),
                describes: String::new(),
            },
            env: [("PAGER".to_owned(), "less".to_owned())].into(),
            cpus: 8.0,
            memory: 1 << 30,
            pids: 64,
            disk: 1 << 30,
            files: FileLimits::default(),
            strict: false,
            history: None,
            network: Network::None,
            runtime: None,
            labels: Labels {
                machine: "m".into(),
                state: "/s".into(),
                run: "r".into(),
                subtask: "t".into(),
            },
        }
    }

    fn facts() -> EngineFacts {
        EngineFacts {
            seccomp: true,
            cgroupns: true,
            runtimes: ["runc".to_owned()].into(),
            cores: 2,
            ..EngineFacts::default()
        }
    }

    #[test]
    fn the_plan_may_change_the_environment_and_nothing_else_gets_in() {
        let env = profile(&spec(), &facts(), None).env.unwrap();
        assert!(env.contains(&"PAGER=less".to_owned()));
        assert_eq!(env.len(), 12);
    }

    #[test]
    fn cpus_are_cut_to_the_machine_and_apparmor_is_asked_only_where_it_is() {
        let host = profile(&spec(), &facts(), None).host_config.unwrap();
        assert_eq!(host.nano_cpus, Some(2_000_000_000));
        assert_eq!(host.security_opt.unwrap().len(), 2);
        let with = EngineFacts {
            apparmor: true,
            ..facts()
        };
        let host = profile(&spec(), &with, None).host_config.unwrap();
        assert!(
            host.security_opt
                .unwrap()
                .contains(&"apparmor=docker-default".to_owned())
        );
    }

    #[test]
    fn podman_is_given_a_file_and_nothing_that_it_does_not_take() {
        let podman = EngineFacts {
            dialect: Dialect::Podman {
                list: "/s/list.json".into(),
            },
            apparmor: true,
            runtimes: ["crun".to_owned(), "runsc".to_owned()].into(),
            default_runtime: "crun".to_owned(),
            ..facts()
        };
        let host = profile(&spec(), &podman, None).host_config.unwrap();
        assert_eq!(
            host.security_opt.unwrap(),
            ["no-new-privileges:true", "seccomp=/s/list.json"]
        );
        let tmp = &host.tmpfs.unwrap()["/tmp"];
        assert!(tmp.contains("size=") && !tmp.contains("nr_inodes"), "{tmp}");
        let under = |runtime: &str| Spec {
            runtime: Some(runtime.to_owned()),
            ..spec()
        };
        assert!(check(&under("crun"), &podman).is_ok() && check(&spec(), &podman).is_ok());
        let told = check(&under("runsc"), &podman).unwrap_err().to_string();
        assert!(told.contains("takes no runtime"), "{told}");
    }

    #[test]
    fn a_network_is_joined_only_when_the_spec_says_full() {
        let net = |spec: &Spec, name| {
            profile(spec, &facts(), name)
                .host_config
                .unwrap()
                .network_mode
        };
        assert_eq!(net(&spec(), Some("n")).as_deref(), Some("none"));
        let full = Spec {
            network: Network::Full,
            ..spec()
        };
        assert_eq!(net(&full, Some("n")).as_deref(), Some("n"));
        assert_eq!(net(&full, None).as_deref(), Some("none"));
    }

    #[test]
    fn bad_limits_and_missing_runtimes_are_refused_by_name() {
        let refused = |spec: Spec| check(&spec, &facts()).unwrap_err().to_string();
        assert!(
            refused(Spec {
                memory: 256 << 20,
                ..spec()
            })
            .contains("320 MiB")
        );
        assert!(
            refused(Spec {
                cpus: f64::NAN,
                ..spec()
            })
            .contains("cpus")
        );
        let text = refused(Spec {
            runtime: Some("runsc".into()),
            ..spec()
        });
        assert!(text.contains("runsc") && text.contains("runc"), "{text}");
        let bare = EngineFacts {
            seccomp: false,
            ..facts()
        };
        assert!(check(&spec(), &bare).is_err());
        assert!(check(&spec(), &facts()).is_ok());
    }

    #[test]
    fn labels_go_there_and_back_and_partly_labelled_is_not_ours() {
        let labels = spec().labels;
        let mut map = labels.to_map();
        assert_eq!(Labels::from_map(&map), Some(labels));
        map.remove(RUN);
        assert_eq!(Labels::from_map(&map), None);
    }
}
