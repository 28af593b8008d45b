/// Farcore for C++17.
///
/// Each part is a header of its own in `farcore/`, and this one includes them all. All of them are
/// written over `farcore.h`, and need no library but its one.
///
/// - `farcore/error.hpp`: `Error`, which is thrown, and `Result`, which is returned instead
/// - `farcore/value.hpp`: `Value`, `Batch`, `Change`: what operations return
/// - `farcore/pending.hpp`: `Pending`, an operation under way
/// - `farcore/client.hpp`: `Options`, `Client`
/// - `farcore/pool.hpp`: `Pool`, `remote_ptr`, `remote_slice`, `allocator`: remote memory

#ifndef FARCORE_HPP
#define FARCORE_HPP

#include "farcore/client.hpp"
#include "farcore/error.hpp"
#include "farcore/pending.hpp"
#include "farcore/pool.hpp"
#include "farcore/value.hpp"

#endif
