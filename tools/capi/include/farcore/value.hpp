/// What operations return.

#ifndef FARCORE_VALUE_HPP
#define FARCORE_VALUE_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "error.hpp"

namespace farcore {

/// The version of a key; 0 means that the key is absent.
using Version = std::uint64_t;

/// What is known of a key beside its value.
using Metadata = ::farcore_metadata;

/// A value that was read. Owns its bytes.
class Value {
  public:
    /// Takes over a value that the C interface has filled.
    explicit Value(farcore_value value) noexcept : value_(value) {}

    Value(Value &&other) noexcept : value_(std::exchange(other.value_, farcore_value{})) {}

    Value &operator=(Value &&other) noexcept {
        std::swap(value_, other.value_);
        return *this;
    }

    Value(const Value &) = delete;
    Value &operator=(const Value &) = delete;

    ~Value() { farcore_value_free(&value_); }

    const std::uint8_t *data() const noexcept { return value_.bytes; }
    std::size_t size() const noexcept { return value_.length; }
    Version version() const noexcept { return value_.version; }

    /// The bytes, as long as the value lives.
    std::string_view view() const noexcept {
        return {reinterpret_cast<const char *>(value_.bytes), value_.length};
    }

    /// A copy of the bytes.
    std::string str() const { return std::string(view()); }

  private:
    farcore_value value_;
};

/// How a conditional change ended.
struct Change {
    /// `FARCORE_OK`, or why the condition does not hold: `FARCORE_EXISTS`, `FARCORE_NOT_FOUND` or
    /// `FARCORE_VERSION_MISMATCH`.
    farcore_code code;
    /// The version that was stored, or the present one; 0 if the key is absent.
    Version version;

    /// Whether the change was made.
    explicit operator bool() const noexcept { return code == FARCORE_OK; }
};

/// How the operation on one of many keys ended. Its views last as long as the batch.
struct Item {
    farcore_code code;
    /// The key's version; 0 if there is none.
    Version version;
    /// The value of a get.
    std::optional<std::string_view> value;
    /// Why it was not done; empty if it was.
    std::string_view message;

    explicit operator bool() const noexcept { return code == FARCORE_OK; }
};

/// The outcomes of an operation on many keys, in their order. Owns what the items show.
class Batch {
  public:
    /// Takes over a batch of the C interface.
    explicit Batch(farcore_batch *batch) noexcept : batch_(batch) {}

    std::size_t size() const noexcept { return farcore_batch_count(batch_.get()); }

    /// The outcome of a key. Throws `Error` if the index is out of range.
    Item operator[](std::size_t index) const {
        farcore_item item;
        const farcore_code code = farcore_batch_item(batch_.get(), index, &item);
        if (code != FARCORE_OK) {
            throw Error::last(code);
        }
        Item found{item.code, item.version, std::nullopt, {}};
        if (item.bytes != nullptr) {
            found.value = std::string_view(reinterpret_cast<const char *>(item.bytes), item.length);
        }
        if (item.message != nullptr) {
            found.message = item.message;
        }
        return found;
    }

  private:
    struct Free {
        void operator()(farcore_batch *batch) const noexcept { farcore_batch_free(batch); }
    };

    std::unique_ptr<farcore_batch, Free> batch_;
};

} // namespace farcore

#endif
