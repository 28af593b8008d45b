/// Errors: an exception, and a result that is returned instead.

#ifndef FARCORE_ERROR_HPP
#define FARCORE_ERROR_HPP

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "../farcore.h"

namespace farcore {

/// Why an operation was not done: a code of `farcore.h`, and its text.
class Error : public std::runtime_error {
  public:
    Error(farcore_code code, const std::string &message)
        : std::runtime_error(message), code_(code) {}

    /// The last error of this thread.
    static Error last(farcore_code code) { return Error(code, farcore_error_message()); }

    farcore_code code() const noexcept { return code_; }

  private:
    farcore_code code_;
};

/// A value, or why there is none: what functions return that do not throw.
template <class T> class [[nodiscard]] Result {
  public:
    Result(T value) : value_(std::in_place, std::move(value)) {}
    Result(Error error) : error_(std::move(error)) {}

    explicit operator bool() const noexcept { return !error_; }

    /// `FARCORE_OK` if there is a value.
    farcore_code code() const noexcept { return error_ ? error_->code() : FARCORE_OK; }

    /// The text of the error; empty if there is a value. It lasts as long as the result.
    const char *message() const noexcept { return error_ ? error_->what() : ""; }

    /// The value. Throws the error if there is none.
    T &value() & {
        check();
        return *value_;
    }

    T &&value() && {
        check();
        return std::move(*value_);
    }

    const T &value() const & {
        check();
        return *value_;
    }

    T &operator*() & { return value(); }
    T &&operator*() && { return std::move(*this).value(); }
    T *operator->() { return &value(); }

  private:
    void check() const {
        if (error_) {
            throw *error_;
        }
    }

    std::optional<T> value_;
    std::optional<Error> error_;
};

/// That something was done, or why not.
template <> class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {}

    explicit operator bool() const noexcept { return !error_; }
    farcore_code code() const noexcept { return error_ ? error_->code() : FARCORE_OK; }
    const char *message() const noexcept { return error_ ? error_->what() : ""; }

    /// Throws the error if there is one.
    void value() const {
        if (error_) {
            throw *error_;
        }
    }

  private:
    std::optional<Error> error_;
};

} // namespace farcore

#endif
