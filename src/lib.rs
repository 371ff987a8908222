//! The Lock File Protocol service and the client people type.
