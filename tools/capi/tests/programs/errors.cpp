// Errors of the C++ interface: thrown, returned, and moved-from objects.
//
//     errors ADDRESS TOKEN-FILE
#include <farcore.hpp>
#include <iostream>

namespace {

int wrong = 0;

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::cerr << "line " << __LINE__ << ": " #condition << "\n";                           \
            wrong++;                                                                               \
        }                                                                                          \
    } while (false)

template <class F> farcore_code thrown(F &&call) {
    try {
        call();
    } catch (const farcore::Error &error) {
        return error.code();
    }
    return FARCORE_OK;
}

void connections(const std::string &address, farcore::Options options) {
    EXPECT(thrown([&] { farcore::Client client("nowhere", options); }) == FARCORE_INVALID_ARGUMENT);
    const auto unreachable = farcore::Client::connect("tcp://127.0.0.1:1", options);
    EXPECT(!unreachable && unreachable.code() == FARCORE_UNREACHABLE);
    EXPECT(std::string(unreachable.message()).find("127.0.0.1:1") != std::string::npos);
    options.token_file = "/nonexistent/token";
    EXPECT(farcore::Client::connect(address, options).code() == FARCORE_INVALID_ARGUMENT);
    options.token_file.reset();
    options.landings = {{4095, 1}};
    EXPECT(farcore::Client::connect(address, options).code() == FARCORE_INVALID_ARGUMENT);
    options.landings = {{4096, 70000}};
    EXPECT(farcore::Client::connect(address, options).code() == FARCORE_INVALID_ARGUMENT);
    options.landings.reset();
    options.token = "another token of a test";
    options.timeout = std::chrono::milliseconds(-5);
    EXPECT(farcore::Client::connect(address, options).code() == FARCORE_INVALID_ARGUMENT);
    options.timeout = std::chrono::seconds(20);
    EXPECT(farcore::Client::connect(address, options).code() == FARCORE_WRONG_TOKEN);
}

void operations(farcore::Client &client) {
    const std::string long_key(2000, 'k');
    EXPECT(thrown([&] { client.get(long_key); }) == FARCORE_KEY_TOO_LONG);
    EXPECT(client.try_put(long_key, "v").code() == FARCORE_KEY_TOO_LONG);
    EXPECT(client.try_get("").code() == FARCORE_KEY_TOO_LONG);
    EXPECT(!client.get("absent"));
    EXPECT(!client.inspect("absent"));
    EXPECT(!client.erase("absent"));
    EXPECT(!client.erase_if("absent", 7));
    EXPECT(client.increment("number", 7) == 7);
    EXPECT(client.increment("number", -9) == -2);
    client.put("text", "abc");
    EXPECT(thrown([&] { client.increment("text", 1); }) == FARCORE_WRONG_KIND);
    EXPECT(!client.expire("absent", FARCORE_EXPIRY_NEVER, std::chrono::milliseconds(0)));
    client.ping();

    farcore::PutOptions options;
    options.condition = FARCORE_CONDITION_ABSENT;
    options.expiry = FARCORE_EXPIRY_IN;
    options.expires = std::chrono::minutes(1);
    const auto refused = client.put_with("text", "def", options);
    EXPECT(!refused && refused.code == FARCORE_EXISTS);
    EXPECT(refused.version == client.get("text")->version());
    EXPECT(client.put_with("new", "def", options));
    EXPECT(client.inspect("new")->expiry_ms != FARCORE_NEVER);
    EXPECT(client.erase_if("text", refused.version));

    auto pending = client.submit_get("new");
    pending.wait();
    EXPECT(pending.ready() && pending.valid());
    farcore::Pending<std::optional<farcore::Value>> moved = std::move(pending);
    EXPECT(moved.get()->view() == "def");
    EXPECT(!moved.valid() && moved.ready());
    EXPECT(moved.try_get().code() == FARCORE_TAKEN);
    EXPECT(thrown([&] { moved.get(); }) == FARCORE_TAKEN);

    const farcore::Batch batch = client.get_many({"new", "absent", ""});
    EXPECT(batch.size() == 3);
    EXPECT(batch[0] && batch[0].value == "def");
    EXPECT(batch[1].code == FARCORE_NOT_FOUND && !batch[1].value && !batch[1].message.empty());
    EXPECT(batch[2].code == FARCORE_KEY_TOO_LONG);
    EXPECT(thrown([&] { batch[3]; }) == FARCORE_INVALID_ARGUMENT);
}

void values(farcore::Client &client) {
    client.put("empty", "");
    auto empty = client.get("empty");
    EXPECT(empty && empty->size() == 0 && empty->str().empty());
    const std::string bytes(100000, '\0');
    client.put("long", bytes);
    auto found = client.get("long");
    EXPECT(found && found->view() == bytes);
    *empty = std::move(*found);
    EXPECT(empty->size() == 100000);
}

void closed(farcore::Client client) {
    farcore::Client other = std::move(client);
    EXPECT(client.try_ping().code() == FARCORE_INVALID_ARGUMENT);
    other.close();
    EXPECT(other.try_ping().code() == FARCORE_CLOSED);
    auto pending = other.submit_put("k", "v");
    EXPECT(pending.ready());
    EXPECT(thrown([&] { pending.get(); }) == FARCORE_CLOSED);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::cerr << "usage: errors ADDRESS TOKEN-FILE\n";
        return 2;
    }
    farcore::Options options;
    options.timeout = std::chrono::seconds(20);
    options.token_file = argv[2];
    options.name = "errors";
    options.queue = 64;
    options.credits = 16;
    options.small_bytes = 8192;
    options.transfer = FARCORE_TRANSFER_READ;
    options.landings = {{65536, 4}};
    options.spin = std::chrono::microseconds(10);
    options.device = "mlx5_0";
    options.port = 1;
    options.gid_index = 3;
    try {
        connections(argv[1], options);
        farcore::Client client(argv[1], options);
        operations(client);
        values(client);
        closed(std::move(client));
    } catch (const farcore::Error &error) {
        std::cerr << error.code() << ": " << error.what() << "\n";
        return 1;
    }
    std::cout << wrong << " wrong\n";
    return wrong == 0 ? 0 : 1;
}
