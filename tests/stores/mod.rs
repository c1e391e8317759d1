//! The stores from outside: the essence of client-go's tests, and what is ours.

mod expiration_cache;
mod indexer;
mod indexer_user_code;
mod mutation_cache;
mod things;
mod undelta_store;
