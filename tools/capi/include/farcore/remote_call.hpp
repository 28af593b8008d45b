/// Calls of procedures: arguments, answers, and calls under way.

#ifndef FARCORE_REMOTE_CALL_HPP
#define FARCORE_REMOTE_CALL_HPP

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "pending.hpp"
#include "remote_type.hpp"

namespace farcore {

namespace detail {

/// The bytes of an argument: those of a text, or of a value.
template <class A> std::string_view argument_of(const A &argument) {
    if constexpr (std::is_convertible_v<const A &, std::string_view>) {
        return argument;
    } else {
        check_type<A>();
        return {reinterpret_cast<const char *>(&argument), sizeof argument};
    }
}

/// Copies an answer into a value that must be as long.
inline Result<void> load(const Value &answer, void *value, std::size_t size) {
    if (answer.size() != size) {
        return Error(FARCORE_WRONG_TYPE, "the procedure has answered " +
                                             std::to_string(answer.size()) + " bytes: " +
                                             std::to_string(size) + " are expected");
    }
    if (size > 0) {
        std::memcpy(value, answer.data(), size);
    }
    return {};
}

/// How a call that has ended becomes an answer: a `std::string` of any length, nothing, or a value.
template <class R> struct CallReader {
    static Result<R> read(farcore_operation *operation, farcore_code) {
        farcore_value bytes;
        const farcore_code code = farcore_operation_take_value(operation, &bytes);
        if (code != FARCORE_OK) {
            return Error::last(code);
        }
        const Value answer(bytes);
        if constexpr (std::is_same_v<R, std::string>) {
            return answer.str();
        } else if constexpr (std::is_void_v<R>) {
            return load(answer, nullptr, 0);
        } else {
            check_type<R>();
            R value{};
            const auto loaded = load(answer, &value, sizeof value);
            return loaded ? Result<R>(value) : Result<R>(Error(loaded.code(), loaded.message()));
        }
    }
};

} // namespace detail

/// A call under way; it gives the answer.
template <class R> using PendingCall = Pending<R, detail::CallReader<R>>;

} // namespace farcore

#endif
