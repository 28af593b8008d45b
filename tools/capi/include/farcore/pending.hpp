/// Operations under way.

#ifndef FARCORE_PENDING_HPP
#define FARCORE_PENDING_HPP

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "error.hpp"
#include "value.hpp"

namespace farcore {

namespace detail {

inline bool is_unmet(farcore_code code) {
    return code == FARCORE_NOT_FOUND || code == FARCORE_EXISTS || code == FARCORE_VERSION_MISMATCH;
}

/// How an operation that has ended with a code becomes a result. One for each type of results; of
/// all, only codes that are no outcome of that type are errors.
template <class T> struct Reader;

template <> struct Reader<void> {
    static Result<void> read(farcore_operation *, farcore_code code) {
        return code == FARCORE_OK ? Result<void>() : Result<void>(Error::last(code));
    }
};

template <> struct Reader<bool> {
    static Result<bool> read(farcore_operation *, farcore_code code) {
        if (code == FARCORE_OK || code == FARCORE_NOT_FOUND) {
            return code == FARCORE_OK;
        }
        return Error::last(code);
    }
};

template <> struct Reader<Version> {
    static Result<Version> read(farcore_operation *operation, farcore_code) {
        Version version = 0;
        const farcore_code code = farcore_operation_version(operation, &version);
        return code == FARCORE_OK ? Result<Version>(version) : Result<Version>(Error::last(code));
    }
};

template <> struct Reader<Change> {
    static Result<Change> read(farcore_operation *operation, farcore_code code) {
        Version version = 0;
        if (code != FARCORE_OK && !is_unmet(code)) {
            return Error::last(code);
        }
        const farcore_code read = farcore_operation_version(operation, &version);
        return read == FARCORE_OK ? Result<Change>(Change{code, version})
                                  : Result<Change>(Error::last(read));
    }
};

template <> struct Reader<std::int64_t> {
    static Result<std::int64_t> read(farcore_operation *operation, farcore_code) {
        std::int64_t sum = 0;
        const farcore_code code = farcore_operation_sum(operation, &sum);
        return code == FARCORE_OK ? Result<std::int64_t>(sum)
                                  : Result<std::int64_t>(Error::last(code));
    }
};

template <> struct Reader<std::optional<Value>> {
    static Result<std::optional<Value>> read(farcore_operation *operation, farcore_code) {
        farcore_value value;
        const farcore_code code = farcore_operation_take_value(operation, &value);
        if (code == FARCORE_OK) {
            return std::optional<Value>(Value(value));
        }
        if (code == FARCORE_NOT_FOUND) {
            return std::optional<Value>();
        }
        return Error::last(code);
    }
};

template <> struct Reader<std::optional<Metadata>> {
    static Result<std::optional<Metadata>> read(farcore_operation *operation, farcore_code) {
        Metadata metadata;
        const farcore_code code = farcore_operation_metadata(operation, &metadata);
        if (code == FARCORE_OK) {
            return std::optional<Metadata>(metadata);
        }
        if (code == FARCORE_NOT_FOUND) {
            return std::optional<Metadata>();
        }
        return Error::last(code);
    }
};

template <> struct Reader<Batch> {
    static Result<Batch> read(farcore_operation *operation, farcore_code) {
        farcore_batch *batch = nullptr;
        const farcore_code code = farcore_operation_take_batch(operation, &batch);
        return code == FARCORE_OK ? Result<Batch>(Batch(batch)) : Result<Batch>(Error::last(code));
    }
};

} // namespace detail

/// An operation under way, as `std::future`. Its destructor does not wait: the operation goes on,
/// and its outcome is lost; one of a pool may end half done. One thread at a time uses it.
template <class T, class Reader = detail::Reader<T>> class [[nodiscard]] Pending {
  public:
    /// Takes over an operation of the C interface.
    explicit Pending(farcore_operation *operation) noexcept : operation_(operation) {}

    /// One that could not be submitted.
    explicit Pending(Error error) : error_(std::move(error)) {}

    /// Whether it still has an outcome to give; false after `get` and `try_get`.
    bool valid() const noexcept { return operation_ != nullptr || error_.has_value(); }

    /// Whether it has ended. Does not wait.
    bool ready() noexcept {
        return operation_ == nullptr || farcore_poll(operation_.get()) != FARCORE_PENDING;
    }

    /// Waits until it has ended, and no longer than a limit. Returns whether it has.
    bool wait_for(std::chrono::milliseconds limit) noexcept {
        const auto count = limit.count() < 0 ? 0 : static_cast<std::uint64_t>(limit.count());
        return operation_ == nullptr || farcore_wait(operation_.get(), count) != FARCORE_PENDING;
    }

    /// Waits until it has ended. The client's time limit bounds that.
    void wait() noexcept {
        if (operation_ != nullptr) {
            farcore_wait(operation_.get(), FARCORE_NO_LIMIT);
        }
    }

    /// Waits for the outcome, and takes it. Throws `Error`.
    T get() { return try_get().value(); }

    /// Waits for the outcome, and takes it. Throws no `Error`.
    Result<T> try_get() {
        if (operation_ == nullptr) {
            const Error taken(FARCORE_TAKEN, "the outcome was taken before: keep what it was");
            Error error = error_.value_or(taken);
            error_.reset();
            return error;
        }
        const auto operation = std::move(operation_);
        const farcore_code code = farcore_wait(operation.get(), FARCORE_NO_LIMIT);
        return Reader::read(operation.get(), code);
    }

  private:
    struct Free {
        void operator()(farcore_operation *operation) const noexcept {
            farcore_operation_free(operation);
        }
    };

    std::unique_ptr<farcore_operation, Free> operation_;
    std::optional<Error> error_;
};

} // namespace farcore

#endif
