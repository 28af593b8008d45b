// The C++ interface of pools: errors thrown and returned, values that move, types of other
// programs.
//
//     pool_errors NODE0 NODE1 NODE-WITH-TOKEN NODE3 TOKEN-FILE WORDS ORDERS
#include <farcore.hpp>
#include <iostream>

struct Order {
    bool is_open;
    double price;
    std::uint32_t amount;
};

// As `#[derive(Plain)]` marks the struct of the test.
template <> struct farcore::type_mark<Order> {
    static constexpr std::uint64_t value =
        farcore::mark("Order", {farcore::field<bool>("is_open"), farcore::field<double>("price"),
                                farcore::field<std::uint32_t>("amount")});
};

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

void connections(const std::vector<std::string> &nodes, const std::string &token_file) {
    EXPECT(thrown([] { farcore::Pool pool({"nowhere"}); }) == FARCORE_INVALID_ARGUMENT);
    EXPECT(farcore::Pool::connect({}).code() == FARCORE_INVALID_ARGUMENT);
    farcore::PoolOptions options;
    options.nodes_min = {{1, std::chrono::milliseconds(50)}};
    const auto unreachable = farcore::Pool::connect({"tcp://127.0.0.1:1"}, options);
    EXPECT(!unreachable && unreachable.code() == FARCORE_UNREACHABLE);
    EXPECT(std::string(unreachable.message()).find("127.0.0.1:1") != std::string::npos);
    options.token = "another token of a test";
    EXPECT(farcore::Pool::connect({nodes[2]}, options).code() == FARCORE_WRONG_TOKEN);
    options.token.reset();
    options.token_file = token_file;
    options.name = "pool_errors";
    options.zone = "here";
    options.connections = 2;
    options.depth = 32;
    options.transfer_bytes = 8192;
    options.timeout = std::chrono::seconds(20);
    options.silence = std::chrono::seconds(2);
    options.spin = std::chrono::microseconds(10);
    options.device = "mlx5_0";
    options.port = 1;
    options.gid_index = 3;
    const farcore::Pool pool({"here=" + nodes[2]}, options);
    EXPECT(pool.nodes().size() == 1 && pool.nodes()[0].is_up);
    EXPECT(std::string(pool.nodes()[0].address) == "here=" + nodes[2]);
    // Longer than a transfer.
    std::vector<std::uint32_t> numbers(50000);
    for (std::size_t index = 0; index < numbers.size(); index++) {
        numbers[index] = std::uint32_t(index * 7);
    }
    EXPECT(pool.allocate_from(numbers).read_all() == numbers);
    options.timeout = std::chrono::milliseconds(-5);
    EXPECT(farcore::Pool::connect({nodes[2]}, options).code() == FARCORE_INVALID_ARGUMENT);
    EXPECT(farcore::Pool::try_embedded(UINT64_MAX).code() == FARCORE_CANNOT_START);
}

void slices(const farcore::Pool &pool) {
    auto words = pool.allocate_from<std::uint64_t>({1, 2, 3, 4});
    EXPECT(words.size() == 4 && !words.empty() && !words.loss());
    EXPECT(thrown([&] { words.read(4); }) == FARCORE_OUT_OF_BOUNDS);
    EXPECT(words.try_read(SIZE_MAX).code() == FARCORE_OUT_OF_BOUNDS);
    EXPECT(words.try_write(4, 1).code() == FARCORE_OUT_OF_BOUNDS);
    EXPECT(words.try_read_range(2, 3).code() == FARCORE_OUT_OF_BOUNDS);
    EXPECT(words.try_read_range(SIZE_MAX, 2).code() == FARCORE_OUT_OF_BOUNDS);
    EXPECT(words.submit_read_range(5, 0).try_get().code() == FARCORE_OUT_OF_BOUNDS);
    EXPECT(words.try_write_range(3, {1, 2}).code() == FARCORE_OUT_OF_BOUNDS);
    EXPECT(words.try_read_many({0, 9}).code() == FARCORE_OUT_OF_BOUNDS);
    EXPECT(words.try_write_many({0, 1}, {1}).code() == FARCORE_INVALID_ARGUMENT);
    EXPECT(words.try_fetch_add(4, 1).code() == FARCORE_OUT_OF_BOUNDS);
    EXPECT(words.compare_and_swap(0, 9, 10) == 1 && words.read(0) == 1);
    EXPECT(words.compare_and_swap(0, 1, 10) == 1 && words.read(0) == 10);
    words.write_many({3, 1}, {40, 20});
    EXPECT((words.read_many({1, 3, 2}) == std::vector<std::uint64_t>{20, 40, 3}));
    words.submit_write(2, 30).get();
    words.submit_write_range(0, {11, 12}).get();
    EXPECT((words.read_all() == std::vector<std::uint64_t>{11, 12, 30, 40}));
    EXPECT(words.submit_read(3).get() == 40);
    EXPECT(words.nodes().size() == 1);

    farcore::remote_slice<std::uint64_t> moved = std::move(words);
    EXPECT(words.empty() && words.try_read(0).code() == FARCORE_INVALID_ARGUMENT);
    EXPECT(words.submit_read(0).try_get().code() == FARCORE_INVALID_ARGUMENT);
    EXPECT(words.loss()->code() == FARCORE_INVALID_ARGUMENT);
    EXPECT(thrown([&] { words.export_text(true); }) == FARCORE_INVALID_ARGUMENT);
    const auto first = moved.ptr();
    moved = pool.allocate<std::uint64_t>(1);
    EXPECT(first.try_read(pool).code() == FARCORE_FREED);
    EXPECT(first.submit_read(pool).try_get().code() == FARCORE_FREED);
    words = std::move(moved);
    EXPECT(words.size() == 1 && moved.empty());
    words.free();
    EXPECT(words.empty());

    EXPECT(pool.try_allocate<std::uint64_t>(SIZE_MAX / 4).code() == FARCORE_TOO_LONG);
    EXPECT(pool.try_allocate<char>(std::size_t(1) << 40).code() == FARCORE_EXHAUSTED);
    const auto nowhere = farcore::Place::in("nowhere");
    EXPECT(pool.try_allocate<char>(1, nowhere).code() == FARCORE_NO_NODE);
    EXPECT(thrown([&] { pool.allocate<char>(1, farcore::Place::on(9)); }) == FARCORE_NO_NODE);
    EXPECT(pool.allocate<char>(1, farcore::Place::on(1)).nodes()[0] == 1);
    EXPECT(pool.allocate<char>(1, farcore::Place::beside(1)).nodes()[0] == 0);
    const auto spread = pool.allocate<char>(4 << 16, farcore::Place::spread());
    EXPECT(spread.nodes().size() > 1);
    EXPECT(pool.allocate<char>(0).read_all().empty());
}

void pointers(const farcore::Pool &pool) {
    const auto numbers = pool.allocate_from<std::int32_t>({10, 11, 12, 13});
    farcore::remote_ptr<std::int32_t> at = numbers.ptr(1), null;
    EXPECT(at && !null && at != null && at == numbers[1]);
    EXPECT(thrown([&] { null.read(pool); }) == FARCORE_INVALID_ARGUMENT);
    EXPECT(at[2].read(pool) == 13 && (at - 1).read(pool) == 10);
    EXPECT((at++).read(pool) == 11 && at.read(pool) == 12 && (--at).read(pool) == 11);
    at += 2;
    EXPECT(at.read(pool) == 13 && at - numbers.ptr() == 3);
    EXPECT(3 + numbers.ptr() == at && numbers.ptr() < at && at <= at && at >= at && !(at > at));
    EXPECT(null < at && at < numbers.ptr(4) && numbers.ptr() - 1 < numbers.ptr());
    at -= 4;
    EXPECT(at.try_read(pool).code() == FARCORE_OUT_OF_BOUNDS);
    EXPECT((at + 1).cast<std::int16_t>().read(pool) == 10);
    EXPECT((numbers.ptr() + INT64_MAX - INT64_MAX).try_read(pool).code() == FARCORE_OUT_OF_BOUNDS);
    EXPECT((numbers.ptr() - INT64_MIN).try_read(pool).code() == FARCORE_OUT_OF_BOUNDS);
    const auto word = numbers.ptr().cast<std::uint64_t>();
    const auto before = word.fetch_add(pool, 1);
    EXPECT(word.submit_fetch_add(pool, 1).get() == before + 1);
    EXPECT(word.submit_compare_and_swap(pool, before + 2, 7).get() == before + 2);
    EXPECT(word.read(pool) == 7);
    EXPECT(numbers.ptr(1).cast<std::uint64_t>().try_fetch_add(pool, 1).code() == FARCORE_UNALIGNED);
    word.submit_write(pool, 70).get();
    const auto many = farcore::read_many<std::int32_t>(pool, {numbers.ptr(), numbers.ptr(3)});
    EXPECT(many[0] == 70 && many[1] == 13);
    farcore::write_many<std::int32_t>(pool, {numbers.ptr(2)}, {-5});
    EXPECT(numbers.read(2) == -5);
    const farcore::Pool other = farcore::Pool::embedded(1 << 20);
    EXPECT(numbers.ptr().try_read(other).code() == FARCORE_FOREIGN);
    const auto elsewhere = other.allocate<std::int32_t>(1);
    EXPECT(thrown([&] { (void)(elsewhere.ptr() - numbers.ptr()); }) == FARCORE_INVALID_ARGUMENT);
}

void allocators(const farcore::Pool &pool) {
    const farcore::allocator<Order> orders(pool, farcore::Place::on(0));
    const auto two = orders.allocate(2);
    two[1].write(pool, {true, 1.5, 7});
    EXPECT(two[1].read(pool).amount == 7);
    EXPECT(two[2].try_read(pool).code() == FARCORE_OUT_OF_BOUNDS);
    orders.deallocate(two, 2);
    EXPECT(thrown([&] { orders.deallocate(two, 2); }) == FARCORE_FREED);
    orders.deallocate({}, 0);
    const farcore::allocator<char> bytes(orders);
    EXPECT(bytes.try_allocate(std::size_t(1) << 40).code() == FARCORE_EXHAUSTED);
    EXPECT(farcore::allocator<Order>(bytes) == orders);
    EXPECT(farcore::allocator<Order>(farcore::Pool::embedded(1 << 20)) != orders);
}

struct Range {
    std::uint64_t first, last;
};

void calls(const farcore::Pool &pool) {
    EXPECT(pool.call<std::uint64_t>(0, "sum", Range{1, 100}) == 5050);
    EXPECT(pool.call<std::string>(0, "echo", "text") == "text");
    EXPECT(pool.call<std::string>(0, "echo").empty());
    pool.call<void>(0, "echo");
    EXPECT(pool.try_call<void>(0, "echo", "text").code() == FARCORE_WRONG_TYPE);
    EXPECT(pool.try_call<std::uint32_t>(0, "sum", Range{1, 2}).code() == FARCORE_WRONG_TYPE);
    EXPECT(pool.try_call<std::uint64_t>(0, "sum").code() == FARCORE_PROCEDURE);
    EXPECT(thrown([&] { pool.call<void>(9, "sum"); }) == FARCORE_NO_NODE);
    auto pending = pool.submit_call<std::uint64_t>(0, "sum", Range{1, 2});
    EXPECT(pending.get() == 3 && !pending.valid());
    auto letters = pool.allocate_from<char>({'H', 'A', 'L'});
    letters.call<void>("add", std::uint8_t(1));
    EXPECT((letters.read_all() == std::vector<char>{'I', 'B', 'M'}));
    EXPECT(letters.try_call<void>("add").code() == FARCORE_PROCEDURE);
    letters.free();
    EXPECT(letters.try_call<void>("add").code() == FARCORE_INVALID_ARGUMENT);
}

void shares(const farcore::Pool &pool, const std::vector<std::string> &nodes) {
    const farcore::Pool other({nodes[0], nodes[1]});
    auto own = pool.allocate_from<Order>({{true, 0.5, 1}, {false, 1.5, 2}});
    const std::string text = own.export_text(true);
    const auto theirs = other.import <Order>(text);
    EXPECT(theirs.size() == 2 && theirs.read(1).price == 1.5);
    theirs.write(0, {false, 2.5, 3});
    EXPECT(own.read(0).amount == 3);
    EXPECT(other.try_import<std::uint64_t>(text).code() == FARCORE_WRONG_TYPE);
    EXPECT(thrown([&] { other.import <Order>("nothing"); }) == FARCORE_MALFORMED);
    const auto readable = other.import <Order>(own.export_text(false));
    EXPECT(readable.try_write(0, {}).code() == FARCORE_READ_ONLY);
    EXPECT(readable.try_export_text(true).code() == FARCORE_GONE);

    auto given = pool.allocate_from<std::uint64_t>({5});
    const std::string parcel = given.transfer();
    EXPECT(given.empty());
    const auto taken = other.import <std::uint64_t>(parcel);
    EXPECT(taken.read(0) == 5);
    EXPECT(pool.try_import<std::uint64_t>(parcel).code() == FARCORE_GONE);
    auto here = farcore::Pool::embedded(1 << 20).allocate<char>(1);
    EXPECT(here.try_transfer().code() == FARCORE_EMBEDDED && here.size() == 1);
}

// What a program in Rust has exported.
void rust(const std::string &node, const std::string &words, const std::string &orders) {
    const farcore::Pool pool({node});
    EXPECT((pool.import <std::uint64_t>(words).read_all() == std::vector<std::uint64_t>{7, 8, 9}));
    EXPECT(pool.try_import<std::int64_t>(words).code() == FARCORE_WRONG_TYPE);
    const auto found = pool.import <Order>(orders);
    EXPECT(found.size() == 3);
    const auto last = found.read(2);
    EXPECT(!last.is_open && last.price == 1.5 && last.amount == 3);
    found.write(2, {true, 1.5, 77});
}

// The slices keep the pool, which ends with the last of them; a closed one refuses everything.
void ends() {
    std::optional<farcore::Pool> pool(farcore::Pool::embedded(1 << 20));
    auto slice = pool->allocate_from<std::uint64_t>({3});
    auto pending = slice.submit_read(0);
    pool.reset();
    EXPECT(slice.read(0) == 3);
    slice.free();
    EXPECT(pending.get() == 3);
    farcore::Pool closed = farcore::Pool::embedded(1 << 20);
    auto left = closed.allocate<char>(1);
    closed.close();
    EXPECT(left.try_read(0).code() == FARCORE_CLOSED);
    EXPECT(closed.try_allocate<char>(1).code() == FARCORE_CLOSED);
    EXPECT(thrown([&] { closed.nodes(); }) == FARCORE_CLOSED);
    EXPECT(left.loss()->code() == FARCORE_CLOSED);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 8) {
        std::cerr << "usage: pool_errors NODE0 NODE1 NODE2 NODE3 TOKEN-FILE WORDS ORDERS\n";
        return 2;
    }
    const std::vector<std::string> nodes(argv + 1, argv + 5);
    try {
        connections(nodes, argv[5]);
        const farcore::Pool pool({nodes[0], nodes[1]});
        slices(pool);
        pointers(pool);
        allocators(pool);
        calls(pool);
        shares(pool, nodes);
        rust(nodes[3], argv[6], argv[7]);
        ends();
    } catch (const farcore::Error &error) {
        std::cerr << error.code() << ": " << error.what() << "\n";
        return 1;
    }
    std::cout << wrong << " wrong\n";
    return wrong == 0 ? 0 : 1;
}
