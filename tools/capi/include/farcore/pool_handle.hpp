/// A pool of remote memory: how it is opened, and what it allocates.

#ifndef FARCORE_POOL_HANDLE_HPP
#define FARCORE_POOL_HANDLE_HPP

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
#include "remote_call.hpp"
#include "remote_type.hpp"

namespace farcore {

template <class T> class remote_slice;

/// What a pool is made with. What is not set has the default of `farcore.h`.
struct PoolOptions {
    /// The secret that the pool and its nodes share.
    std::optional<std::string> token;
    /// A file with it, which is read while connecting.
    std::optional<std::string> token_file;
    /// The pool's name in the logs of the nodes.
    std::optional<std::string> name;
    /// This program's zone: memory is allocated on nodes of this zone first.
    std::optional<std::string> zone;
    /// Connections to each node.
    std::optional<std::uint32_t> connections;
    /// Requests in flight on each.
    std::optional<std::uint32_t> depth;
    /// The longest single transfer, in bytes.
    std::optional<std::uint32_t> transfer_bytes;
    /// How long an operation waits for a node that does not answer.
    std::optional<std::chrono::milliseconds> timeout;
    /// How long a node may leave all requests unanswered before its connection counts as lost.
    std::optional<std::chrono::milliseconds> silence;
    /// How many nodes must answer at the start, and how long it waits for them; 0 nodes means all.
    std::optional<std::pair<std::uint32_t, std::chrono::milliseconds>> nodes_min;
    /// How long a waiting thread polls before it sleeps.
    std::optional<std::chrono::microseconds> spin;
    /// The RDMA device, such as "mlx5_0".
    std::optional<std::string> device;
    /// Its port, from 1.
    std::optional<std::uint32_t> port;
    /// The entry of the port's GID table.
    std::optional<std::uint32_t> gid_index;
};

/// Where memory is allocated.
struct Place {
    farcore_placement placement = FARCORE_PLACEMENT_BALANCED;
    std::uint32_t node = 0;
    std::string zone = {};

    /// On the node with an index.
    static Place on(std::uint32_t node) { return {FARCORE_PLACEMENT_NODE, node, {}}; }
    /// On a node of a zone.
    static Place in(std::string zone) { return {FARCORE_PLACEMENT_ZONE, 0, std::move(zone)}; }
    /// On any node but one: for a second copy.
    static Place beside(std::uint32_t node) { return {FARCORE_PLACEMENT_BESIDE, node, {}}; }
    /// In equal parts on all nodes.
    static Place spread() { return {FARCORE_PLACEMENT_SPREAD, 0, {}}; }

    /// For the C interface, as long as this lives.
    farcore_place get() const { return {placement, node, zone.c_str()}; }
};

/// Sessions at memory nodes, for any number of threads. Copies share them, as what is allocated
/// does: the pool is closed when the last of all these is destroyed.
///
/// Each operation has two forms: `allocate` throws `Error`, `try_allocate` returns a `Result`.
class Pool {
  public:
    /// Connects to memory nodes, each named as `[zone=]scheme://host[:port]`. Throws `Error`.
    explicit Pool(const std::vector<std::string> &nodes, const PoolOptions &options = {})
        : Pool(connect(nodes, options).value()) {}

    /// Connects, and throws no `Error`.
    static Result<Pool> connect(const std::vector<std::string> &nodes,
                                const PoolOptions &options = {}) {
        const std::unique_ptr<farcore_pool_options, FreeOptions> settings(
            farcore_pool_options_new());
        const farcore_code set = apply(options, settings.get());
        if (set != FARCORE_OK) {
            return Error::last(set);
        }
        std::vector<const char *> names;
        names.reserve(nodes.size());
        for (const auto &node : nodes) {
            names.push_back(node.c_str());
        }
        farcore_pool *pool = nullptr;
        const farcore_code code =
            farcore_pool_connect(names.data(), names.size(), settings.get(), &pool);
        return opened(code, pool);
    }

    /// A pool in this process, for a first program and for tests. Throws `Error`.
    static Pool embedded(std::uint64_t bytes) { return try_embedded(bytes).value(); }

    static Result<Pool> try_embedded(std::uint64_t bytes) {
        farcore_pool *pool = nullptr;
        const farcore_code code = farcore_pool_embedded(bytes, &pool);
        return opened(code, pool);
    }

    /// The handle of the C interface, which the copies of this pool own together.
    farcore_pool *handle() const noexcept { return pool_.get(); }

    /// Frees all memory of the pool, and ends its sessions. Later operations fail with
    /// `FARCORE_CLOSED`, those of its slices too.
    void close() noexcept { farcore_pool_close(pool_.get()); }

    /// Allocates values; their contents are unspecified.
    template <class T> remote_slice<T> allocate(std::size_t count, const Place &place = {}) const {
        return try_allocate<T>(count, place).value();
    }

    // In remote_slice.hpp, as the others that make a slice.
    template <class T>
    Result<remote_slice<T>> try_allocate(std::size_t count, const Place &place = {}) const;

    /// Allocates values, and stores some.
    template <class T>
    remote_slice<T> allocate_from(const std::vector<T> &values, const Place &place = {}) const {
        return try_allocate_from(values, place).value();
    }

    template <class T>
    Result<remote_slice<T>> try_allocate_from(const std::vector<T> &values,
                                              const Place &place = {}) const;

    /// Imports memory that another process has exported, or given away, as values of this type.
    template <class T> remote_slice<T> import(const std::string &text) const {
        return try_import<T>(text).value();
    }

    template <class T> Result<remote_slice<T>> try_import(const std::string &text) const;

    /// Calls a procedure of the program that hosts the node with an index. Argument and answer are
    /// values of types that remote memory may hold; a text, and `std::string`, are bytes. An answer
    /// of another length is `FARCORE_WRONG_TYPE`.
    template <class R, class A = std::string_view>
    R call(std::uint32_t node, const std::string &procedure, const A &argument = {}) const {
        return try_call<R>(node, procedure, argument).value();
    }

    template <class R, class A = std::string_view>
    Result<R> try_call(std::uint32_t node, const std::string &procedure,
                       const A &argument = {}) const {
        return submit_call<R>(node, procedure, argument).try_get();
    }

    template <class R, class A = std::string_view>
    PendingCall<R> submit_call(std::uint32_t node, const std::string &procedure,
                               const A &argument = {}) const {
        const std::string_view bytes = detail::argument_of(argument);
        farcore_operation *operation = nullptr;
        const farcore_code code = farcore_pool_submit_call(
            pool_.get(), node, procedure.c_str(), bytes.data(), bytes.size(), &operation);
        return code == FARCORE_OK ? PendingCall<R>(operation) : PendingCall<R>(Error::last(code));
    }

    /// The figures of the memory nodes, in the order of their addresses.
    std::vector<farcore_node> nodes() const { return try_nodes().value(); }

    Result<std::vector<farcore_node>> try_nodes() const {
        std::uint32_t count = 0;
        farcore_code code = farcore_pool_node_count(pool_.get(), &count);
        std::vector<farcore_node> nodes(count);
        for (std::uint32_t index = 0; code == FARCORE_OK && index < count; index++) {
            code = farcore_pool_node(pool_.get(), index, &nodes[index]);
        }
        if (code != FARCORE_OK) {
            return Error::last(code);
        }
        return nodes;
    }

  private:
    struct FreeOptions {
        void operator()(farcore_pool_options *options) const noexcept {
            farcore_pool_options_free(options);
        }
    };

    explicit Pool(farcore_pool *pool) : pool_(pool, farcore_pool_free) {}

    static Result<Pool> opened(farcore_code code, farcore_pool *pool) {
        return code == FARCORE_OK ? Result<Pool>(Pool(pool)) : Result<Pool>(Error::last(code));
    }

    /// A negative time is none, which the C interface refuses where it must.
    template <class Time> static std::uint64_t count(Time time) {
        return time.count() < 0 ? 0 : static_cast<std::uint64_t>(time.count());
    }

    /// Sets what is not the default; the code of the first that fails.
    static farcore_code apply(const PoolOptions &from, farcore_pool_options *to) {
        farcore_code code = FARCORE_OK;
        const auto set = [&code](bool is_set, auto &&change) {
            if (is_set && code == FARCORE_OK) {
                code = change();
            }
        };
        set(from.token.has_value(), [&] {
            return farcore_pool_options_set_token(to, from.token->data(), from.token->size());
        });
        set(from.token_file.has_value(),
            [&] { return farcore_pool_options_set_token_file(to, from.token_file->c_str()); });
        set(from.name.has_value(),
            [&] { return farcore_pool_options_set_name(to, from.name->c_str()); });
        set(from.zone.has_value(),
            [&] { return farcore_pool_options_set_zone(to, from.zone->c_str()); });
        set(from.connections.has_value(),
            [&] { return farcore_pool_options_set_connections(to, *from.connections); });
        set(from.depth.has_value(),
            [&] { return farcore_pool_options_set_depth(to, *from.depth); });
        set(from.transfer_bytes.has_value(),
            [&] { return farcore_pool_options_set_transfer_bytes(to, *from.transfer_bytes); });
        set(from.timeout.has_value(),
            [&] { return farcore_pool_options_set_timeout_ms(to, count(*from.timeout)); });
        set(from.silence.has_value(),
            [&] { return farcore_pool_options_set_silence_ms(to, count(*from.silence)); });
        set(from.nodes_min.has_value(), [&] {
            const auto &[least, wait] = *from.nodes_min;
            return farcore_pool_options_set_nodes_min(to, least, count(wait));
        });
        set(from.spin.has_value(),
            [&] { return farcore_pool_options_set_spin_us(to, count(*from.spin)); });
        set(from.device.has_value(),
            [&] { return farcore_pool_options_set_device(to, from.device->c_str()); });
        set(from.port.has_value(), [&] { return farcore_pool_options_set_port(to, *from.port); });
        set(from.gid_index.has_value(),
            [&] { return farcore_pool_options_set_gid_index(to, *from.gid_index); });
        return code;
    }

    std::shared_ptr<farcore_pool> pool_;
};

} // namespace farcore

#endif
