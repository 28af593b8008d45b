/// A client: what C++ programs use.

#ifndef FARCORE_CLIENT_HPP
#define FARCORE_CLIENT_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "error.hpp"
#include "pending.hpp"
#include "value.hpp"

namespace farcore {

/// What a client is made with. What is not set has the default of `farcore.h`.
struct Options {
    /// The secret that client and server share.
    std::optional<std::string> token;
    /// A file with it, which is read while connecting.
    std::optional<std::string> token_file;
    /// The time limit of each operation and of connecting.
    std::optional<std::chrono::milliseconds> timeout;
    /// The client's name in the server's log.
    std::optional<std::string> name;
    /// How many operations may wait to be sent.
    std::optional<std::uint32_t> queue;
    /// How many messages the server may send before the client has taken them.
    std::optional<std::uint32_t> credits;
    /// From which length on values travel beside messages, in bytes.
    std::optional<std::uint32_t> small_bytes;
    /// How values of that length are read.
    std::optional<farcore_transfer> transfer;
    /// The buffers that receive them: bytes of each, and how many.
    std::optional<std::pair<std::uint32_t, std::uint32_t>> landings;
    /// How long the client's thread polls without work before it sleeps.
    std::optional<std::chrono::microseconds> spin;
    /// The RDMA device, such as "mlx5_0".
    std::optional<std::string> device;
    /// Its port, from 1.
    std::optional<std::uint32_t> port;
    /// The entry of the port's GID table.
    std::optional<std::uint32_t> gid_index;
};

/// How and when a value is stored.
struct PutOptions {
    /// What the key must be.
    farcore_condition condition = FARCORE_CONDITION_ALWAYS;
    /// The version that `FARCORE_CONDITION_VERSION` requires.
    Version version = 0;
    /// When the key expires.
    farcore_expiry expiry = FARCORE_EXPIRY_NEVER;
    /// The time of `FARCORE_EXPIRY_AT`, since 1970, or of `FARCORE_EXPIRY_IN`, from now.
    std::chrono::milliseconds expires{0};
};

/// A key, and the value to store under it.
using Pair = std::pair<std::string_view, std::string_view>;

/// A connection to a server. Any number of threads may use it. The destructor ends what is under
/// way, and closes it.
///
/// Each operation has three forms. `get` waits and throws `Error`. `try_get` waits and returns a
/// `Result`. `submit_get` returns a `Pending` at once. Keys and values are copied before a call
/// returns.
class Client {
  public:
    /// Connects to `tcp://host:port`, `rdma://host:port` or `rdma+tcp://host:port`. Throws `Error`.
    explicit Client(const std::string &address, const Options &options = {})
        : Client(connect(address, options).value()) {}

    /// Connects, and throws no `Error`.
    static Result<Client> connect(const std::string &address, const Options &options = {}) {
        const std::unique_ptr<farcore_options, FreeOptions> settings(farcore_options_new());
        const farcore_code set = apply(options, settings.get());
        if (set != FARCORE_OK) {
            return Error::last(set);
        }
        farcore_client *client = nullptr;
        const farcore_code code = farcore_connect(address.c_str(), settings.get(), &client);
        if (code != FARCORE_OK) {
            return Error::last(code);
        }
        return Client(client);
    }

    /// The handle of the C interface, which this client owns.
    farcore_client *handle() const noexcept { return client_.get(); }

    /// Ends what is under way, and closes the connection. Later operations fail with
    /// `FARCORE_CLOSED`.
    void close() noexcept { farcore_client_close(client_.get()); }

    /// Reads a value; none if there is no such key.
    std::optional<Value> get(std::string_view key) { return try_get(key).value(); }

    Result<std::optional<Value>> try_get(std::string_view key) { return submit_get(key).try_get(); }

    Pending<std::optional<Value>> submit_get(std::string_view key) {
        farcore_operation *operation = nullptr;
        const farcore_code code =
            farcore_submit_get(client_.get(), key.data(), key.size(), &operation);
        return submitted<std::optional<Value>>(code, operation);
    }

    /// Stores a value, which never expires; returns its version.
    Version put(std::string_view key, std::string_view value) {
        return try_put(key, value).value();
    }

    Result<Version> try_put(std::string_view key, std::string_view value) {
        return submit_put(key, value).try_get();
    }

    Pending<Version> submit_put(std::string_view key, std::string_view value) {
        farcore_operation *operation = nullptr;
        const farcore_code code = farcore_submit_put(client_.get(), key.data(), key.size(),
                                                     value.data(), value.size(), &operation);
        return submitted<Version>(code, operation);
    }

    /// Stores a value if a condition holds, with an expiry.
    Change put_with(std::string_view key, std::string_view value, const PutOptions &options) {
        return try_put_with(key, value, options).value();
    }

    Result<Change> try_put_with(std::string_view key, std::string_view value,
                                const PutOptions &options) {
        return submit_put_with(key, value, options).try_get();
    }

    Pending<Change> submit_put_with(std::string_view key, std::string_view value,
                                    const PutOptions &options) {
        farcore_operation *operation = nullptr;
        farcore_put_options with{};
        with.condition = options.condition;
        with.version = options.version;
        with.expiry = options.expiry;
        with.expiry_ms = milliseconds(options.expires);
        const farcore_code code = farcore_submit_put_with(
            client_.get(), key.data(), key.size(), value.data(), value.size(), &with, &operation);
        return submitted<Change>(code, operation);
    }

    /// Removes a key; false if it was absent.
    bool erase(std::string_view key) { return try_erase(key).value(); }

    Result<bool> try_erase(std::string_view key) { return submit_erase(key).try_get(); }

    Pending<bool> submit_erase(std::string_view key) {
        farcore_operation *operation = nullptr;
        const farcore_code code =
            farcore_submit_delete(client_.get(), key.data(), key.size(), &operation);
        return submitted<bool>(code, operation);
    }

    /// Removes a key if it has a version.
    Change erase_if(std::string_view key, Version expected) {
        return try_erase_if(key, expected).value();
    }

    Result<Change> try_erase_if(std::string_view key, Version expected) {
        return submit_erase_if(key, expected).try_get();
    }

    Pending<Change> submit_erase_if(std::string_view key, Version expected) {
        farcore_operation *operation = nullptr;
        const farcore_code code =
            farcore_submit_delete_if(client_.get(), key.data(), key.size(), expected, &operation);
        return submitted<Change>(code, operation);
    }

    /// Stores a value if the key has a version; 0 expects that it is absent.
    Change compare_and_swap(std::string_view key, std::string_view value, Version expected) {
        return try_compare_and_swap(key, value, expected).value();
    }

    Result<Change> try_compare_and_swap(std::string_view key, std::string_view value,
                                        Version expected) {
        return submit_compare_and_swap(key, value, expected).try_get();
    }

    Pending<Change> submit_compare_and_swap(std::string_view key, std::string_view value,
                                            Version expected) {
        farcore_operation *operation = nullptr;
        const farcore_code code =
            farcore_submit_compare_and_swap(client_.get(), key.data(), key.size(), value.data(),
                                            value.size(), expected, &operation);
        return submitted<Change>(code, operation);
    }

    /// Adds to a decimal integer, and returns the sum; an absent key counts as 0.
    std::int64_t increment(std::string_view key, std::int64_t by) {
        return try_increment(key, by).value();
    }

    Result<std::int64_t> try_increment(std::string_view key, std::int64_t by) {
        return submit_increment(key, by).try_get();
    }

    Pending<std::int64_t> submit_increment(std::string_view key, std::int64_t by) {
        farcore_operation *operation = nullptr;
        const farcore_code code =
            farcore_submit_increment(client_.get(), key.data(), key.size(), by, &operation);
        return submitted<std::int64_t>(code, operation);
    }

    /// Sets when a key expires, if a condition on its present expiry holds; false if the condition
    /// does not hold, or the key is absent.
    bool expire(std::string_view key, farcore_expiry kind, std::chrono::milliseconds expires,
                farcore_expiry_condition condition = FARCORE_EXPIRY_CONDITION_ALWAYS) {
        return try_expire(key, kind, expires, condition).value();
    }

    Result<bool> try_expire(std::string_view key, farcore_expiry kind,
                            std::chrono::milliseconds expires,
                            farcore_expiry_condition condition = FARCORE_EXPIRY_CONDITION_ALWAYS) {
        return submit_expire(key, kind, expires, condition).try_get();
    }

    Pending<bool>
    submit_expire(std::string_view key, farcore_expiry kind, std::chrono::milliseconds expires,
                  farcore_expiry_condition condition = FARCORE_EXPIRY_CONDITION_ALWAYS) {
        farcore_operation *operation = nullptr;
        const farcore_code code =
            farcore_submit_expire(client_.get(), key.data(), key.size(), kind,
                                  milliseconds(expires), condition, &operation);
        return submitted<bool>(code, operation);
    }

    /// Reads what is known of a key beside its value; none if there is no such key.
    std::optional<Metadata> inspect(std::string_view key) { return try_inspect(key).value(); }

    Result<std::optional<Metadata>> try_inspect(std::string_view key) {
        return submit_inspect(key).try_get();
    }

    Pending<std::optional<Metadata>> submit_inspect(std::string_view key) {
        farcore_operation *operation = nullptr;
        const farcore_code code =
            farcore_submit_inspect(client_.get(), key.data(), key.size(), &operation);
        return submitted<std::optional<Metadata>>(code, operation);
    }

    /// Whether a key exists.
    bool exists(std::string_view key) { return try_exists(key).value(); }

    Result<bool> try_exists(std::string_view key) { return submit_exists(key).try_get(); }

    Pending<bool> submit_exists(std::string_view key) {
        farcore_operation *operation = nullptr;
        const farcore_code code =
            farcore_submit_exists(client_.get(), key.data(), key.size(), &operation);
        return submitted<bool>(code, operation);
    }

    /// Nothing; a round trip.
    void ping() { try_ping().value(); }

    Result<void> try_ping() { return submit_ping().try_get(); }

    Pending<void> submit_ping() {
        farcore_operation *operation = nullptr;
        const farcore_code code = farcore_submit_ping(client_.get(), &operation);
        return submitted<void>(code, operation);
    }

    /// Reads many values, in the order of the keys.
    Batch get_many(const std::vector<std::string_view> &keys) { return try_get_many(keys).value(); }

    Result<Batch> try_get_many(const std::vector<std::string_view> &keys) {
        return submit_get_many(keys).try_get();
    }

    Pending<Batch> submit_get_many(const std::vector<std::string_view> &keys) {
        farcore_operation *operation = nullptr;
        const auto list = slices_of(keys);
        const farcore_code code =
            farcore_submit_get_many(client_.get(), list.data(), list.size(), &operation);
        return submitted<Batch>(code, operation);
    }

    /// Stores many values, each for itself, in their order.
    Batch put_many(const std::vector<Pair> &pairs) { return try_put_many(pairs).value(); }

    Result<Batch> try_put_many(const std::vector<Pair> &pairs) {
        return submit_put_many(pairs).try_get();
    }

    Pending<Batch> submit_put_many(const std::vector<Pair> &pairs) {
        farcore_operation *operation = nullptr;
        const auto list = pairs_of(pairs);
        const farcore_code code =
            farcore_submit_put_many(client_.get(), list.data(), list.size(), &operation);
        return submitted<Batch>(code, operation);
    }

    /// Removes many keys, each for itself, in their order.
    Batch erase_many(const std::vector<std::string_view> &keys) {
        return try_erase_many(keys).value();
    }

    Result<Batch> try_erase_many(const std::vector<std::string_view> &keys) {
        return submit_erase_many(keys).try_get();
    }

    Pending<Batch> submit_erase_many(const std::vector<std::string_view> &keys) {
        farcore_operation *operation = nullptr;
        const auto list = slices_of(keys);
        const farcore_code code =
            farcore_submit_delete_many(client_.get(), list.data(), list.size(), &operation);
        return submitted<Batch>(code, operation);
    }

  private:
    struct FreeClient {
        void operator()(farcore_client *client) const noexcept { farcore_client_free(client); }
    };

    struct FreeOptions {
        void operator()(farcore_options *options) const noexcept { farcore_options_free(options); }
    };

    explicit Client(farcore_client *client) noexcept : client_(client) {}

    /// A time before now or before 1970 means the same as the earliest one.
    static std::uint64_t milliseconds(std::chrono::milliseconds time) {
        return time.count() < 0 ? 0 : static_cast<std::uint64_t>(time.count());
    }

    template <class T>
    static Pending<T> submitted(farcore_code code, farcore_operation *operation) {
        return code == FARCORE_OK ? Pending<T>(operation) : Pending<T>(Error::last(code));
    }

    static farcore_slice slice(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

    static std::vector<farcore_slice> slices_of(const std::vector<std::string_view> &keys) {
        std::vector<farcore_slice> slices;
        slices.reserve(keys.size());
        for (const auto &key : keys) {
            slices.push_back(slice(key));
        }
        return slices;
    }

    static std::vector<farcore_pair> pairs_of(const std::vector<Pair> &pairs) {
        std::vector<farcore_pair> given;
        given.reserve(pairs.size());
        for (const auto &[key, value] : pairs) {
            given.push_back({slice(key), slice(value)});
        }
        return given;
    }

    /// Sets what is not the default; the code of the first that fails.
    static farcore_code apply(const Options &from, farcore_options *to) {
        farcore_code code = FARCORE_OK;
        const auto set = [&code](bool is_set, auto &&change) {
            if (is_set && code == FARCORE_OK) {
                code = change();
            }
        };
        set(from.token.has_value(),
            [&] { return farcore_options_set_token(to, from.token->data(), from.token->size()); });
        set(from.token_file.has_value(),
            [&] { return farcore_options_set_token_file(to, from.token_file->c_str()); });
        set(from.timeout.has_value(),
            [&] { return farcore_options_set_timeout_ms(to, milliseconds(*from.timeout)); });
        set(from.name.has_value(),
            [&] { return farcore_options_set_name(to, from.name->c_str()); });
        set(from.queue.has_value(), [&] { return farcore_options_set_queue(to, *from.queue); });
        set(from.credits.has_value(),
            [&] { return farcore_options_set_credits(to, *from.credits); });
        set(from.small_bytes.has_value(),
            [&] { return farcore_options_set_small_bytes(to, *from.small_bytes); });
        set(from.transfer.has_value(),
            [&] { return farcore_options_set_transfer(to, *from.transfer); });
        set(from.landings.has_value(), [&] {
            return farcore_options_set_landings(to, from.landings->first, from.landings->second);
        });
        set(from.spin.has_value(), [&] {
            const auto count = from.spin->count();
            return farcore_options_set_spin_us(to, count < 0 ? 0 : std::uint64_t(count));
        });
        set(from.device.has_value(),
            [&] { return farcore_options_set_device(to, from.device->c_str()); });
        set(from.port.has_value(), [&] { return farcore_options_set_port(to, *from.port); });
        set(from.gid_index.has_value(),
            [&] { return farcore_options_set_gid_index(to, *from.gid_index); });
        return code;
    }

    std::unique_ptr<farcore_client, FreeClient> client_;
};

} // namespace farcore

#endif
