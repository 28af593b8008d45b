// Keeps several operations under way, and takes each outcome when it is there.
//
//     ./pipeline tcp://127.0.0.1:7401 [token file]
#include <deque>
#include <farcore.hpp>
#include <iostream>

namespace {

constexpr std::size_t WINDOW = 16;
constexpr int COUNT = 500;

std::string key_of(int number) { return "pipeline-cpp-" + std::to_string(number); }

void run(farcore::Client &client) {
    int stored = 0, read = 0;
    std::deque<farcore::Pending<farcore::Version>> puts;
    for (int number = 0; number < COUNT; number++) {
        if (puts.size() == WINDOW) {
            stored += puts.front().get() > 0 ? 1 : 0;
            puts.pop_front();
        }
        puts.push_back(client.submit_put(key_of(number), std::to_string(number)));
    }
    for (; !puts.empty(); puts.pop_front()) {
        stored += puts.front().get() > 0 ? 1 : 0;
    }
    std::cout << "stored: " << stored << "\n";

    // Without exceptions, and without waiting for longer than a millisecond at once.
    for (int number = 0; number < COUNT; number++) {
        auto get = client.submit_get(key_of(number));
        while (!get.ready()) {
            // Other work of the program belongs here.
            get.wait_for(std::chrono::milliseconds(1));
        }
        const auto found = get.try_get();
        if (found && found.value() && found.value()->view() == std::to_string(number)) {
            read++;
        }
    }
    std::cout << "read: " << read << "\n";
}

} // namespace

int main(int argc, char **argv) {
    try {
        farcore::Options options;
        options.timeout = std::chrono::seconds(20);
        if (argc > 2) {
            options.token_file = argv[2];
        }
        farcore::Client client(argc > 1 ? argv[1] : "tcp://127.0.0.1:7401", options);
        run(client);
    } catch (const farcore::Error &error) {
        std::cerr << error.code() << ": " << error.what() << "\n";
        return 1;
    }
}
