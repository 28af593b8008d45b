//! Copies of a data directory that are made while the engine works: as a crash leaves it.
