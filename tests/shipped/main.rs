//! What is shipped besides the programs: documents, settings, packages, and the Python package.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails where it stands")]

mod config_files;
mod documents;
mod examples;
mod man_pages;
mod package_completions;
mod package_deb;
mod package_recipes;
mod package_unmodified;
mod python_package;
