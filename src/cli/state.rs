//! What the verbs need of the configuration: the state directory.

use std::path::PathBuf;

use super::STATE;
use super::fault::Fault;

/// `WHARF_HOME`, else `$XDG_STATE_HOME/wharf`, else `~/.local/state/wharf`.
#[expect(
    clippy::disallowed_methods,
    reason = "stands in until config gives the state directory"
)]
pub fn directory() -> Result<PathBuf, Fault> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let state = set("WHARF_HOME")
        .or_else(|| set("XDG_STATE_HOME").map(|dir| dir.join("wharf")))
        .or_else(|| set("HOME").map(|dir| dir.join(".local/state/wharf")))
        .ok_or_else(|| Fault::usage("no state directory").hint("set WHARF_HOME"))?;
    Ok(STATE.get_or_init(|| state).clone())
}
