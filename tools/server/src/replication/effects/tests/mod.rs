//! The words of effects, and that they make at a Redis what the engine has made.

mod beside_redis;
mod redis;
mod refusals;
mod source;
mod stream_words;
mod streams;
mod words;
