//! What an agent can reach from its sandbox, and how it is told so.

use crate::tools::clip;

/// Characters of the list of hosts that can be reached.
const HOSTS: usize = 4_000;

/// What can be reached from the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reachable {
    Nothing,
    Network,
    Hosts {
        /// As the plan lists them.
        hosts: Vec<String>,
        /// Addresses to ask by, each with the header that is added.
        added: Vec<(String, String)>,
    },
}

impl Reachable {
    /// In the words of a first message.
    pub(super) fn told(&self) -> String {
        let (hosts, added) = match self {
            Reachable::Network => return "There is a network.".to_owned(),
            Reachable::Nothing => {
                return "There is no network: downloads and installs cannot work, do not try them."
                    .to_owned();
            }
            Reachable::Hosts { hosts, added } => (hosts, added),
        };
        let mut text = format!(
            "The network reaches these hosts and nothing else: {} (ports 80 and 443 where none is named). It \
         goes through the proxy that HTTP_PROXY, HTTPS_PROXY and ALL_PROXY name, which speaks HTTP and \
         SOCKS 5; programs that do not use it have no network, and names cannot be looked up. A 403 of the \
         proxy says why; do not try to get around it.",
            clip::middle(&hosts.join(", "), HOSTS)
        );
        for (address, header) in added {
            text.push_str(&format!(
            "\nRequests to {address} get the header {header} on their way: ask by http:// and without one \
             of your own, although the server may speak https."
        ));
        }
        text
    }
}
