//! Builds the toolbox, process 1 of every sandbox, as a static program that the library embeds.
//!
//! It has a target directory of its own under OUT_DIR, so that it waits for no lock of the build
//! that runs this, and its flags by environment, so that they reach nothing else.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Static, at a fixed address: it must start in an image that has no loader.
const FLAGS: [&str; 4] = [
    "-C",
    "target-feature=+crt-static",
    "-C",
    "relocation-model=static",
];

fn main() -> Result<(), String> {
    for path in [
        "images/toolbox/src",
        "images/toolbox/Cargo.toml",
        "Cargo.lock",
        "build.rs",
    ] {
        println!("cargo:rerun-if-changed={path}");
    }
    name_commit();
    let out = PathBuf::from(variable("OUT_DIR")?);
    let target = variable("TARGET")?;
    // What is at hand suffices almost always, and then no network is touched.
    let mut output = build(&out, &target, &["--offline"])?;
    if !output.status.success() {
        output = build(&out, &target, &[])?;
    }
    if !output.status.success() {
        return Err(format!(
            "toolbox: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let program = out
        .join("toolbox")
        .join(&target)
        .join("toolbox/wharf-toolbox");
    if !program.is_file() {
        return Err(format!("toolbox: built, but not at {}", program.display()));
    }
    println!("cargo:rustc-env=WHARF_TOOLBOX={}", program.display());
    Ok(())
}

/// Tells `--version` the commit, where this is a checkout with git at hand; else there is none to tell.
fn name_commit() {
    // Only a checkout of this package itself: a repository around it has commits of its own.
    if !Path::new(".git").exists() {
        return;
    }
    // Written at each commit and each switch; in a linked worktree it lies elsewhere.
    let heads = ask_git(&["rev-parse", "--git-path", "logs/HEAD"]);
    let Some(heads) = heads.filter(|path| Path::new(path).is_file()) else {
        return;
    };
    println!("cargo:rerun-if-changed={heads}");
    if let Some(commit) = ask_git(&["rev-parse", "--short=10", "HEAD"]) {
        println!("cargo:rustc-env=WHARF_COMMIT={commit}");
    }
}

fn ask_git(args: &[&str]) -> Option<String> {
    let Output { status, stdout, .. } = Command::new("git").args(args).output().ok()?;
    let answer = String::from_utf8(stdout).ok()?.trim().to_owned();
    (status.success() && !answer.is_empty()).then_some(answer)
}

fn build(out: &Path, target: &str, more: &[&str]) -> Result<Output, String> {
    Command::new(variable("CARGO")?)
        .args([
            "build",
            "--locked",
            "--profile",
            "toolbox",
            "--target",
            target,
        ])
        .args([
            "-p",
            "wharf-toolbox",
            "--bin",
            "wharf-toolbox",
            "--target-dir",
        ])
        .arg(out.join("toolbox"))
        .args(more)
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"))
        .env_remove("RUSTFLAGS")
        // Set by clippy and the like for the build that runs this; they would only check.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .map_err(|error| format!("toolbox: cargo: {error}"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a build script is told everything by environment"
)]
fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|error| format!("{name}: {error}"))
}
