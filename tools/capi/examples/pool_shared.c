/* Two pools, as two processes have them, share memory by a text, and one gives memory to the other.
 *
 *     ./pool_shared tcp://10.0.0.1:7400 [tcp://10.0.0.2:7400 ...]
 */
#include <farcore.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 1000 };

static void check(const char *what, farcore_code code) {
    if (code != FARCORE_OK) {
        fprintf(stderr, "%s: %d: %s\n", what, (int)code, farcore_error_message());
        exit(1);
    }
}

static farcore_ptr allocate(farcore_pool *pool, uint64_t first) {
    uint64_t words[WORDS];
    farcore_ptr ptr;
    for (int word = 0; word < WORDS; word++) {
        words[word] = first + (uint64_t)word;
    }
    check("allocate", farcore_pool_allocate(pool, sizeof words, 8, NULL, &ptr));
    check("write", farcore_pool_write(pool, ptr, words, sizeof words));
    return ptr;
}

static unsigned long long word_at(farcore_pool *pool, farcore_ptr ptr, int word) {
    uint64_t found;
    ptr = farcore_ptr_add(ptr, word * (int64_t)sizeof found);
    check("read", farcore_pool_read(pool, ptr, &found, sizeof found));
    return found;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: pool_shared NODE...\n");
        return 2;
    }
    const char *const *nodes = (const char *const *)(argv + 1);
    farcore_pool *first = NULL, *second = NULL;
    check("connect", farcore_pool_connect(nodes, (size_t)argc - 1, NULL, &first));
    check("connect", farcore_pool_connect(nodes, (size_t)argc - 1, NULL, &second));

    /* Words, as a program in Rust names them. It could import them, too. */
    farcore_type words;
    check("type", farcore_type_of("u64", NULL, 0, sizeof(uint64_t), &words));

    /* The text reaches the other process by any way that keeps it secret. */
    farcore_ptr own = allocate(first, 100), shared;
    farcore_value text;
    check("export", farcore_pool_export(first, own, &words, true, &text));
    check("import", farcore_pool_import(second, (const char *)text.bytes, &words, &shared));
    farcore_value_free(&text);
    size_t bytes = 0;
    check("length", farcore_pool_length(second, shared, &bytes));
    printf("shared: %zu bytes, the last is %llu\n", bytes, word_at(second, shared, WORDS - 1));
    check("add", farcore_pool_fetch_add(second, shared, 5, NULL));
    printf("changed: %llu\n", word_at(first, own, 0));

    /* The memory lives as long as one of both has it. */
    check("deallocate", farcore_pool_deallocate(first, own));
    printf("kept: %llu\n", word_at(second, shared, 0));
    check("deallocate", farcore_pool_deallocate(second, shared));

    /* The first gives memory away, with the right and the duty to free it. */
    own = allocate(first, 7);
    check("transfer", farcore_pool_transfer(first, own, &words, &text));
    printf("given away: %s\n", farcore_pool_loss(first, own) == FARCORE_FREED ? "yes" : "no");
    check("import", farcore_pool_import(second, (const char *)text.bytes, &words, &shared));
    farcore_value_free(&text);
    printf("taken: %llu\n", word_at(second, shared, 1));
    check("deallocate", farcore_pool_deallocate(second, shared));
    farcore_pool_free(second);
    farcore_pool_free(first);
    return 0;
}
