/// Pools of remote memory for C++17: all parts of them.
///
/// - `farcore/pool_handle.hpp`: `PoolOptions`, `Place`, `Pool`
/// - `farcore/remote_call.hpp`: `PendingCall`, a call of a procedure under way
/// - `farcore/remote_type.hpp`: the types of values in remote memory
/// - `farcore/remote_ptr.hpp`: `remote_ptr`, which is copied and owns nothing
/// - `farcore/remote_slice.hpp`: `remote_slice`, which owns values
/// - `farcore/remote_allocator.hpp`: `allocator`

#ifndef FARCORE_POOL_HPP
#define FARCORE_POOL_HPP

#include "pool_handle.hpp"
#include "remote_allocator.hpp"
#include "remote_call.hpp"
#include "remote_ptr.hpp"
#include "remote_slice.hpp"
#include "remote_type.hpp"

#endif
