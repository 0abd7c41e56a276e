//! One test binary; each module is named by the behaviour it holds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at its first surprise"
)]

// What several tests use.
mod again; // a recorded run put back to where it stood, and resumed
mod around; // an engine around another one, that a test looks at
mod counted; // the sandbox in memory with a count of what is open
mod faulty; // an engine through which things go wrong
mod operator; // an operator's home and repository, and the real program run there
mod otlp; // a receiver of spans on loopback, HTTP and gRPC
mod proxy; // changes what goes to and from the engine
mod server; // a scripted model server on loopback that checks every request
mod world; // a workspace, a state directory and a run in them

// How the source is laid out: rooms, owners, lengths, docs.
mod layers;

// Plan files: shipped ones, broken ones, the DAG.
mod plans;

// Which source of a setting wins.
mod config;

// What a model's wire survives.
mod dialects; // what servers differ in, learnt and known
mod faults; // every fault, over every wire, for every agent
mod messages; // Anthropic's protocol
mod real; // servers named by the environment, ignored without
mod roads; // proxies and certificates on the way to a server
mod spent; // what attempts cost that came to no answer
mod wire; // chat completions

// One agent: the tool contract; every way to go wrong, and to end.
mod agent;
mod compaction; // conversations that are summed up, and what was sent
mod consent; // who lets a call run: modes, rules, hooks, approvers, the person
mod tools;

// Trees, snapshots, merges, delivery, apply.
mod nasty;
mod workspace; // workspaces that break what is not careful, and whole runs on them

// Sandboxes: process 1 as a plain child on this machine, then on a real engine.
mod battery; // abuse from inside
mod broken; // what a broken one means for everybody
mod built; // images of every form, and those that are built
mod container; // profile, lifetime, sweep
mod egress; // ways out of a sandbox
mod engine_faults; // an engine that fails in the middle
mod engines; // which one is taken, and how it is reached
mod hostile; // a process 1 that lies
mod images; // what they are made of
mod lifecycle; // their ends, who removes what, layers, what is kept warm
mod limits; // refused, held, or doubted aloud
mod podman; // another engine, which reads the list of system calls from a file; opt-in
mod processes; // what becomes of them and of their output
mod rootless; // Docker as an ordinary user; opt-in
mod second; // a daemon of our own: restarts, TLS, gVisor; opt-in
mod toolbox;

// Whole runs over the in-memory sandbox.
mod crash; // killed at every line of the journal
mod crowd; // many subtasks that end together, or all fail; what a result names
mod damaged; // journals that are not as they were written, and every verb on them
mod delivery; // where a result goes when it cannot go where it should
mod durable; // the order in which things reach the disk
mod full; // a disk without room, in a mount of its own
mod merging; // conflicts, their mergers, and what these choose
mod next; // what a result says to type next does what it says
mod protect; // files that nobody may change, and checks that somebody did
mod record; // what is made from a journal alone, and what must not be in it
mod replay; // again from what was recorded
mod reports; // what agents are told, and what is known of one that hands in nothing
mod resume; // what goes on and how, what is refused and what is said
mod retold; // a trace from the journal alone, held against the one sent live
mod runs;
mod shell; // a person at what a subtask left
mod verdicts; // what passes, what does not, rounds, votes, cheats

// Whole runs through the real program on a real engine.
mod docker_runs; // what they make, and what they leave alone
mod panicked; // a fault of our own in the middle of a run
mod phases; // Ctrl-C in each phase of a run, and going on from there
mod revived; // killed and resumed
mod stops; // signals, kills, and what dead runs leave
mod traces; // what a tracing backend sees of them
mod within; // the program itself in a container

// What a tracing backend sees.
mod spans;

// What a person sees: help, refusals, exit codes, what is printed where.
mod cli;
mod hints; // what somebody is told who knows only the README
