//! The program: process-wide set-up, the runtime, and the exit code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(wharf::cli::report_panic));
    // A second installation is refused and harmless: the provider is the same one.
    drop(rustls::crypto::ring::default_provider().install_default());
    let args: Vec<_> = std::env::args_os().collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let code = match runtime {
        Err(error) => wharf::cli::cannot_begin(&args, &error),
        Ok(runtime) => {
            let work = || runtime.block_on(wharf::cli::main(args.clone()));
            let code = catch_unwind(AssertUnwindSafe(work))
                .unwrap_or_else(|_| wharf::cli::after_panic(&args));
            // Whatever a second signal left half-done must not keep the process.
            runtime.shutdown_background();
            code
        }
    };
    ExitCode::from(u8::try_from(code).unwrap_or(3))
}
