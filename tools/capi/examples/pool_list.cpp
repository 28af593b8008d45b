// A list in remote memory, whose nodes come from an allocator. The links are remote pointers.
//
//     ./pool_list [tcp://10.0.0.1:7400 ...]            without nodes: in this process
#include <farcore.hpp>
#include <iostream>

namespace {

/// A list of numbers. It owns its nodes, and keeps the pointer to the first.
class List {
  public:
    explicit List(const farcore::Pool &pool) : nodes_(pool) {}

    List(const List &) = delete;
    List &operator=(const List &) = delete;

    ~List() {
        try {
            while (first_) {
                pop();
            }
        } catch (const farcore::Error &error) {
            // A node of the fabric is gone: what is left is freed with the pool.
            std::cerr << error.what() << "\n";
        }
    }

    void push(std::uint64_t number) {
        const farcore::remote_ptr<Node> node = nodes_.allocate(1);
        node.write(nodes_.pool(), {number, first_});
        first_ = node;
    }

    std::uint64_t pop() {
        const Node node = first_.read(nodes_.pool());
        nodes_.deallocate(first_, 1);
        first_ = node.next;
        return node.number;
    }

    std::uint64_t sum() const {
        std::uint64_t sum = 0;
        for (auto at = first_; at;) {
            const Node node = at.read(nodes_.pool());
            sum += node.number;
            at = node.next;
        }
        return sum;
    }

  private:
    struct Node {
        std::uint64_t number;
        farcore::remote_ptr<Node> next;
    };

    farcore::allocator<Node> nodes_;
    farcore::remote_ptr<Node> first_;
};

void run(const farcore::Pool &pool) {
    List list(pool);
    for (std::uint64_t number = 1; number <= 100; number++) {
        list.push(number);
    }
    std::cout << "sum: " << list.sum() << "\n";
    std::cout << "last: " << list.pop() << "\n";
    std::cout << "left: " << list.sum() << "\n";
}

/// The bytes that are allocated on all nodes.
std::uint64_t allocated(const farcore::Pool &pool) {
    std::uint64_t bytes = 0;
    for (const farcore_node &node : pool.nodes()) {
        bytes += node.allocated_bytes;
    }
    return bytes;
}

} // namespace

int main(int argc, char **argv) {
    try {
        const farcore::Pool pool =
            argc > 1 ? farcore::Pool(std::vector<std::string>(argv + 1, argv + argc))
                     : farcore::Pool::embedded(1 << 20);
        run(pool);
        std::cout << "allocated: " << allocated(pool) << "\n";
    } catch (const farcore::Error &error) {
        std::cerr << error.code() << ": " << error.what() << "\n";
        return 1;
    }
}
