/* Keeps several operations on remote memory under way, and takes each outcome when it is there.
 * Then reads many places at once.
 *
 *     ./pool_pipeline [tcp://10.0.0.1:7400 ...]        without nodes: in this process
 */
#include <farcore.h>
#include <stdio.h>
#include <stdlib.h>

enum { WINDOW = 16, COUNT = 500, MANY = 50 };

typedef struct {
    uint32_t number;
    double square;
} record;

static void check(const char *what, farcore_code code) {
    if (code != FARCORE_OK) {
        fprintf(stderr, "%s: %d: %s\n", what, (int)code, farcore_error_message());
        exit(1);
    }
}

static farcore_ptr place_of(farcore_ptr first, int number) {
    return farcore_ptr_add(first, number * (int64_t)sizeof(record));
}

/* Stores all records; at most WINDOW writes are under way. */
static void store(farcore_pool *pool, farcore_ptr first) {
    farcore_operation *window[WINDOW] = {NULL};
    for (int number = 0; number < COUNT + WINDOW; number++) {
        farcore_operation **place = &window[number % WINDOW];
        if (*place != NULL) {
            /* Other work of the program belongs here, as long as farcore_poll says
             * FARCORE_PENDING. */
            check("write", farcore_wait(*place, FARCORE_NO_LIMIT));
            farcore_operation_free(*place);
            *place = NULL;
        }
        if (number < COUNT) {
            record one = {(uint32_t)number, (double)number * number};
            check("submit", farcore_pool_submit_write(pool, place_of(first, number), &one,
                                                      sizeof one, place));
        }
    }
}

/* Reads one record while the program does something else. */
static int read_one(farcore_pool *pool, farcore_ptr first, int number) {
    farcore_operation *read = NULL;
    record one;
    size_t length = 0;
    check("submit", farcore_pool_submit_read(pool, place_of(first, number), sizeof one, &read));
    while (farcore_poll(read) == FARCORE_PENDING) {
        farcore_wait(read, 1);
    }
    check("read", farcore_operation_copy_value(read, &one, sizeof one, &length));
    farcore_operation_free(read);
    return one.number == (uint32_t)number && one.square == (double)number * number;
}

int main(int argc, char **argv) {
    farcore_pool *pool = NULL;
    if (argc > 1) {
        check("connect",
              farcore_pool_connect((const char *const *)(argv + 1), (size_t)argc - 1, NULL, &pool));
    } else {
        check("embedded", farcore_pool_embedded(1 << 20, &pool));
    }
    farcore_ptr first;
    check("allocate", farcore_pool_allocate(pool, COUNT * sizeof(record), 0, NULL, &first));
    store(pool, first);
    int right = 0;
    for (int number = 0; number < COUNT; number += 10) {
        right += read_one(pool, first, number);
    }
    printf("read: %d\n", right);

    /* Many places in one round trip. */
    farcore_read_part parts[MANY];
    record records[MANY];
    for (int part = 0; part < MANY; part++) {
        parts[part] =
            (farcore_read_part){place_of(first, part * 7), &records[part], sizeof records[part]};
    }
    check("read", farcore_pool_read_many(pool, parts, MANY));
    right = 0;
    for (int part = 0; part < MANY; part++) {
        right += records[part].number == (uint32_t)(part * 7);
    }
    printf("at once: %d\n", right);
    check("deallocate", farcore_pool_deallocate(pool, first));
    farcore_pool_free(pool);
    return 0;
}
