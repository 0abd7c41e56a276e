//! The control group, the privileges and the routes of process 1, read from /sys and /proc.

use rustix::process::{Resource, getrlimit};
use wharf_toolbox::held::{Held, UNLIMITED};

const GROUP: &str = "/sys/fs/cgroup";
/// Version 1 writes no limit as the largest multiple of a page that a signed number can hold.
const NONE_IN_V1: u64 = 1 << 62;

/// The limits that hold now, as far as they can be read.
pub fn held() -> Held {
    let mut held = read(&|path| std::fs::read_to_string(path).ok());
    let most = |resource| Some(getrlimit(resource).maximum.unwrap_or(UNLIMITED));
    held.open = most(Resource::Nofile);
    held.file = most(Resource::Fsize);
    held
}

fn read(file: &dyn Fn(&str) -> Option<String>) -> Held {
    let group = |path: &str| file(&format!("{GROUP}/{path}"));
    let number = |path: &str| group(path).as_deref().and_then(amount);
    let memory = number("memory.max").or_else(|| number("memory/memory.limit_in_bytes"));
    let status = file("/proc/self/status").unwrap_or_default();
    let line = |name: &str| field(&status, name);
    let hex = |name: &str| u64::from_str_radix(line(name)?, 16).ok();
    Held {
        memory,
        swap: swap(file, &number, memory),
        cpus: group("cpu.max")
            .as_deref()
            .and_then(share)
            .or_else(|| share_in_v1(&group)),
        pids: number("pids.max").or_else(|| number("pids/pids.max")),
        user: line("Uid:").and_then(|ids| ids.split_whitespace().flat_map(str::parse).min()),
        capabilities: hex("CapBnd:").and_then(|may| Some(may | hex("CapEff:")?)),
        no_new_privileges: line("NoNewPrivs:").and_then(|flag| flag.parse().ok()),
        seccomp: line("Seccomp:").and_then(|mode| mode.parse().ok()),
        network: routes(file),
        ..Held::default()
    }
}

/// Whether a route leads over anything but loopback. A device alone leads nowhere: kernels put some into
/// every network that have neither address nor route.
fn routes(file: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let old = file("/proc/self/net/route")?;
    // A kernel without version 6 has no such file.
    let new = file("/proc/self/net/ipv6_route").unwrap_or_default();
    let old = old
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().next());
    let new = new.lines().map(|line| line.split_whitespace().last());
    let out = |device: Option<&str>| device.is_some_and(|device| device != "lo");
    Some(u64::from(old.chain(new).any(out)))
}

/// Where the machine has no swap, none can be used whatever the group says.
fn swap(
    file: &dyn Fn(&str) -> Option<String>,
    number: &dyn Fn(&str) -> Option<u64>,
    memory: Option<u64>,
) -> Option<u64> {
    let machine = file("/proc/meminfo")?;
    if field(&machine, "SwapTotal:").is_some_and(|total| total.starts_with("0 ")) {
        return Some(0);
    }
    number("memory.swap.max").or_else(|| {
        let both = number("memory/memory.memsw.limit_in_bytes")?;
        match both {
            UNLIMITED => Some(UNLIMITED),
            both => Some(both.saturating_sub(memory?)),
        }
    })
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

fn amount(text: &str) -> Option<u64> {
    match text.trim() {
        "max" | "-1" => Some(UNLIMITED),
        number => number
            .parse()
            .ok()
            .map(|n| if n >= NONE_IN_V1 { UNLIMITED } else { n }),
    }
}

/// Version 2: microseconds of each period, and the period.
fn share(text: &str) -> Option<u64> {
    let (quota, period) = text.trim().split_once(' ')?;
    thousandths(amount(quota)?, period.parse().ok()?)
}

fn share_in_v1(group: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let from = |folder: &str| {
        let quota = amount(&group(&format!("{folder}/cpu.cfs_quota_us"))?)?;
        let period = amount(&group(&format!("{folder}/cpu.cfs_period_us"))?)?;
        thousandths(quota, period)
    };
    from("cpu").or_else(|| from("cpu,cpuacct"))
}

fn thousandths(quota: u64, period: u64) -> Option<u64> {
    match quota {
        UNLIMITED => Some(UNLIMITED),
        quota => quota.checked_mul(1000)?.checked_div(period),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\ttoolbox\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n\
                          CapBnd:\t0000000000000401\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";

    fn of(files: &[(&str, &str)]) -> Held {
        read(&|path| {
            let found = files.iter().find(|(name, _)| path.ends_with(name));
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn version_2_is_read() {
        let held = of(&[
            ("/cgroup/memory.max", "335544320\n"),
            ("/cgroup/memory.swap.max", "0\n"),
            ("/cgroup/cpu.max", "50000 100000\n"),
            ("/cgroup/pids.max", "max\n"),
            ("/proc/meminfo", "MemTotal: 1 kB\nSwapTotal:  2097148 kB\n"),
            ("/proc/self/status", STATUS),
        ]);
        assert_eq!((held.memory, held.swap), (Some(335_544_320), Some(0)));
        assert_eq!((held.cpus, held.pids), (Some(500), Some(UNLIMITED)));
        assert_eq!((held.user, held.capabilities), (Some(1000), Some(0x401)));
        assert_eq!((held.no_new_privileges, held.seccomp), (Some(1), Some(2)));
    }

    #[test]
    fn version_1_is_read_and_knows_its_word_for_no_limit() {
        let swapping = ("/proc/meminfo", "SwapTotal: 8 kB\n");
        let held = of(&[
            ("/memory/memory.limit_in_bytes", "335544320\n"),
            ("/memory/memory.memsw.limit_in_bytes", "671088640\n"),
            ("/cpu/cpu.cfs_quota_us", "200000\n"),
            ("/cpu/cpu.cfs_period_us", "100000\n"),
            ("/pids/pids.max", "128\n"),
            swapping,
        ]);
        assert_eq!(
            (held.memory, held.swap),
            (Some(335_544_320), Some(335_544_320))
        );
        assert_eq!((held.cpus, held.pids), (Some(2000), Some(128)));
        let held = of(&[
            ("/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            (
                "/memory/memory.memsw.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            swapping,
        ]);
        assert_eq!((held.memory, held.swap), (Some(UNLIMITED), Some(UNLIMITED)));
        assert_eq!(held.cpus, Some(UNLIMITED));
    }

    #[test]
    fn a_route_over_anything_but_loopback_is_a_network() {
        const HEAD: &str = "Iface\tDestination\tGateway\tFlags\n";
        let default = format!("{HEAD}eth0\t00000000\t010011AC\t0003\n");
        let none = "0 00 0 00 0 ffffffff 00000001 00000000 00200200 lo\n";
        let some = format!("{none}fe80 40 0 00 0 00000100 00000001 00000000 00000001 eth0\n");
        let seen =
            |old: &str, new: &str| of(&[("/net/route", old), ("/net/ipv6_route", new)]).network;
        assert_eq!((seen(HEAD, none), seen(HEAD, "")), (Some(0), Some(0)));
        assert_eq!(
            (seen(&default, none), seen(HEAD, &some)),
            (Some(1), Some(1))
        );
        assert_eq!(of(&[("/net/route", HEAD)]).network, Some(0));
        assert_eq!(of(&[("/net/ipv6_route", &some)]).network, None);
    }

    #[test]
    fn what_cannot_be_read_is_absent_and_a_machine_without_swap_uses_none() {
        assert_eq!(of(&[]), Held::default());
        assert_eq!(of(&[("/proc/meminfo", "SwapTotal:  0 kB\n")]).swap, Some(0));
        assert_eq!(of(&[("/cgroup/memory.max", "lots\n")]).memory, None);
    }
}
