//! Farcore.
