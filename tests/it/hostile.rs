//! A process 1 that lies.
