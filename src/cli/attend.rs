//! What a run has around it while it goes on: signals, the terminal, log lines.

use super::fault::Fault;
use super::live::{Live, LogLine, Look, Noise, Teller};
use super::signals::Signals;
use crate::run::Stopper;

/// How much is shown, by the flags `-q` and `-v`.
pub fn noise(quiet: bool, verbose: bool) -> Noise {
    match (quiet, verbose) {
        (true, _) => Noise::Quiet,
        (_, true) => Noise::Verbose,
        _ => Noise::Normal,
    }
}

/// Does the work of a run with signals heard and progress shown; the second signal does not wait for it.
pub async fn attend<T>(
    look: Look,
    work: impl AsyncFnOnce(&Teller, &Stopper) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let signals = Signals::listen()?;
    let live = Live::start(look)
        .map_err(|error| Fault::environment(format!("start the progress display: {error}")))?;
    let teller = live.teller();
    listen_to_logs(&teller, look.noise);
    let stop = Stopper::default();
    let tell = |line: &str| teller.text(line);
    let outcome = tokio::select! {
        outcome = work(&teller, &stop) => outcome,
        code = signals.second(&stop, tell) => {
            return Err(Fault::new(code, "interrupted", "stopped at once, without waiting for the run")
                .hint("`wharf resume last` goes on from where it stood; `wharf show last` says how far it came"));
        }
    };
    live.close();
    outcome
}

/// Sends warnings, and with `-v` everything, to the thread that owns the terminal.
fn listen_to_logs(teller: &Teller, noise: Noise) {
    let level = match noise {
        Noise::Verbose => "wharf=debug,warn",
        Noise::Normal | Noise::Quiet => "wharf=warn,error",
    };
    let teller = teller.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(level))
        .with_ansi(false)
        .without_time()
        .with_writer(move || LogLine::new(teller.clone()))
        .finish();
    // Only a second run in one process would find one installed; it keeps that one.
    drop(tracing::subscriber::set_global_default(subscriber));
}
