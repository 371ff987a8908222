//! Nothing: the manifest says why this package is there.
