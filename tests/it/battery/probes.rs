//! Rows that try calls, files and addresses which must be refused, by `probe.py`.

use std::sync::Arc;

use wharf::sandbox::{Network, Sandbox};

use super::{Inside, Trial, trial};

/// Errors by which something is refused, rather than tried and failed.
const REFUSED: [&str; 12] = [
    // Of Wharf's list alone.
    "MARK",
    "EPERM",
    "ENOSYS",
    "EACCES",
    "ENOENT",
    "EROFS",
    "ENETUNREACH",
    "ENONAME",
    "ENODATA",
    "ENXIO",
    "EAFNOSUPPORT",
    "EADDRNOTAVAIL",
];

async fn outcomes(sandbox: &Inside, arguments: &str) -> Vec<(String, String)> {
    let probe = include_str!("../probe.py");
    let line =
        format!("cat > /tmp/probe.py <<'END'\n{probe}\nEND\npython3 /tmp/probe.py {arguments}");
    let (exit, text) = sandbox.run(&line).await;
    assert_eq!(exit, wharf::sandbox::Exit::Code(0), "{text}");
    text.lines()
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, outcome)| (name.to_owned(), outcome.to_owned()))
        .collect()
}

/// What a row finds that is not refused, in any sandbox.
pub(crate) async fn let_through(sandbox: Arc<dyn Sandbox>, row: u8) -> Vec<String> {
    let all = outcomes(&Inside(sandbox), &row.to_string()).await;
    assert!(all.len() > 2, "{all:?}");
    passed(&all, |_| false)
}

fn passed(all: &[(String, String)], fine: impl Fn(&str) -> bool) -> Vec<String> {
    let passed = all
        .iter()
        .filter(|(_, outcome)| !REFUSED.contains(&outcome.as_str()) && !fine(outcome));
    passed
        .map(|(name, outcome)| format!("{name} {outcome}"))
        .collect()
}

/// Nothing but refusals, of which there must be so many.
async fn refused(trial: &Trial, sandbox: &Inside, arguments: &str) -> Vec<(String, String)> {
    let all = outcomes(sandbox, arguments).await;
    let mut numbers = trial
        .row
        .what
        .rsplit(|c: char| !c.is_ascii_digit())
        .filter(|n| !n.is_empty());
    let count: usize = numbers.next().unwrap().parse().unwrap();
    assert_eq!(all.len(), count, "{all:?}");
    // gVisor's own network has nothing but itself, and says so in another word.
    let alone = |outcome: &str| trial.runtime == "runsc" && outcome == "EHOSTUNREACH";
    let seen = match passed(&all, alone).as_slice() {
        [] => "all refused".to_owned(),
        some => format!("not refused: {}", some.join(", ")),
    };
    trial.saw(&seen);
    all
}

async fn probe(number: u8) -> Option<Vec<(String, String)>> {
    let trial = trial(number).await?;
    let sandbox = trial.open().await;
    let all = refused(&trial, &sandbox, &number.to_string()).await;
    sandbox.close().await;
    Some(all)
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn row_14_namespaces() {
    let Some(all) = probe(14).await else { return };
    // New C libraries fall back on this error, and on no other.
    for name in ["clone3", "unheard_of"] {
        assert!(all.contains(&(name.into(), "ENOSYS".into())), "{all:?}");
    }
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn row_15_mounts() {
    probe(15).await;
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn row_16_roots() {
    probe(16).await;
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn row_17_process_1() {
    probe(17).await;
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn row_18_wide_calls() {
    probe(18).await;
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn row_19_keyrings() {
    probe(19).await;
}

#[tokio::test]
async fn row_20_sockets() {
    probe(20).await;
}

#[tokio::test]
async fn row_21_devices() {
    probe(21).await;
}

#[tokio::test]
async fn row_22_proc_and_sys() {
    probe(22).await;
}

#[tokio::test]
async fn row_23_control_groups() {
    probe(23).await;
}

#[tokio::test]
async fn row_24_kernel_secrets() {
    probe(24).await;
}

#[tokio::test]
async fn row_25_networks() {
    probe(25).await;
}

#[tokio::test]
async fn row_26_neighbours() {
    let Some(trial) = trial(26).await else { return };
    let (sandbox, neighbour) = (trial.open().await, trial.neighbour(Network::Full).await);
    let about = trial
        .look
        .inspect_container(&neighbour.0.facts().container, None)
        .await
        .unwrap();
    let networks = about.network_settings.unwrap().networks.unwrap();
    let network = networks.values().next().unwrap();
    let addresses = [&network.gateway, &network.ip_address].map(|one| one.clone().unwrap());
    assert!(addresses.iter().all(|one| !one.is_empty()), "{addresses:?}");
    refused(&trial, &sandbox, &format!("26 {}", addresses.join(" "))).await;
    sandbox.close().await;
    neighbour.close().await;
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn row_36_the_machine() {
    probe(36).await;
}

/// A filter that refuses everything would pass all of the above.
#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn what_programs_need_is_allowed() {
    let Some(trial) = trial(14).await else { return };
    let sandbox = trial.open().await;
    let all = outcomes(&sandbox, "may").await;
    sandbox.close().await;
    assert_eq!(all.len(), 18, "{all:?}");
    // Debian's gVisor has no word for these two.
    let lacks =
        |name: &str| trial.runtime == "runsc" && ["pidfd", "personality_asked"].contains(&name);
    let not: Vec<_> = all
        .iter()
        .filter(|(name, outcome)| outcome != "ALLOWED" && !lacks(name))
        .collect();
    assert!(not.is_empty(), "{not:?}");
}
