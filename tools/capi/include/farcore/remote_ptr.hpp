/// Pointers to values in remote memory.

#ifndef FARCORE_REMOTE_PTR_HPP
#define FARCORE_REMOTE_PTR_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "pending.hpp"
#include "pool_handle.hpp"
#include "remote_type.hpp"

namespace farcore {

namespace detail {

inline Result<void> done(farcore_code code) {
    return code == FARCORE_OK ? Result<void>() : Result<void>(Error::last(code));
}

template <class T> Result<T> done(farcore_code code, T value) {
    return code == FARCORE_OK ? Result<T>(std::move(value)) : Result<T>(Error::last(code));
}

/// How an operation of a pool that has ended becomes a value.
template <class T> struct RemoteReader {
    static Result<T> read(farcore_operation *operation, farcore_code) {
        T value{};
        std::size_t length = 0;
        const farcore_code code =
            farcore_operation_copy_value(operation, &value, sizeof value, &length);
        return done(code, value);
    }
};

template <class T> struct RemoteReader<std::vector<T>> {
    static Result<std::vector<T>> read(farcore_operation *operation, farcore_code) {
        farcore_value bytes;
        const farcore_code code = farcore_operation_take_value(operation, &bytes);
        if (code != FARCORE_OK) {
            return Error::last(code);
        }
        std::vector<T> values(bytes.length / sizeof(T));
        if (!values.empty()) {
            std::memcpy(values.data(), bytes.bytes, bytes.length);
        }
        farcore_value_free(&bytes);
        return values;
    }
};

/// How an atomic operation that has ended becomes the old value of its word.
struct WordReader {
    static Result<std::uint64_t> read(farcore_operation *operation, farcore_code) {
        std::uint64_t word = 0;
        const farcore_code code = farcore_operation_word(operation, &word);
        return done(code, word);
    }
};

/// An operation that was submitted, or why it was not.
template <class Pending> Pending submitted(farcore_code code, farcore_operation *operation) {
    return code == FARCORE_OK ? Pending(operation) : Pending(Error::last(code));
}

} // namespace detail

/// A read of a `T`, or of a vector, that is under way.
template <class T> using PendingRead = Pending<T, detail::RemoteReader<T>>;
/// An atomic operation under way; it gives the old value of the word.
using PendingWord = Pending<std::uint64_t, detail::WordReader>;

/// Points to a `T` in remote memory. It may be copied and owns nothing; a default one is null. It
/// may be stored in remote memory, too, for this process. Arithmetic may pass the end; each access
/// is checked, against the end and against the free of what it points to.
template <class T> class remote_ptr {
  public:
    using element_type = T;
    using difference_type = std::int64_t;

    remote_ptr() = default;

    /// A pointer of the C interface.
    explicit remote_ptr(farcore_ptr ptr) noexcept : ptr_(ptr) {}

    /// For the C interface.
    farcore_ptr get() const noexcept { return ptr_; }

    explicit operator bool() const noexcept { return !farcore_ptr_is_null(ptr_); }

    /// This place as another type.
    template <class U> remote_ptr<U> cast() const noexcept { return remote_ptr<U>(ptr_); }

    /// The pointer to the value at an index, as in an array that begins here.
    remote_ptr operator[](std::int64_t index) const noexcept { return *this + index; }

    remote_ptr operator+(std::int64_t count) const noexcept {
        return remote_ptr(detail::moved(ptr_, count, sizeof(T)));
    }

    remote_ptr operator-(std::int64_t count) const noexcept {
        return count == INT64_MIN ? (*this + INT64_MAX) + 1 : *this + -count;
    }

    friend remote_ptr operator+(std::int64_t count, remote_ptr ptr) noexcept { return ptr + count; }

    remote_ptr &operator+=(std::int64_t count) noexcept { return *this = *this + count; }
    remote_ptr &operator-=(std::int64_t count) noexcept { return *this = *this - count; }
    remote_ptr &operator++() noexcept { return *this += 1; }
    remote_ptr &operator--() noexcept { return *this -= 1; }

    remote_ptr operator++(int) noexcept {
        const remote_ptr before = *this;
        ++*this;
        return before;
    }

    remote_ptr operator--(int) noexcept {
        const remote_ptr before = *this;
        --*this;
        return before;
    }

    /// How many values this lies behind another one. Throws `Error` if they point into different
    /// allocations.
    std::int64_t operator-(remote_ptr other) const {
        std::int64_t bytes = 0;
        const farcore_code code = farcore_ptr_difference(ptr_, other.ptr_, &bytes);
        return detail::done(code, bytes).value() / static_cast<std::int64_t>(sizeof(T));
    }

    friend bool operator==(remote_ptr one, remote_ptr other) noexcept {
        return farcore_ptr_equal(one.ptr_, other.ptr_);
    }

    friend bool operator!=(remote_ptr one, remote_ptr other) noexcept { return !(one == other); }

    /// Within an allocation by place, and else by allocation, in an order of its own.
    friend bool operator<(remote_ptr one, remote_ptr other) noexcept {
        return one.order() < other.order();
    }

    friend bool operator>(remote_ptr one, remote_ptr other) noexcept { return other < one; }
    friend bool operator<=(remote_ptr one, remote_ptr other) noexcept { return !(other < one); }
    friend bool operator>=(remote_ptr one, remote_ptr other) noexcept { return !(one < other); }

    /// Reads the value.
    T read(const Pool &pool) const { return try_read(pool).value(); }

    Result<T> try_read(const Pool &pool) const {
        detail::check_type<T>();
        T value{};
        const farcore_code code = farcore_pool_read(pool.handle(), ptr_, &value, sizeof value);
        return detail::done(code, value);
    }

    PendingRead<T> submit_read(const Pool &pool) const {
        detail::check_type<T>();
        farcore_operation *operation = nullptr;
        const farcore_code code =
            farcore_pool_submit_read(pool.handle(), ptr_, sizeof(T), &operation);
        return detail::submitted<PendingRead<T>>(code, operation);
    }

    /// Stores a value.
    void write(const Pool &pool, const T &value) const { try_write(pool, value).value(); }

    Result<void> try_write(const Pool &pool, const T &value) const {
        detail::check_type<T>();
        return detail::done(farcore_pool_write(pool.handle(), ptr_, &value, sizeof value));
    }

    Pending<void> submit_write(const Pool &pool, const T &value) const {
        detail::check_type<T>();
        farcore_operation *operation = nullptr;
        const farcore_code code =
            farcore_pool_submit_write(pool.handle(), ptr_, &value, sizeof value, &operation);
        return detail::submitted<Pending<void>>(code, operation);
    }

    /// Stores `desired` in a word if it equals `expected`. Returns the old value: the swap was made
    /// if that equals `expected`.
    std::uint64_t compare_and_swap(const Pool &pool, std::uint64_t expected,
                                   std::uint64_t desired) const {
        return try_compare_and_swap(pool, expected, desired).value();
    }

    Result<std::uint64_t> try_compare_and_swap(const Pool &pool, std::uint64_t expected,
                                               std::uint64_t desired) const {
        check_word();
        std::uint64_t old = 0;
        const farcore_code code =
            farcore_pool_compare_and_swap(pool.handle(), ptr_, expected, desired, &old);
        return detail::done(code, old);
    }

    PendingWord submit_compare_and_swap(const Pool &pool, std::uint64_t expected,
                                        std::uint64_t desired) const {
        check_word();
        farcore_operation *operation = nullptr;
        const farcore_code code = farcore_pool_submit_compare_and_swap(
            pool.handle(), ptr_, expected, desired, &operation);
        return detail::submitted<PendingWord>(code, operation);
    }

    /// Adds to a word, wrapping. Returns the old value.
    std::uint64_t fetch_add(const Pool &pool, std::uint64_t addend) const {
        return try_fetch_add(pool, addend).value();
    }

    Result<std::uint64_t> try_fetch_add(const Pool &pool, std::uint64_t addend) const {
        check_word();
        std::uint64_t old = 0;
        const farcore_code code = farcore_pool_fetch_add(pool.handle(), ptr_, addend, &old);
        return detail::done(code, old);
    }

    PendingWord submit_fetch_add(const Pool &pool, std::uint64_t addend) const {
        check_word();
        farcore_operation *operation = nullptr;
        const farcore_code code =
            farcore_pool_submit_fetch_add(pool.handle(), ptr_, addend, &operation);
        return detail::submitted<PendingWord>(code, operation);
    }

  private:
    auto order() const noexcept {
        return std::make_tuple(ptr_.pool, ptr_.slot, ptr_.generation, ptr_.offset);
    }

    static constexpr void check_word() {
        static_assert(std::is_same_v<T, std::uint64_t>,
                      "atomics are on words of 64 bits: cast to std::uint64_t");
    }

    farcore_ptr ptr_ = {};
};

/// Reads the values at many places, all in flight together.
template <class T>
Result<std::vector<T>> try_read_many(const Pool &pool, const std::vector<remote_ptr<T>> &places) {
    detail::check_type<T>();
    static_assert(!std::is_same_v<T, bool>, "a vector of bool has no array: use std::uint8_t");
    std::vector<T> values(places.size());
    std::vector<farcore_read_part> parts(places.size());
    for (std::size_t index = 0; index < places.size(); index++) {
        parts[index] = {places[index].get(), &values[index], sizeof(T)};
    }
    const farcore_code code = farcore_pool_read_many(pool.handle(), parts.data(), parts.size());
    return detail::done(code, std::move(values));
}

/// As `try_read_many`; throws `Error`.
template <class T>
std::vector<T> read_many(const Pool &pool, const std::vector<remote_ptr<T>> &places) {
    return try_read_many(pool, places).value();
}

/// Stores values at many places, all in flight together; those on one node in order. There must be
/// as many values as places.
template <class T>
Result<void> try_write_many(const Pool &pool, const std::vector<remote_ptr<T>> &places,
                            const std::vector<T> &values) {
    detail::check_type<T>();
    static_assert(!std::is_same_v<T, bool>, "a vector of bool has no array: use std::uint8_t");
    if (places.size() != values.size()) {
        return Error(FARCORE_INVALID_ARGUMENT, std::to_string(places.size()) + " places and " +
                                                   std::to_string(values.size()) +
                                                   " values: the numbers must be equal");
    }
    std::vector<farcore_write_part> parts(places.size());
    for (std::size_t index = 0; index < places.size(); index++) {
        parts[index] = {places[index].get(), &values[index], sizeof(T)};
    }
    return detail::done(farcore_pool_write_many(pool.handle(), parts.data(), parts.size()));
}

/// As `try_write_many`; throws `Error`.
template <class T>
void write_many(const Pool &pool, const std::vector<remote_ptr<T>> &places,
                const std::vector<T> &values) {
    try_write_many(pool, places, values).value();
}

} // namespace farcore

#endif
