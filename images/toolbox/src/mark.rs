//! Whether it is Wharf's own list that system calls are held against: a filter alone may be the engine's.

use wharf_toolbox::held::MARK;

/// What a call came to: its error number, or none where it was obeyed.
type Answer = Option<i32>;

/// 1 where the mark of Wharf's list answers, 0 where another filter or the kernel does; None where it may be
/// Wharf's without its own error numbers, which old engines leave out.
pub fn seen() -> Option<u64> {
    told(marked(), tracing())
}

fn told(mark: Answer, tracing: Answer) -> Option<u64> {
    match (mark, tracing) {
        (Some(MARK), _) => Some(1),
        (Some(libc::EPERM), Some(libc::EPERM)) => None,
        _ => Some(0),
    }
}

#[expect(unsafe_code, reason = "no library has a word for a call that is gone")]
fn marked() -> Answer {
    // SAFETY: Linux has had no such call since 3.1, and it is given nothing.
    answer(unsafe { libc::syscall(libc::SYS_nfsservctl, 0, 0, 0) })
}

/// Tracing nobody, which Wharf's list refuses, and engines' own lists pass on to a kernel that finds nobody.
#[expect(unsafe_code, reason = "rustix has no word for it")]
fn tracing() -> Answer {
    let request = libc::c_long::from(libc::PTRACE_CONT);
    // SAFETY: no process has this number, so that nothing is done to any.
    answer(unsafe { libc::syscall(libc::SYS_ptrace, request, 0, 0, 0) })
}

fn answer(came: libc::c_long) -> Answer {
    match came {
        ..0 => Some(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_mark_is_a_yes_and_only_what_wharfs_list_would_say_is_unclear() {
        assert_eq!(told(Some(MARK), Some(libc::EPERM)), Some(1));
        assert_eq!(told(Some(libc::EPERM), Some(libc::EPERM)), None);
        // Docker's own list; the kernel; a list that obeys.
        for mark in [Some(libc::EPERM), Some(libc::ENOSYS), None] {
            assert_eq!(told(mark, Some(libc::ESRCH)), Some(0));
        }
        assert_eq!(told(Some(libc::ENOSYS), Some(libc::EPERM)), Some(0));
    }

    #[test]
    fn without_a_filter_the_kernel_answers() {
        // Whoever runs the tests may stand behind an engine's list, and behind Wharf's never.
        assert_ne!(seen(), Some(1));
    }
}
