//! Flags, environment and files become one set of options for each room.
