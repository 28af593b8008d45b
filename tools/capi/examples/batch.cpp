// Stores, reads and removes many keys, several in one message.
//
//     ./batch tcp://127.0.0.1:7401 [token file]
#include <farcore.hpp>
#include <iostream>

namespace {

// How many outcomes of a batch are successes; a failure has a code and a text of its own.
std::size_t done(const farcore::Batch &batch) {
    std::size_t count = 0;
    for (std::size_t index = 0; index < batch.size(); index++) {
        const farcore::Item item = batch[index];
        if (item) {
            count++;
        } else {
            std::cout << "outcome " << index << ": " << item.message << "\n";
        }
    }
    return count;
}

void run(farcore::Client &client) {
    std::vector<std::string> keys, values;
    for (int index = 0; index < 100; index++) {
        keys.push_back("batch-cpp-" + std::to_string(index));
        values.push_back("value " + std::to_string(index * index));
    }
    std::vector<farcore::Pair> pairs;
    for (std::size_t index = 0; index < keys.size(); index++) {
        pairs.emplace_back(keys[index], values[index]);
    }
    const std::size_t stored = done(client.put_many(pairs));
    std::cout << "stored: " << stored << "\n";

    std::vector<std::string_view> names(keys.begin(), keys.end());
    names.push_back("batch-cpp-absent");
    const farcore::Batch found = client.get_many(names);
    const std::size_t read = done(found);
    std::cout << "read: " << read << "\n";
    for (std::size_t index = 0; index < values.size(); index++) {
        if (found[index].value != values[index]) {
            std::cout << "outcome " << index << " has another value\n";
        }
    }

    names.pop_back();
    const std::size_t removed = done(client.erase_many(names));
    std::cout << "removed: " << removed << "\n";
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
