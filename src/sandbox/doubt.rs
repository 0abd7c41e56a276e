//! Whether the limits of a container hold: what was asked, beside what is read inside of it and what
//! the engine says.
//!
//! What is read inside decides. Where nothing can be read, the engine's own word may say no, and
//! never yes: an engine that accepts a limit and does nothing is what this is for.

use bollard::models::HostConfig;
use wharf_toolbox::held::{Held, UNLIMITED};

use super::facts::EngineFacts;
use super::filter::Dialect;
use super::{Error, Network, Spec};

/// What a sandbox is limited in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    Memory,
    Swap,
    Cpus,
    Processes,
    OpenFiles,
    FileSize,
    /// User, capabilities, no-new-privileges, the filter of system calls.
    Privileges,
    /// Something that the engine warned of and that has no name here.
    Other,
}

/// Whether a limit holds, where it was not simply seen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    No,
    /// It could not be read.
    Unknown,
    /// It was seen to, although the engine warned that it would not.
    Yes,
}

/// A limit that was not seen to hold, or that the engine warned of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    pub limit: Limit,
    pub holds: Holds,
    /// One sentence for a person.
    pub text: String,
}

impl Limit {
    /// As a plan names it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Swap => "swap",
            Self::Cpus => "cpus",
            Self::Processes => "pids",
            Self::OpenFiles => "nofile",
            Self::FileSize => "fsize",
            Self::Privileges => "privileges",
            Self::Other => "the container",
        }
    }

    /// What a warning of the engine is about. Its texts are nobody's contract, so only words count
    /// that name a limit, the narrower first.
    fn of(warning: &str) -> Self {
        let text = warning.to_ascii_lowercase();
        let words = [
            ("swap", Self::Swap),
            ("memory", Self::Memory),
            ("pids", Self::Processes),
            ("cpu", Self::Cpus),
            ("cfs", Self::Cpus),
        ];
        let found = words.into_iter().find(|(word, _)| text.contains(word));
        found.map_or(Self::Other, |(_, limit)| limit)
    }
}

/// One limit: what was asked, what is seen inside, what the engine says that it set.
struct Line {
    limit: Limit,
    asked: u64,
    inside: Option<u64>,
    engine: Option<u64>,
}

/// Compares a container with its spec. A container whose privileges are seen to be more than a
/// sandbox may have is an error whatever the plan says.
pub(super) fn doubts(
    spec: &Spec,
    facts: &EngineFacts,
    held: &Held,
    warnings: &[String],
    kept: Option<&HostConfig>,
) -> Result<Vec<Doubt>, Error> {
    let mut found: Vec<Doubt> = lines(spec, facts, held, kept)
        .iter()
        .filter_map(|line| line.doubt(facts))
        .collect();
    found.extend(privileges(held, gvisor(spec, facts), &facts.dialect)?);
    found.extend(network(spec, held)?);
    for warning in warnings {
        let limit = Limit::of(warning);
        let said = format!("the engine warned: {}", warning.trim());
        match found.iter_mut().find(|doubt| doubt.limit == limit) {
            Some(doubt) if limit != Limit::Other => doubt.text = format!("{}; {said}", doubt.text),
            _ => found.push(Doubt {
                limit,
                holds: match limit {
                    Limit::Other => Holds::Unknown,
                    _ => Holds::Yes,
                },
                text: match limit {
                    Limit::Other => said,
                    limit => format!("{said} (inside, the limit of {} holds)", limit.word()),
                },
            }),
        }
    }
    Ok(found)
}

/// True when a value that only the engine could tell is missing inside.
pub(super) fn must_ask(held: &Held) -> bool {
    [held.memory, held.swap, held.cpus, held.pids].contains(&None)
}

fn lines(spec: &Spec, facts: &EngineFacts, held: &Held, kept: Option<&HostConfig>) -> [Line; 6] {
    let number = |value: Option<i64>| value.map(|n| u64::try_from(n).unwrap_or(UNLIMITED));
    // An engine writes no limit as zero.
    let limit = |value| number(value).map(|n| if n == 0 { UNLIMITED } else { n });
    let kept_memory = kept.and_then(|kept| limit(kept.memory));
    let both = kept.and_then(|kept| limit(kept.memory_swap));
    let line = |limit, asked, inside, engine| Line {
        limit,
        asked,
        inside,
        engine,
    };
    [
        line(Limit::Memory, spec.memory, held.memory, kept_memory),
        line(
            Limit::Swap,
            0,
            held.swap,
            both.zip(kept_memory).map(|(both, memory)| {
                if both == UNLIMITED {
                    both
                } else {
                    both.saturating_sub(memory)
                }
            }),
        ),
        line(
            Limit::Cpus,
            thousandths(spec.cpus.min(f64::from(facts.cores))),
            held.cpus,
            kept.and_then(|kept| limit(kept.nano_cpus)).map(|nano| {
                if nano == UNLIMITED {
                    nano
                } else {
                    nano / 1_000_000
                }
            }),
        ),
        line(
            Limit::Processes,
            spec.pids,
            held.pids,
            kept.and_then(|kept| limit(kept.pids_limit)),
        ),
        line(Limit::OpenFiles, spec.files.open.1, held.open, None),
        line(Limit::FileSize, spec.files.size, held.file, None),
    ]
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounded by the cores of a machine, and checked to be positive"
)]
fn thousandths(cpus: f64) -> u64 {
    // An engine rounds to its own steps.
    (cpus * 1000.0).ceil() as u64 + 1
}

impl Line {
    /// None when the limit is seen to hold inside.
    fn doubt(&self, facts: &EngineFacts) -> Option<Doubt> {
        let (limit, word) = (self.limit, self.limit.word());
        let asked = self.shown(self.asked);
        let (holds, text) = match (self.inside, self.engine) {
            (Some(inside), _) if inside <= self.asked => return None,
            (Some(inside), _) => (
                Holds::No,
                format!(
                    "the engine does not hold the limit {word} of {asked}: inside it is {}",
                    self.shown(inside)
                ),
            ),
            (None, _) if facts.unable.contains(&limit) => (
                Holds::No,
                format!("the engine says that it cannot limit {word} (asked: {asked})"),
            ),
            (None, Some(engine)) if engine > self.asked => (
                Holds::No,
                format!(
                    "the engine does not hold the limit {word} of {asked}: it set {}",
                    self.shown(engine)
                ),
            ),
            (None, _) => (
                Holds::Unknown,
                format!("whether the limit {word} of {asked} holds could not be read"),
            ),
        };
        Some(Doubt { limit, holds, text })
    }

    fn shown(&self, value: u64) -> String {
        match (self.limit, value) {
            (_, UNLIMITED) => "none".to_owned(),
            (Limit::Memory | Limit::Swap | Limit::FileSize, bytes) => {
                format!("{} MiB", bytes >> 20)
            }
            (Limit::Cpus, share) => format!("{:.2}", share as f64 / 1000.0),
            (_, count) => count.to_string(),
        }
    }
}

fn gvisor(spec: &Spec, facts: &EngineFacts) -> bool {
    let runtime = spec.runtime.as_deref().unwrap_or(&facts.default_runtime);
    runtime.contains("runsc")
}

/// A way out that nobody asked for is an error whatever the plan says, as a privilege is.
fn network(spec: &Spec, held: &Held) -> Result<Option<Doubt>, Error> {
    match (&spec.network, held.network) {
        (Network::Full, _) | (_, Some(0)) => Ok(None),
        (_, Some(_)) => Err(Error::Engine {
            operation: "checking the container's network",
            reason: "the engine gave it a network, although none was asked for".to_owned(),
        }),
        (_, None) => Ok(Some(Doubt {
            limit: Limit::Other,
            holds: Holds::Unknown,
            text: "whether it has no network could not be read".to_owned(),
        })),
    }
}

/// gVisor answers system calls itself and filters none by the profile.
fn privileges(held: &Held, gvisor: bool, dialect: &Dialect) -> Result<Option<Doubt>, Error> {
    let excess = match held {
        Held { user: Some(0), .. } => Some("process 1 runs as root"),
        Held {
            capabilities: Some(1..),
            ..
        } => Some("capabilities were not dropped"),
        Held {
            no_new_privileges: Some(0),
            ..
        } => Some("no-new-privileges is not set"),
        Held {
            seccomp: Some(0 | 1),
            ..
        } if !gvisor => Some("system calls are not filtered"),
        Held {
            listed: Some(0), ..
        } if !gvisor => Some("system calls are filtered by another list than Wharf's"),
        // What it was given is only the name of a file.
        Held { listed: None, .. } if !gvisor && *dialect != Dialect::Docker => {
            Some("system calls are not seen to be filtered by Wharf's list")
        }
        _ => None,
    };
    let refuse = |reason: String| {
        Err(Error::Engine {
            operation: "checking the container's privileges",
            reason,
        })
    };
    if let Some(excess) = excess {
        return refuse(format!("{excess}, although it was asked for"));
    }
    // Where commands can take up its streams, the frames are sealed; a key that they could read would be none.
    if held.streams != Some(0) && held.traced == Some(1) {
        return refuse(
            "under this runtime commands can write in the name of process 1 and look into it, so nothing \
             it says could be trusted; use another runtime, or a newer version of it"
                .to_owned(),
        );
    }
    if held.streams == Some(1) && held.traced.is_none() {
        return refuse(
            "under this runtime commands can write in the name of process 1, and whether they can look \
             into it could not be told; use another runtime, or a newer version of it"
                .to_owned(),
        );
    }
    let read = [
        held.user,
        held.capabilities,
        held.no_new_privileges,
        held.streams,
    ];
    let filter = held.seccomp.zip(held.listed);
    let unread = read.contains(&None) || (!gvisor && filter.is_none());
    Ok(unread.then(|| Doubt {
        limit: Limit::Privileges,
        holds: Holds::Unknown,
        text: "which privileges process 1 has could not be read".to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{FileLimits, Image, Labels};

    fn spec() -> Spec {
        let text = String::new;
        Spec {
            image: Image {
                id: text(),
                name: text(),
                describes: text(),
            },
            env: std::collections::BTreeMap::new(),
            cpus: 8.0,
            memory: 512 << 20,
            pids: 128,
            disk: 1 << 30,
            files: FileLimits::default(),
            strict: true,
            history: None,
            network: Network::None,
            runtime: None,
            labels: Labels {
                machine: text(),
                state: text(),
                run: text(),
                subtask: text(),
            },
        }
    }

    fn facts() -> EngineFacts {
        EngineFacts {
            cores: 2,
            default_runtime: "runc".into(),
            ..EngineFacts::default()
        }
    }

    /// What is read in a container that holds all of `spec`.
    fn whole() -> Held {
        Held {
            memory: Some(512 << 20),
            swap: Some(0),
            cpus: Some(2000),
            pids: Some(128),
            open: Some(4096),
            file: Some(4 << 30),
            user: Some(1000),
            capabilities: Some(0),
            no_new_privileges: Some(1),
            streams: Some(0),
            traced: Some(0),
            seccomp: Some(2),
            listed: Some(1),
            network: Some(0),
        }
    }

    fn seen(held: &Held, facts: &EngineFacts) -> Vec<(Limit, Holds)> {
        let found = doubts(&spec(), facts, held, &[], None).unwrap();
        found
            .iter()
            .map(|doubt| (doubt.limit, doubt.holds))
            .collect()
    }

    #[test]
    fn a_container_that_holds_all_is_not_doubted_and_stricter_is_no_fault() {
        assert_eq!(seen(&whole(), &facts()), []);
        let stricter = Held {
            memory: Some(1 << 20),
            pids: Some(3),
            ..whole()
        };
        assert_eq!(seen(&stricter, &facts()), []);
    }

    #[test]
    fn each_limit_that_is_looser_inside_is_named() {
        for (limit, held) in [
            (
                Limit::Memory,
                Held {
                    memory: Some(UNLIMITED),
                    ..whole()
                },
            ),
            (
                Limit::Swap,
                Held {
                    swap: Some(512 << 20),
                    ..whole()
                },
            ),
            (
                Limit::Cpus,
                Held {
                    cpus: Some(UNLIMITED),
                    ..whole()
                },
            ),
            (
                Limit::Processes,
                Held {
                    pids: Some(129),
                    ..whole()
                },
            ),
            (
                Limit::OpenFiles,
                Held {
                    open: Some(1 << 20),
                    ..whole()
                },
            ),
            (
                Limit::FileSize,
                Held {
                    file: Some(UNLIMITED),
                    ..whole()
                },
            ),
        ] {
            assert_eq!(seen(&held, &facts()), [(limit, Holds::No)]);
            let text = &doubts(&spec(), &facts(), &held, &[], None).unwrap()[0].text;
            assert!(text.contains(limit.word()), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_never_taken_for_held() {
        let all = [
            Limit::Memory,
            Limit::Swap,
            Limit::Cpus,
            Limit::Processes,
            Limit::OpenFiles,
            Limit::FileSize,
            Limit::Privileges,
            Limit::Other,
        ];
        assert_eq!(
            seen(&Held::default(), &facts()),
            all.map(|limit| (limit, Holds::Unknown))
        );
        assert!(must_ask(&Held::default()) && !must_ask(&whole()));
        // The engine's own word may make it a no, and never a yes.
        let unread = Held {
            memory: None,
            pids: None,
            ..whole()
        };
        let without = EngineFacts {
            unable: [Limit::Memory].into(),
            ..facts()
        };
        let kept = |memory, pids| HostConfig {
            memory: Some(memory),
            pids_limit: Some(pids),
            ..HostConfig::default()
        };
        let judged = |facts: &EngineFacts, kept: &HostConfig| {
            let found = doubts(&spec(), facts, &unread, &[], Some(kept)).unwrap();
            found.iter().map(|doubt| doubt.holds).collect::<Vec<_>>()
        };
        assert_eq!(judged(&facts(), &kept(512 << 20, 128)), [Holds::Unknown; 2]);
        assert_eq!(judged(&facts(), &kept(0, 128)), [Holds::No, Holds::Unknown]);
        assert_eq!(judged(&without, &kept(512 << 20, 0)), [Holds::No; 2]);
    }

    #[test]
    fn a_warning_of_the_engine_joins_what_it_is_about() {
        let warnings = [
            "Your kernel does not support memory limit capabilities. Limitation discarded.",
            "Your kernel does not support swap limit capabilities.",
            "Something else.",
        ]
        .map(str::to_owned);
        let loose = Held {
            memory: Some(UNLIMITED),
            ..whole()
        };
        let found = doubts(&spec(), &facts(), &loose, &warnings, None).unwrap();
        let seen: Vec<_> = found
            .iter()
            .map(|doubt| (doubt.limit, doubt.holds))
            .collect();
        assert_eq!(
            seen,
            [
                (Limit::Memory, Holds::No),
                (Limit::Swap, Holds::Yes),
                (Limit::Other, Holds::Unknown),
            ]
        );
        assert!(
            found[0].text.contains("Limitation discarded"),
            "{}",
            found[0].text
        );
    }

    #[test]
    fn more_privileges_than_a_sandbox_may_have_are_refused_and_gvisor_filters_by_itself() {
        let error = |held: Held| {
            doubts(&spec(), &facts(), &held, &[], None)
                .unwrap_err()
                .to_string()
        };
        assert!(
            error(Held {
                user: Some(0),
                ..whole()
            })
            .contains("root")
        );
        assert!(
            error(Held {
                capabilities: Some(1),
                ..whole()
            })
            .contains("capabilities")
        );
        assert!(
            error(Held {
                no_new_privileges: Some(0),
                ..whole()
            })
            .contains("no-new-privileges")
        );
        // Frames are sealed there, which is worth as much as the key is hidden.
        let shared = |streams, traced| Held {
            streams,
            traced,
            ..whole()
        };
        for (streams, traced) in [(Some(1), Some(1)), (Some(1), None), (None, Some(1))] {
            let told = error(shared(streams, traced));
            assert!(told.contains("in the name of process 1"), "{told}");
        }
        assert_eq!(seen(&shared(Some(1), Some(0)), &facts()), []);
        assert_eq!(seen(&shared(Some(0), Some(1)), &facts()), []);
        assert_eq!(seen(&shared(Some(0), None), &facts()), []);
        let unfiltered = Held {
            seccomp: Some(0),
            listed: Some(0),
            ..whole()
        };
        assert!(error(unfiltered.clone()).contains("filtered"));
        let gvisor = EngineFacts {
            default_runtime: "runsc".into(),
            ..facts()
        };
        assert_eq!(seen(&unfiltered, &gvisor), []);
    }

    #[test]
    fn a_network_that_nobody_asked_for_is_refused() {
        let held = |network| Held { network, ..whole() };
        let told = doubts(&spec(), &facts(), &held(Some(1)), &[], None).unwrap_err();
        assert!(told.to_string().contains("none was asked for"), "{told}");
        assert_eq!(
            seen(&held(None), &facts()),
            [(Limit::Other, Holds::Unknown)]
        );
        let full = Spec {
            network: Network::Full,
            ..spec()
        };
        for network in [Some(1), Some(0), None] {
            let found = doubts(&full, &facts(), &held(network), &[], None);
            assert_eq!(found.unwrap(), []);
        }
    }

    #[test]
    fn a_list_that_is_not_wharfs_is_refused_and_podman_must_show_that_it_is() {
        let podman = EngineFacts {
            dialect: Dialect::Podman {
                list: "/s/list.json".into(),
            },
            ..facts()
        };
        let held = |listed| Held { listed, ..whole() };
        let found = |facts: &EngineFacts, listed| {
            let found = doubts(&spec(), facts, &held(listed), &[], None);
            found
                .map(|found| found.len())
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            (found(&facts(), Some(1)), found(&podman, Some(1))),
            (Ok(0), Ok(0))
        );
        for engine in [&facts(), &podman] {
            let told = found(engine, Some(0)).unwrap_err();
            assert!(told.contains("another list"), "{told}");
        }
        let told = found(&podman, None).unwrap_err();
        assert!(told.contains("not seen"), "{told}");
        assert_eq!(
            seen(&held(None), &facts()),
            [(Limit::Privileges, Holds::Unknown)]
        );
        let gvisor = EngineFacts {
            default_runtime: "runsc".into(),
            ..podman
        };
        assert_eq!(found(&gvisor, Some(0)), Ok(0));
    }
}
