// Stores a value, reads it back, and removes it.
//
//     c++ -std=c++17 quick_start.cpp $(pkg-config --cflags --libs farcore) -o quick_start
//     ./quick_start tcp://127.0.0.1:7401 [token file]
#include <farcore.hpp>
#include <iostream>

int main(int argc, char **argv) {
    using namespace std::chrono_literals;
    try {
        farcore::Options options;
        options.timeout = 20s;
        if (argc > 2) {
            options.token_file = argv[2];
        }
        farcore::Client client(argc > 1 ? argv[1] : "tcp://127.0.0.1:7401", options);

        const farcore::Version version = client.put("greeting", "hello");
        const std::optional<farcore::Value> value = client.get("greeting");
        if (value) {
            std::cout << value->view() << ", version "
                      << (value->version() == version ? "as stored" : "of another put") << "\n";
        }

        // In a minute the key expires by itself.
        client.expire("greeting", FARCORE_EXPIRY_IN, 60s);
        const auto metadata = client.inspect("greeting");
        std::cout << "expires: "
                  << (metadata && metadata->expiry_ms != FARCORE_NEVER ? "yes" : "never") << "\n";

        client.erase("greeting");
        std::cout << "exists: " << (client.exists("greeting") ? "yes" : "no") << "\n";
    } catch (const farcore::Error &error) {
        std::cerr << error.code() << ": " << error.what() << "\n";
        return 1;
    }
}
