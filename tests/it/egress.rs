//! Ways out of a sandbox: the toolbox's proxy inside, decisions and connections outside.

#[path = "egress/contained.rs"]
mod contained; // in real containers, and in a whole run
#[path = "egress/hostile.rs"]
mod hostile; // a toolbox that does not keep to the protocol
#[path = "egress/injected.rs"]
mod injected; // credentials that are added outside
#[path = "egress/limits.rs"]
mod limits; // bytes, connections, time, and the end of all
#[path = "egress/listed.rs"]
mod listed; // the key of the plan file, and the values it names
#[path = "egress/reached.rs"]
mod reached; // what is reached, and what is refused
#[path = "egress/servers.rs"]
pub mod servers; // servers on loopback that behave in every way
#[path = "egress/world.rs"]
mod world; // a toolbox as a plain child, clients of its proxy, a resolver of our own
