/// Types of values in remote memory: what may be stored there, and how it is named for others.

#ifndef FARCORE_REMOTE_TYPE_HPP
#define FARCORE_REMOTE_TYPE_HPP

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include "../farcore.h"

namespace farcore {

/// The mark of a type, from its name and the marks of its parts; that of `farcore_type_of`.
constexpr std::uint64_t mark(std::string_view name,
                             std::initializer_list<std::uint64_t> parts = {}) {
    constexpr std::uint64_t PRIME = 0x100000001b3;
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char letter : name) {
        hash = (hash ^ static_cast<unsigned char>(letter)) * PRIME;
    }
    for (const std::uint64_t part : parts) {
        for (int bit = 0; bit < 64; bit += 8) {
            hash = (hash ^ (part >> bit & 0xff)) * PRIME;
        }
    }
    return hash;
}

/// The mark of a `T`, by which memory that is imported is checked. Numbers have those of Rust, so
/// programs in both languages share them. Specialise it for a struct of your own:
///
///     template <> struct farcore::type_mark<Order> {
///         static constexpr std::uint64_t value = farcore::mark(
///             "Order", {farcore::field<bool>("is_open"), farcore::field<double>("price")});
///     };
///
/// Without that, two types of equal size and alignment have one mark.
template <class T> struct type_mark {
    static constexpr std::uint64_t value = mark("c++", {sizeof(T), alignof(T)});
};

template <> struct type_mark<std::uint8_t> { static constexpr std::uint64_t value = mark("u8"); };
template <> struct type_mark<std::int8_t> { static constexpr std::uint64_t value = mark("i8"); };
template <> struct type_mark<std::uint16_t> { static constexpr std::uint64_t value = mark("u16"); };
template <> struct type_mark<std::int16_t> { static constexpr std::uint64_t value = mark("i16"); };
template <> struct type_mark<std::uint32_t> { static constexpr std::uint64_t value = mark("u32"); };
template <> struct type_mark<std::int32_t> { static constexpr std::uint64_t value = mark("i32"); };
template <> struct type_mark<std::uint64_t> { static constexpr std::uint64_t value = mark("u64"); };
template <> struct type_mark<std::int64_t> { static constexpr std::uint64_t value = mark("i64"); };
template <> struct type_mark<float> { static constexpr std::uint64_t value = mark("f32"); };
template <> struct type_mark<double> { static constexpr std::uint64_t value = mark("f64"); };
template <> struct type_mark<bool> { static constexpr std::uint64_t value = mark("bool"); };

/// The mark of a struct's field.
template <class T> constexpr std::uint64_t field(std::string_view name) {
    return mark(name, {type_mark<T>::value});
}

/// The type of a `T` for `farcore.h`.
template <class T> constexpr farcore_type type_of() { return {type_mark<T>::value, sizeof(T)}; }

namespace detail {

/// Fails to compile for a type that remote memory cannot hold.
template <class T> constexpr void check_type() {
    static_assert(std::is_trivially_copyable_v<T>,
                  "remote memory holds bytes: the type must be trivially copyable");
    static_assert(!std::is_pointer_v<T>,
                  "an address of this process means nothing to others: use a remote_ptr");
    static_assert(std::is_default_constructible_v<T> && !std::is_const_v<T>,
                  "a value is read into a variable: the type must be default constructible");
}

/// A pointer moved by values of a size. One that leaves what 64 bits hold stays out of bounds.
inline farcore_ptr moved(farcore_ptr ptr, std::int64_t count, std::size_t size) {
    const auto limit = INT64_MAX / static_cast<std::int64_t>(size);
    if (count > limit || count < -limit) {
        return farcore_ptr_add(farcore_ptr_add(ptr, INT64_MIN), INT64_MIN);
    }
    return farcore_ptr_add(ptr, count * static_cast<std::int64_t>(size));
}

/// A pointer to the value at an index.
inline farcore_ptr indexed(farcore_ptr ptr, std::size_t index, std::size_t size) {
    const auto count = index > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(index);
    return moved(ptr, count, size);
}

} // namespace detail

} // namespace farcore

#endif
