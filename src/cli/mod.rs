//! Talking to the person: verbs, flags, progress, results.
