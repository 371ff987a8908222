//! The library in real programs, beside the service, and where it cannot work.

mod ground;

mod away;
mod busy;
mod exclusive;
mod handlers;
mod hostile;
mod namespaces;
mod owed;
mod run;
mod story;
mod told;
mod under_way;
mod unloadable;
mod untouched;
