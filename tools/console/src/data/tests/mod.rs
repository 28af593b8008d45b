//! Tests of datasets and queries as a whole.
