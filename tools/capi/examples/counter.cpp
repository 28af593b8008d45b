// A counter that several threads raise at once: read, add, compare-and-swap, and again if another
// one was faster.
//
//     ./counter tcp://127.0.0.1:7401 [token file]
#include <farcore.hpp>
#include <iostream>
#include <thread>

namespace {

const std::string KEY = "counter-cpp";

void add_one(farcore::Client &client) {
    for (;;) {
        const auto found = client.get(KEY);
        const auto sum = found ? std::stoull(found->str()) + 1 : 1;
        const farcore::Version version = found ? found->version() : 0;
        if (client.compare_and_swap(KEY, std::to_string(sum), version)) {
            return;
        }
    }
}

void run(farcore::Client &client) {
    client.erase(KEY);
    // An exception must not leave a thread, so each keeps its error as a value.
    std::vector<std::string> errors(4);
    std::vector<std::thread> threads;
    for (std::string &error : errors) {
        threads.emplace_back([&client, &error] {
            try {
                for (int round = 0; round < 50; round++) {
                    add_one(client);
                }
            } catch (const farcore::Error &failure) {
                error = failure.what();
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (const std::string &error : errors) {
        std::cerr << error;
    }
    const auto found = client.get(KEY);
    std::cout << "counter: " << (found ? found->view() : "none") << "\n";
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
