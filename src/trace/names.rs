//! Every attribute name that a span may carry.
