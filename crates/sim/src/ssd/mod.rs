//! A solid-state drive.
