//! Administration of a running server: a Unix socket that only its owner may use, and the requests that come through it.

mod place;

pub(crate) use place::default_path;
