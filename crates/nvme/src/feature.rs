//! Feature identifiers and their values (Base 5.27).
