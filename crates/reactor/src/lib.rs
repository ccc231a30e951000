//! Reactors: one polling loop a core, and the I/O threads that live on them.
