// Typed values in remote memory: orders that are stored, read and changed, one by one and together.
//
//     c++ -std=c++17 pool_slice.cpp $(pkg-config --cflags --libs farcore) -o pool_slice
//     ./pool_slice [tcp://10.0.0.1:7400 ...]           without nodes: in this process
#include <farcore.hpp>
#include <iostream>

namespace {

struct Order {
    bool is_open;
    double price;
    std::uint32_t amount;
};

void run(const farcore::Pool &pool) {
    std::vector<Order> all;
    for (std::uint32_t number = 0; number < 1000; number++) {
        all.push_back({number % 3 == 0, number / 4.0, number});
    }
    // Freed by its destructor.
    const auto orders = pool.allocate_from(all);
    std::cout << "orders: " << orders.size() << ", the last: " << orders.read(999).amount << "\n";

    orders.write(3, {false, 9.5, 77});
    std::cout << "changed: " << orders.read(3).amount << "\n";

    double sum = 0;
    for (const Order &order : orders.read_many({1, 3, 5})) {
        sum += order.price;
    }
    std::cout << "sum: " << sum << "\n";

    // A pointer is copied and owns nothing. Each access is checked.
    const farcore::remote_ptr<Order> third = orders.ptr(3);
    std::cout << "behind it: " << (third + 1).read(pool).amount << "\n";
    const auto outside = (third + 997).try_read(pool);
    std::cout << "outside: " << (outside.code() == FARCORE_OUT_OF_BOUNDS ? "refused" : "read")
              << "\n";

    // Under way, while the program does something else.
    auto pending = orders.submit_read_range(10, 20);
    std::cout << "under way: " << pending.get().size() << "\n";

    auto words = pool.allocate_from<std::uint64_t>({5, 6});
    words.fetch_add(0, 10);
    words.compare_and_swap(1, 6, 60);
    for (const std::uint64_t word : words.read_all()) {
        std::cout << "word: " << word << "\n";
    }
    const auto first = words.ptr();
    words.free();
    std::cout << "freed: " << first.try_read(pool).message() << "\n";
}

} // namespace

int main(int argc, char **argv) {
    try {
        run(argc > 1 ? farcore::Pool(std::vector<std::string>(argv + 1, argv + argc))
                     : farcore::Pool::embedded(1 << 20));
    } catch (const farcore::Error &error) {
        std::cerr << error.code() << ": " << error.what() << "\n";
        return 1;
    }
}
