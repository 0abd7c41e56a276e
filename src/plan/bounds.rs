//! The limits of a sandbox: their defaults, their keys, and the sums that cannot work.

use super::check::{amount, count, size};
use super::error::Error;
use super::yaml::At;
use super::{Image, Network, OpenFiles, Pull, Sandbox, raw, units};

/// What /tmp holds at least, and what must be left beside it. Bytes.
const TMP: u64 = 256 << 20;
const BESIDE_TMP: u64 = 64 << 20;
/// The least disk that lets an agent write anything useful. Bytes.
const LEAST_DISK: u64 = 16 << 20;
/// Below this the text of one long output could not be kept as a file. Bytes.
const LEAST_FILE: u64 = 16 << 20;
/// Files that home, /tmp and a small workspace hold before anybody works.
const LEAST_INODES: u64 = 1000;
/// Process 1 itself is about a dozen threads, a command with a pipe about half a dozen processes.
const LEAST_PIDS: u64 = 32;
/// Process 1 holds three pipes for each command that runs.
const LEAST_OPEN: u64 = 64;
/// More than this the kernel lets nobody open (`fs.nr_open`).
const MOST_OPEN: u64 = 1 << 20;
/// gVisor's own threads on the host count too; with fewer, no command starts.
const GVISOR_PIDS: u64 = 1024;

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            image: Image::Named("wharf/python".to_owned()),
            pull: Pull::Missing,
            setup: Vec::new(),
            env: std::collections::BTreeMap::new(),
            cpus: 2.0,
            memory: 2 << 30,
            pids: 256,
            disk: 4 << 30,
            inodes: 500_000,
            fsize: None,
            nofile: OpenFiles {
                soft: 1024,
                hard: 4096,
            },
            network: Network::None,
            runtime: None,
            warm: 0,
            strict: false,
        }
    }
}

/// Lays the limits of a `sandbox` map over what stands so far, and checks the sums.
pub(super) fn lay(at: &At<'_>, layer: &raw::Sandbox, sandbox: &mut Sandbox) -> Result<(), Error> {
    if let Some(cpus) = layer.cpus {
        sandbox.cpus = amount(&at.key("cpus"), cpus, 0.01)?;
    }
    let memory = layer.memory.as_ref();
    size(&at.key("memory"), memory, &mut sandbox.memory)?;
    size(&at.key("disk"), layer.disk.as_ref(), &mut sandbox.disk)?;
    let inodes = &mut sandbox.inodes;
    count(&at.key("inodes"), layer.inodes, LEAST_INODES, inodes)?;
    if layer.fsize.is_some() {
        let mut bytes = 0;
        size(&at.key("fsize"), layer.fsize.as_ref(), &mut bytes)?;
        sandbox.fsize = Some(bytes);
    }
    if layer.nofile.is_some() {
        let mut open = 0;
        count(&at.key("nofile"), layer.nofile, LEAST_OPEN, &mut open)?;
        sandbox.nofile = OpenFiles {
            soft: open,
            hard: open,
        };
    }
    sandbox.strict = layer.strict.unwrap_or(sandbox.strict);
    pids(at, layer, sandbox)?;
    sums(at, sandbox)?;
    file_within_disk(at, layer, sandbox)
}

/// Where no `fsize` was written it follows `disk`; one that was written and cannot be reached is a slip.
fn file_within_disk(at: &At<'_>, layer: &raw::Sandbox, sandbox: &Sandbox) -> Result<(), Error> {
    let Some(bytes) = sandbox.fsize.filter(|bytes| *bytes > sandbox.disk) else {
        return Ok(());
    };
    let (fsize, disk) = (at.key("fsize"), at.key("disk"));
    let (most, largest) = (units::show_size(sandbox.disk), units::show_size(bytes));
    let message =
        format!("`{fsize}` is {largest}, more than `{disk}` lets all files hold ({most})");
    let hint = format!("write `fsize: {most}` or less, or raise `disk`");
    // A role that lowers `disk` alone has no `fsize` of its own to point at.
    let wrong = if layer.fsize.is_some() { fsize } else { disk };
    Err(wrong.value_fault(message, hint))
}

/// Under gVisor the default is what gVisor needs.
fn pids(at: &At<'_>, layer: &raw::Sandbox, sandbox: &mut Sandbox) -> Result<(), Error> {
    count(&at.key("pids"), layer.pids, LEAST_PIDS, &mut sandbox.pids)?;
    let runtime = sandbox.runtime.as_deref().unwrap_or_default();
    if !runtime.contains("runsc") || sandbox.pids >= GVISOR_PIDS {
        return Ok(());
    }
    if layer.pids.is_none() && sandbox.pids == Sandbox::default().pids {
        sandbox.pids = GVISOR_PIDS;
        return Ok(());
    }
    let at = at.key("pids");
    let message = format!(
        "`{at}` is {}, too few for the runtime `{runtime}`: its own threads count too",
        sandbox.pids
    );
    Err(at.value_fault(message, format!("write {GVISOR_PIDS} or more")))
}

fn sums(at: &At<'_>, sandbox: &Sandbox) -> Result<(), Error> {
    let least = TMP + BESIDE_TMP;
    if sandbox.memory < least {
        let at = at.key("memory");
        let message = format!(
            "`{at}` is {}, too little: /tmp alone may fill {} of it and {} must be left",
            units::show_size(sandbox.memory),
            units::show_size(TMP),
            units::show_size(BESIDE_TMP),
        );
        return Err(at.value_fault(
            message,
            format!("write `{}` or more", units::show_size(least)),
        ));
    }
    if sandbox.disk < LEAST_DISK {
        let at = at.key("disk");
        let message = format!(
            "`{at}` is {}, too little to work in",
            units::show_size(sandbox.disk)
        );
        return Err(at.value_fault(message, "write `16m` or more"));
    }
    if let Some(bytes) = sandbox.fsize.filter(|bytes| *bytes < LEAST_FILE) {
        let at = at.key("fsize");
        let message = format!(
            "`{at}` is {}, too little: the text of one long output may be {}",
            units::show_size(bytes),
            units::show_size(LEAST_FILE),
        );
        return Err(at.value_fault(message, "write `16m` or more"));
    }
    if sandbox.nofile.hard > MOST_OPEN {
        let at = at.key("nofile");
        let message = format!("`{at}` is more than the kernel lets a process open");
        return Err(at.value_fault(message, format!("write {MOST_OPEN} or less")));
    }
    Ok(())
}
