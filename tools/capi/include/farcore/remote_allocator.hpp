/// An allocator of remote memory.

#ifndef FARCORE_REMOTE_ALLOCATOR_HPP
#define FARCORE_REMOTE_ALLOCATOR_HPP

#include <cstddef>
#include <utility>

#include "pool_handle.hpp"
#include "remote_ptr.hpp"
#include "remote_slice.hpp"

namespace farcore {

/// Allocates remote memory for structures that own it by themselves, with the names of the standard
/// allocators. The containers of the standard library cannot use it, since a `remote_ptr` is not
/// dereferenced. Copies share the pool; any number of threads may use one.
template <class T> class allocator {
  public:
    using value_type = T;
    using pointer = remote_ptr<T>;
    using size_type = std::size_t;
    using difference_type = std::int64_t;

    template <class U> struct rebind { using other = allocator<U>; };

    explicit allocator(Pool pool, Place place = {})
        : pool_(std::move(pool)), place_(std::move(place)) {}

    template <class U>
    explicit allocator(const allocator<U> &other) : allocator(other.pool(), other.place()) {}

    const Pool &pool() const noexcept { return pool_; }
    const Place &place() const noexcept { return place_; }

    /// Memory for `count` values; its contents are unspecified. Throws `Error`.
    pointer allocate(size_type count) const { return try_allocate(count).value(); }

    Result<pointer> try_allocate(size_type count) const {
        auto slice = pool_.template try_allocate<T>(count, place_);
        if (!slice) {
            return Error(slice.code(), slice.message());
        }
        return slice->release();
    }

    /// Frees what `allocate` gave; a null pointer is left alone. Throws `Error` if it was freed
    /// before, or is another pool's.
    void deallocate(pointer first, size_type count) const { try_deallocate(first, count).value(); }

    Result<void> try_deallocate(pointer first, size_type) const {
        return detail::done(farcore_pool_deallocate(pool_.handle(), first.get()));
    }

    friend bool operator==(const allocator &one, const allocator &other) noexcept {
        return one.pool_.handle() == other.pool_.handle();
    }

    friend bool operator!=(const allocator &one, const allocator &other) noexcept {
        return !(one == other);
    }

  private:
    Pool pool_;
    Place place_;
};

} // namespace farcore

#endif
