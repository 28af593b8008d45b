/// Values in remote memory that a program owns.

#ifndef FARCORE_REMOTE_SLICE_HPP
#define FARCORE_REMOTE_SLICE_HPP

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "pool_handle.hpp"
#include "remote_ptr.hpp"
#include "value.hpp"

namespace farcore {

/// Values in remote memory, one behind the other. The destructor frees them. It can be moved, not
/// copied; a default one, and one that was moved from, is empty.
///
/// Each operation has two or three forms, as those of `Client`: `read` throws `Error`, `try_read`
/// returns a `Result`, `submit_read` returns a `Pending` at once.
template <class T> class remote_slice {
  public:
    remote_slice() = default;

    /// Takes over memory of the C interface: `count` values from `first` on.
    remote_slice(Pool pool, farcore_ptr first, std::size_t count)
        : pool_(std::move(pool)), first_(first), count_(count) {
        detail::check_type<T>();
    }

    remote_slice(remote_slice &&other) noexcept
        : pool_(std::exchange(other.pool_, std::nullopt)),
          first_(std::exchange(other.first_, farcore_ptr{})),
          count_(std::exchange(other.count_, 0)) {}

    remote_slice &operator=(remote_slice &&other) noexcept {
        remote_slice moved(std::move(other));
        std::swap(pool_, moved.pool_);
        std::swap(first_, moved.first_);
        std::swap(count_, moved.count_);
        return *this;
    }

    remote_slice(const remote_slice &) = delete;
    remote_slice &operator=(const remote_slice &) = delete;

    ~remote_slice() { free(); }

    /// Frees the values now. Pointers to them are refused from now on.
    void free() noexcept {
        if (pool_) {
            farcore_pool_deallocate(pool_->handle(), first_);
        }
        release();
    }

    /// Gives up the ownership: `farcore_pool_deallocate` or an `allocator` frees the values.
    remote_ptr<T> release() noexcept {
        pool_.reset();
        count_ = 0;
        return remote_ptr<T>(std::exchange(first_, farcore_ptr{}));
    }

    std::size_t size() const noexcept { return count_; }
    bool empty() const noexcept { return count_ == 0; }

    /// A pointer to the value at an index, which owns nothing.
    remote_ptr<T> ptr(std::size_t index = 0) const noexcept {
        return remote_ptr<T>(detail::indexed(first_, index, sizeof(T)));
    }

    remote_ptr<T> operator[](std::size_t index) const noexcept { return ptr(index); }

    /// Reads a value.
    T read(std::size_t index) const { return try_read(index).value(); }

    Result<T> try_read(std::size_t index) const {
        return pool_ ? ptr(index).try_read(*pool_) : Result<T>(none());
    }

    PendingRead<T> submit_read(std::size_t index) const {
        return pool_ ? ptr(index).submit_read(*pool_) : PendingRead<T>(none());
    }

    /// Stores a value.
    void write(std::size_t index, const T &value) const { try_write(index, value).value(); }

    Result<void> try_write(std::size_t index, const T &value) const {
        return pool_ ? ptr(index).try_write(*pool_, value) : Result<void>(none());
    }

    Pending<void> submit_write(std::size_t index, const T &value) const {
        return pool_ ? ptr(index).submit_write(*pool_, value) : Pending<void>(none());
    }

    /// Reads `count` values from `index` on.
    std::vector<T> read_range(std::size_t index, std::size_t count) const {
        return try_read_range(index, count).value();
    }

    Result<std::vector<T>> try_read_range(std::size_t index, std::size_t count) const {
        static_assert(!std::is_same_v<T, bool>, "a vector of bool has no array: use std::uint8_t");
        const auto unfit = check(index, count);
        if (unfit) {
            return *unfit;
        }
        std::vector<T> values(count);
        const farcore_code code =
            farcore_pool_read(pool_->handle(), ptr(index).get(), values.data(), count * sizeof(T));
        return detail::done(code, std::move(values));
    }

    PendingRead<std::vector<T>> submit_read_range(std::size_t index, std::size_t count) const {
        const auto unfit = check(index, count);
        if (unfit) {
            return PendingRead<std::vector<T>>(*unfit);
        }
        farcore_operation *operation = nullptr;
        const farcore_code code = farcore_pool_submit_read(pool_->handle(), ptr(index).get(),
                                                           count * sizeof(T), &operation);
        return detail::submitted<PendingRead<std::vector<T>>>(code, operation);
    }

    /// Reads all values.
    std::vector<T> read_all() const { return try_read_all().value(); }

    Result<std::vector<T>> try_read_all() const { return try_read_range(0, count_); }

    /// Stores values from `index` on.
    void write_range(std::size_t index, const std::vector<T> &values) const {
        try_write_range(index, values).value();
    }

    Result<void> try_write_range(std::size_t index, const std::vector<T> &values) const {
        const auto unfit = check(index, values.size());
        if (unfit) {
            return *unfit;
        }
        return detail::done(farcore_pool_write(pool_->handle(), ptr(index).get(), values.data(),
                                               values.size() * sizeof(T)));
    }

    Pending<void> submit_write_range(std::size_t index, const std::vector<T> &values) const {
        const auto unfit = check(index, values.size());
        if (unfit) {
            return Pending<void>(*unfit);
        }
        farcore_operation *operation = nullptr;
        const farcore_code code =
            farcore_pool_submit_write(pool_->handle(), ptr(index).get(), values.data(),
                                      values.size() * sizeof(T), &operation);
        return detail::submitted<Pending<void>>(code, operation);
    }

    /// Reads the values at many indexes, all in flight together.
    std::vector<T> read_many(const std::vector<std::size_t> &indexes) const {
        return try_read_many(indexes).value();
    }

    Result<std::vector<T>> try_read_many(const std::vector<std::size_t> &indexes) const {
        return pool_ ? farcore::try_read_many(*pool_, places(indexes))
                     : Result<std::vector<T>>(none());
    }

    /// Stores values at many indexes, all in flight together; those on one node in order.
    void write_many(const std::vector<std::size_t> &indexes, const std::vector<T> &values) const {
        try_write_many(indexes, values).value();
    }

    Result<void> try_write_many(const std::vector<std::size_t> &indexes,
                                const std::vector<T> &values) const {
        return pool_ ? farcore::try_write_many(*pool_, places(indexes), values)
                     : Result<void>(none());
    }

    /// Stores `desired` in a word if it equals `expected`. Returns the old value.
    std::uint64_t compare_and_swap(std::size_t index, std::uint64_t expected,
                                   std::uint64_t desired) const {
        return try_compare_and_swap(index, expected, desired).value();
    }

    Result<std::uint64_t> try_compare_and_swap(std::size_t index, std::uint64_t expected,
                                               std::uint64_t desired) const {
        return pool_ ? ptr(index).try_compare_and_swap(*pool_, expected, desired)
                     : Result<std::uint64_t>(none());
    }

    /// Adds to a word, wrapping. Returns the old value.
    std::uint64_t fetch_add(std::size_t index, std::uint64_t addend) const {
        return try_fetch_add(index, addend).value();
    }

    Result<std::uint64_t> try_fetch_add(std::size_t index, std::uint64_t addend) const {
        return pool_ ? ptr(index).try_fetch_add(*pool_, addend) : Result<std::uint64_t>(none());
    }

    /// Calls a procedure of the program that hosts the node of these values, as `Pool::call` does.
    /// The procedure may read and write them.
    template <class R, class A = std::string_view>
    R call(const std::string &procedure, const A &argument = {}) const {
        return try_call<R>(procedure, argument).value();
    }

    template <class R, class A = std::string_view>
    Result<R> try_call(const std::string &procedure, const A &argument = {}) const {
        return submit_call<R>(procedure, argument).try_get();
    }

    template <class R, class A = std::string_view>
    PendingCall<R> submit_call(const std::string &procedure, const A &argument = {}) const {
        if (!pool_) {
            return PendingCall<R>(none());
        }
        const std::string_view bytes = detail::argument_of(argument);
        farcore_operation *operation = nullptr;
        const farcore_code code =
            farcore_pool_submit_call_on(pool_->handle(), first_, procedure.c_str(), bytes.data(),
                                        bytes.size(), &operation);
        return detail::submitted<PendingCall<R>>(code, operation);
    }

    /// Why the values are lost, or cannot be read any more; none if they are there, as far as the
    /// pool knows.
    std::optional<Error> loss() const {
        if (!pool_) {
            return none();
        }
        const farcore_code code = farcore_pool_loss(pool_->handle(), first_);
        return code == FARCORE_OK ? std::nullopt : std::optional<Error>(Error::last(code));
    }

    /// The nodes that hold the values, in the order of their bytes.
    std::vector<std::uint32_t> nodes() const { return try_nodes().value(); }

    Result<std::vector<std::uint32_t>> try_nodes() const {
        std::vector<std::uint32_t> nodes(1);
        farcore_code code = FARCORE_INVALID_ARGUMENT;
        for (std::size_t found = nodes.size(); pool_;) {
            code =
                farcore_pool_nodes_of(pool_->handle(), first_, nodes.data(), nodes.size(), &found);
            nodes.resize(code == FARCORE_OK || code == FARCORE_BUFFER_TOO_SMALL ? found : 0);
            if (code != FARCORE_BUFFER_TOO_SMALL) {
                return detail::done(code, std::move(nodes));
            }
        }
        return none();
    }

    /// A text by which other processes share the values; with `may_write` they may write them, too.
    /// A program that has the text can access the memory: it is a secret.
    std::string export_text(bool may_write) const { return try_export_text(may_write).value(); }

    Result<std::string> try_export_text(bool may_write) const {
        const farcore_type holds = type_of<T>();
        return text([&](farcore_value *value) {
            return farcore_pool_export(pool_->handle(), first_, &holds, may_write, value);
        });
    }

    /// Gives the values away: a text by which one other process becomes their owner. This slice is
    /// empty afterwards, unless it fails.
    std::string transfer() { return try_transfer().value(); }

    Result<std::string> try_transfer() {
        const farcore_type holds = type_of<T>();
        auto given = text([&](farcore_value *value) {
            return farcore_pool_transfer(pool_->handle(), first_, &holds, value);
        });
        if (given) {
            release();
        }
        return given;
    }

  private:
    static Error none() {
        return Error(FARCORE_INVALID_ARGUMENT,
                     "the slice is empty: it was moved, freed, given away or never allocated");
    }

    /// Why `count` values from `index` on are none of this slice.
    std::optional<Error> check(std::size_t index, std::size_t count) const {
        if (!pool_) {
            return none();
        }
        if (index > count_ || count > count_ - index) {
            return Error(FARCORE_OUT_OF_BOUNDS,
                         std::to_string(count) + " values from " + std::to_string(index) +
                             " on exceed a slice of " + std::to_string(count_));
        }
        return std::nullopt;
    }

    std::vector<remote_ptr<T>> places(const std::vector<std::size_t> &indexes) const {
        std::vector<remote_ptr<T>> places;
        places.reserve(indexes.size());
        for (const std::size_t index : indexes) {
            places.push_back(ptr(index));
        }
        return places;
    }

    template <class Make> Result<std::string> text(Make &&make) const {
        if (!pool_) {
            return none();
        }
        farcore_value value = {};
        const farcore_code code = make(&value);
        if (code != FARCORE_OK) {
            return Error::last(code);
        }
        return Value(value).str();
    }

    std::optional<Pool> pool_;
    farcore_ptr first_ = {};
    std::size_t count_ = 0;
};

template <class T>
Result<remote_slice<T>> Pool::try_allocate(std::size_t count, const Place &place) const {
    detail::check_type<T>();
    // What does not fit 64 bits is too long for any pool.
    const std::size_t bytes = count > SIZE_MAX / sizeof(T) ? SIZE_MAX : count * sizeof(T);
    const farcore_place where = place.get();
    farcore_ptr first = {};
    const farcore_code code = farcore_pool_allocate(handle(), bytes, alignof(T), &where, &first);
    if (code != FARCORE_OK) {
        return Error::last(code);
    }
    return remote_slice<T>(*this, first, count);
}

template <class T>
Result<remote_slice<T>> Pool::try_allocate_from(const std::vector<T> &values,
                                                const Place &place) const {
    auto slice = try_allocate<T>(values.size(), place);
    if (slice) {
        const auto written = slice->try_write_range(0, values);
        if (!written) {
            return Error(written.code(), written.message());
        }
    }
    return slice;
}

template <class T> Result<remote_slice<T>> Pool::try_import(const std::string &text) const {
    const farcore_type holds = type_of<T>();
    farcore_ptr first = {};
    std::size_t bytes = 0;
    farcore_code code = farcore_pool_import(handle(), text.c_str(), &holds, &first);
    if (code == FARCORE_OK) {
        code = farcore_pool_length(handle(), first, &bytes);
    }
    if (code != FARCORE_OK) {
        return Error::last(code);
    }
    return remote_slice<T>(*this, first, bytes / sizeof(T));
}

} // namespace farcore

#endif
