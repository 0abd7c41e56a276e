//! The program that is process 1 of every sandbox, as `build.rs` made it.

/// A static executable for this machine's architecture.
pub const TOOLBOX: &[u8] = include_bytes!(env!("WHARF_TOOLBOX"));

#[cfg(test)]
mod tests {
    use super::TOOLBOX;

    #[test]
    fn it_is_small_and_static() {
        assert!(TOOLBOX.len() < 2 << 20, "{} bytes", TOOLBOX.len());
        assert!(TOOLBOX.starts_with(b"\x7fELF"));
        // A dynamic program names its loader.
        assert!(!TOOLBOX.windows(9).any(|window| window == b"/ld-linux"));
    }
}
