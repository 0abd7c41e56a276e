//! What an engine says of itself, as far as the rest depends on it.

use std::collections::BTreeSet;

use bollard::models::{SystemInfo, SystemVersion};

use super::Limit;
use super::filter::Dialect;

/// What the engine can do, as far as the profile depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineFacts {
    pub dialect: Dialect,
    pub apparmor: bool,
    pub seccomp: bool,
    /// The engine understands private cgroup namespaces (API 1.41).
    pub cgroupns: bool,
    pub runtimes: BTreeSet<String>,
    pub default_runtime: String,
    /// As images name it: `amd64`, `arm64`.
    pub arch: String,
    pub cores: u32,
    /// Bytes of memory of the engine's machine; None when it does not say.
    pub memory: Option<u64>,
    /// Limits that the engine says it cannot set.
    pub unable: BTreeSet<Limit>,
}

/// What `doctor` shows of the engine.
#[derive(Clone, Debug, Default)]
pub struct Info {
    /// `Docker` or `Podman`.
    pub product: &'static str,
    pub address: String,
    /// By certificates.
    pub encrypted: bool,
    /// Why it was looked for there.
    pub found_by: String,
    /// Places that were tried before and did not answer, each with its reason, in order.
    pub passed_over: Vec<String>,
    pub version: String,
    pub api: String,
    pub cgroup: String,
    pub storage: String,
    pub kernel: String,
    pub facts: EngineFacts,
}

/// What the engine's answers say; the address, how it was found and its dialect are the caller's to fill in.
pub(super) fn describe(version: SystemVersion, info: SystemInfo) -> Info {
    let product = product(&version);
    let api = version.api_version.unwrap_or_default();
    let has = |word: &str| {
        let options = info.security_options.as_deref().unwrap_or_default();
        options.iter().any(|option| option.contains(word))
    };
    let facts = EngineFacts {
        dialect: Dialect::default(),
        apparmor: has("name=apparmor"),
        seccomp: has("name=seccomp"),
        cgroupns: at_least(&api, (1, 41)),
        runtimes: info
            .runtimes
            .iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect(),
        default_runtime: info.default_runtime.clone().unwrap_or_default(),
        arch: image_arch(info.architecture.as_deref().unwrap_or_default()).to_owned(),
        cores: info
            .ncpu
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or(1)
            .max(1),
        memory: info
            .mem_total
            .and_then(|bytes| u64::try_from(bytes).ok())
            .filter(|&bytes| bytes > 0),
        unable: unable(&info),
    };
    Info {
        product,
        address: String::new(),
        encrypted: false,
        found_by: String::new(),
        passed_over: Vec::new(),
        version: info.server_version.clone().unwrap_or_default(),
        api,
        cgroup: info
            .cgroup_version
            .map(|v| v.to_string())
            .unwrap_or_default(),
        storage: info.driver.clone().unwrap_or_default(),
        kernel: info.kernel_version.clone().unwrap_or_default(),
        facts,
    }
}

/// Podman speaks Docker's language and names itself among its components.
fn product(version: &SystemVersion) -> &'static str {
    let components = version.components.iter().flatten();
    match components
        .into_iter()
        .any(|component| component.name.contains("Podman"))
    {
        true => "Podman",
        false => "Docker",
    }
}

/// Silence about a limit is no refusal: what holds is read inside of each sandbox.
fn unable(info: &SystemInfo) -> BTreeSet<Limit> {
    let flags = [
        (Limit::Memory, info.memory_limit),
        (Limit::Swap, info.swap_limit),
        (Limit::Cpus, info.cpu_cfs_quota),
        (Limit::Processes, info.pids_limit),
    ];
    let no = flags.into_iter().filter(|(_, flag)| *flag == Some(false));
    no.map(|(limit, _)| limit).collect()
}

fn at_least(api: &str, wanted: (u32, u32)) -> bool {
    let mut parts = api.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= wanted
}

/// The name images use for an architecture that `uname -m` or rustc names.
pub(super) fn image_arch(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "armv7l" | "armv6l" => "arm",
        "i386" | "i686" | "x86" => "386",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert!(at_least("1.41", (1, 41)) && at_least("1.100", (1, 41)));
        assert!(!at_least("1.9", (1, 41)) && !at_least("", (1, 41)));
    }

    #[test]
    fn podman_is_known_by_its_components() {
        let of = |name: &str| {
            let text = serde_json::json!({"Components": [{"Name": name, "Version": "4.3.1"}]});
            describe(serde_json::from_value(text).unwrap(), SystemInfo::default()).product
        };
        assert_eq!((of("Podman Engine"), of("Engine")), ("Podman", "Docker"));
    }
}
