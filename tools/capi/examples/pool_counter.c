/* A counter in remote memory that several threads raise at once, and the highest of their numbers,
 * kept by compare-and-swap.
 *
 *     cc pool_counter.c $(pkg-config --cflags --libs farcore) -pthread -o pool_counter
 *     ./pool_counter [tcp://10.0.0.1:7400 ...]         without nodes: in this process
 */
#include <farcore.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, ROUNDS = 100 };

static farcore_pool *pool;
static farcore_ptr counter, highest;

static void check(const char *what, farcore_code code) {
    if (code != FARCORE_OK) {
        fprintf(stderr, "%s: %d: %s\n", what, (int)code, farcore_error_message());
        exit(1);
    }
}

static void raise_highest(uint64_t number) {
    uint64_t seen = 0, old;
    check("read", farcore_pool_read(pool, highest, &seen, sizeof seen));
    while (seen < number) {
        check("swap", farcore_pool_compare_and_swap(pool, highest, seen, number, &old));
        if (old == seen) {
            return;
        }
        /* Another thread was faster. */
        seen = old;
    }
}

static void *work(void *first) {
    for (uint64_t round = 0; round < ROUNDS; round++) {
        check("add", farcore_pool_fetch_add(pool, counter, 1, NULL));
        raise_highest(*(uint64_t *)first + round);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        check("connect",
              farcore_pool_connect((const char *const *)(argv + 1), (size_t)argc - 1, NULL, &pool));
    } else {
        check("embedded", farcore_pool_embedded(1 << 20, &pool));
    }
    /* Two words; their contents are unspecified until they are written. */
    uint64_t words[2] = {0, 0};
    check("allocate", farcore_pool_allocate(pool, sizeof words, 8, NULL, &counter));
    check("write", farcore_pool_write(pool, counter, words, sizeof words));
    highest = farcore_ptr_add(counter, sizeof words[0]);

    pthread_t threads[THREADS];
    uint64_t firsts[THREADS];
    for (int thread = 0; thread < THREADS; thread++) {
        firsts[thread] = (uint64_t)thread * 1000;
        if (pthread_create(&threads[thread], NULL, work, &firsts[thread]) != 0) {
            fprintf(stderr, "a thread cannot start\n");
            return 1;
        }
    }
    for (int thread = 0; thread < THREADS; thread++) {
        pthread_join(threads[thread], NULL);
    }
    check("read", farcore_pool_read(pool, counter, words, sizeof words));
    printf("counter: %llu, highest: %llu\n", (unsigned long long)words[0],
           (unsigned long long)words[1]);
    check("deallocate", farcore_pool_deallocate(pool, counter));
    farcore_pool_free(pool);
    return 0;
}
