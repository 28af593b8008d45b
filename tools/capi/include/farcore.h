#ifndef FARCORE_H
#define FARCORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Farcore's native client for C, and pools of remote memory. The guide is docs/c.md, the C++
 * interface farcore.hpp.
 *
 * Errors. Functions return a `farcore_code`: `FARCORE_OK` is 0, errors are below 0, and
 * `farcore_error_message` has the text. Common errors, which every operation may return, are
 * `FARCORE_KEY_TOO_LONG`, `FARCORE_VALUE_TOO_LONG`, `FARCORE_NO_MEMORY`, `FARCORE_INTERNAL`,
 * `FARCORE_UNAVAILABLE`, `FARCORE_BUSY`, `FARCORE_PROTOCOL`, `FARCORE_WRONG_KIND`,
 * `FARCORE_INVALID_ARGUMENT`, `FARCORE_CLOSED`, `FARCORE_TIMED_OUT`, `FARCORE_UNKNOWN_OUTCOME` and
 * `FARCORE_QUEUE_FULL`. Common errors of pools, which every access to remote memory may return, are
 * `FARCORE_INVALID_ARGUMENT`, `FARCORE_OUT_OF_BOUNDS`, `FARCORE_FREED`, `FARCORE_FOREIGN`,
 * `FARCORE_READ_ONLY` (of what writes), `FARCORE_RENEWED`, `FARCORE_NODE_DOWN`,
 * `FARCORE_ACCESS_REFUSED` and `FARCORE_CLOSED`. Codes from 0 to -7 are the statuses of the native
 * protocol with its numbers, those from -8 to -11 its other ones; from -1001 on they are this
 * library's. Any function may return `FARCORE_PANICKED`.
 *
 * Pointers. No pointer may be null unless the function says so; a null pointer where it may not be
 * is `FARCORE_INVALID_ARGUMENT`. Bytes may be null if their length is 0. Keys and values are copied
 * before a function returns. Lengths that no object can have are `FARCORE_INVALID_ARGUMENT`, too.
 * What was freed, what this library did not give, and a text without its zero are not noticed: they
 * are undefined behaviour.
 *
 * Ownership. What a function gives in a `farcore_value`, `farcore_batch`, `farcore_operation`,
 * `farcore_client`, `farcore_options`, `farcore_pool` or `farcore_pool_options` is the caller's,
 * who frees it with the function of its name, once. Unless the function returns `FARCORE_OK`, it is
 * null or all zeros, which may be freed too. Memory of this library is not freed by `free`. Remote
 * memory is the caller's whose `farcore_ptr` a function gives, until `farcore_pool_deallocate` or
 * the pool's end; a copy of the pointer owns nothing.
 *
 * Threads. Any number of threads may use a client, and a pool. Other things are used by one thread
 * at a time, and may move between threads.
 */

/**
 * `expiry_ms` of a key that does not expire.
 */
#define FARCORE_NEVER 18446744073709551615ull

/**
 * Waits without a limit of its own: the operation's time limit bounds it.
 */
#define FARCORE_NO_LIMIT 18446744073709551615ull

/**
 * Bytes of the texts of a `farcore_node`, with the zero that ends them. A longer text is cut off.
 */
#define FARCORE_NODE_TEXT_BYTES 256

/**
 * How a call ended. 0 is success, 1 says that an operation is under way, and an error is below 0.
 *
 * From 0 to -11 these are the statuses of Farcore's native protocol, with its numbers. From -1001
 * on they are errors of this library, those of pools from -1013 on.
 */
enum farcore_code
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * The operation has not ended. Only polled calls return it.
     */
    FARCORE_PENDING = 1,
    /**
     * It was done.
     */
    FARCORE_OK = 0,
    /**
     * There is no such key.
     */
    FARCORE_NOT_FOUND = -1,
    /**
     * The key exists, and had to be absent. Nothing has changed.
     */
    FARCORE_EXISTS = -2,
    /**
     * The key has another version than the expected one. Nothing has changed; the call returns the
     * present version.
     */
    FARCORE_VERSION_MISMATCH = -3,
    /**
     * The key is empty or longer than 1024 bytes.
     */
    FARCORE_KEY_TOO_LONG = -4,
    /**
     * The value is longer than 64 MiB, or than the server stores.
     */
    FARCORE_VALUE_TOO_LONG = -5,
    /**
     * The server has no memory left. Free some, or give it more.
     */
    FARCORE_NO_MEMORY = -6,
    /**
     * A fault of the server.
     */
    FARCORE_INTERNAL = -7,
    /**
     * The record is on a memory node that cannot be reached, or was lost with one.
     */
    FARCORE_UNAVAILABLE = -8,
    /**
     * The server is busy, and has done nothing. Try again.
     */
    FARCORE_BUSY = -9,
    /**
     * The server does not accept the request as valid. Client and server may differ in version.
     */
    FARCORE_PROTOCOL = -10,
    /**
     * The operation does not work on this key's value: it is no counter, or a collection.
     */
    FARCORE_WRONG_KIND = -11,
    /**
     * An argument is wrong: a null pointer, a length, an option out of range, or an address or
     * token that cannot be read. Nothing was sent.
     */
    FARCORE_INVALID_ARGUMENT = -1001,
    /**
     * The client, or the pool, is closed.
     */
    FARCORE_CLOSED = -1002,
    /**
     * No answer came within the time limit, and nothing has changed. Try again, or raise the
     * limit.
     */
    FARCORE_TIMED_OUT = -1003,
    /**
     * The change was sent, and no answer came: it may have been made, or not. Read the key, or the
     * word, to see.
     */
    FARCORE_UNKNOWN_OUTCOME = -1004,
    /**
     * The server cannot be reached; of a pool, too few memory nodes can be used.
     */
    FARCORE_UNREACHABLE = -1005,
    /**
     * The server refused the connection. The text has its reason.
     */
    FARCORE_REFUSED = -1006,
    /**
     * Client and server, or pool and memory node, have different tokens.
     */
    FARCORE_WRONG_TOKEN = -1007,
    /**
     * Too many operations of the client wait to be sent. Wait for some, or raise the option
     * `queue`. Nothing was sent.
     */
    FARCORE_QUEUE_FULL = -1008,
    /**
     * The caller's buffer is shorter than the value. The call returns the length that is needed.
     */
    FARCORE_BUFFER_TOO_SMALL = -1009,
    /**
     * This result of the operation was taken before. An operation gives a value once.
     */
    FARCORE_TAKEN = -1010,
    /**
     * No client or pool can start: the system has no thread, memory or descriptor left.
     */
    FARCORE_CANNOT_START = -1011,
    /**
     * A fault of this library. The call may have been carried out. Report it.
     */
    FARCORE_PANICKED = -1012,
    /**
     * The bytes are not all inside the allocation. Nothing was done.
     */
    FARCORE_OUT_OF_BOUNDS = -1013,
    /**
     * The word's offset is no multiple of 8. Nothing was done.
     */
    FARCORE_UNALIGNED = -1014,
    /**
     * The allocation was freed, or given away.
     */
    FARCORE_FREED = -1015,
    /**
     * The pointer belongs to another pool. Export it there, and import it here.
     */
    FARCORE_FOREIGN = -1016,
    /**
     * The memory node was started again, or has ended this pool's session: what was allocated
     * there is lost. Free it, and allocate again.
     */
    FARCORE_RENEWED = -1017,
    /**
     * The memory node does not answer. What it holds may be intact. Try again later.
     */
    FARCORE_NODE_DOWN = -1018,
    /**
     * The memory node refused the access. The text has its reason.
     */
    FARCORE_ACCESS_REFUSED = -1019,
    /**
     * The nodes that may be used have no memory left. Free some, or add a node.
     */
    FARCORE_EXHAUSTED = -1020,
    /**
     * No node of the pool matches the placement.
     */
    FARCORE_NO_NODE = -1021,
    /**
     * The length exceeds what can be addressed.
     */
    FARCORE_TOO_LONG = -1022,
    /**
     * The memory was exported to be read only.
     */
    FARCORE_READ_ONLY = -1023,
    /**
     * Memory of this process cannot be exported. Connect to memory nodes.
     */
    FARCORE_EMBEDDED = -1024,
    /**
     * The exported memory holds values of another type, or of another length.
     */
    FARCORE_WRONG_TYPE = -1025,
    /**
     * The exported memory is on a node that this pool is not connected to, or that was restarted.
     */
    FARCORE_OTHER_NODE = -1026,
    /**
     * The exported memory was freed or taken, or its exporter's session has ended.
     */
    FARCORE_GONE = -1027,
    /**
     * The text is no exported pointer.
     */
    FARCORE_MALFORMED = -1028,
    /**
     * Calls or operations that are under way use the allocation. Wait for them.
     */
    FARCORE_IN_USE = -1029,
    /**
     * A procedure of the program that hosts the memory node failed, is late or unknown. The text
     * has the reason.
     */
    FARCORE_PROCEDURE = -1030,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum farcore_code farcore_code;
#else
typedef int32_t farcore_code;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What a key must be for a change to be made.
 */
enum farcore_condition
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Anything.
     */
    FARCORE_CONDITION_ALWAYS = 0,
    /**
     * The key is absent.
     */
    FARCORE_CONDITION_ABSENT = 1,
    /**
     * The key exists.
     */
    FARCORE_CONDITION_PRESENT = 2,
    /**
     * The key has the version that `version` names; 0 means that it is absent.
     */
    FARCORE_CONDITION_VERSION = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum farcore_condition farcore_condition;
#else
typedef uint32_t farcore_condition;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * When a key expires.
 */
enum farcore_expiry
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Never.
     */
    FARCORE_EXPIRY_NEVER = 0,
    /**
     * When it would have expired before.
     */
    FARCORE_EXPIRY_KEEP = 1,
    /**
     * At a time, in milliseconds since 1970. A time in the past deletes the key.
     */
    FARCORE_EXPIRY_AT = 2,
    /**
     * After a time from now, in milliseconds. 0 deletes the key.
     */
    FARCORE_EXPIRY_IN = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum farcore_expiry farcore_expiry;
#else
typedef uint32_t farcore_expiry;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What a key's expiry must be for another one to be set.
 */
enum farcore_expiry_condition
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Anything.
     */
    FARCORE_EXPIRY_CONDITION_ALWAYS = 0,
    /**
     * The key does not expire.
     */
    FARCORE_EXPIRY_CONDITION_UNSET = 1,
    /**
     * The key expires.
     */
    FARCORE_EXPIRY_CONDITION_SET = 2,
    /**
     * The new expiry is later than the present one.
     */
    FARCORE_EXPIRY_CONDITION_LATER = 3,
    /**
     * The new expiry is earlier than the present one.
     */
    FARCORE_EXPIRY_CONDITION_EARLIER = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum farcore_expiry_condition farcore_expiry_condition;
#else
typedef uint32_t farcore_expiry_condition;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * On which nodes memory is allocated.
 */
enum farcore_placement
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * On one node, drawn by free memory and load; a node of the pool's zone if one has room.
     */
    FARCORE_PLACEMENT_BALANCED = 0,
    /**
     * On the node with an index, in the order of the addresses.
     */
    FARCORE_PLACEMENT_NODE = 1,
    /**
     * On a node of a zone.
     */
    FARCORE_PLACEMENT_ZONE = 2,
    /**
     * On any node but the one with an index: for a second copy. A node of another zone is
     * preferred.
     */
    FARCORE_PLACEMENT_BESIDE = 3,
    /**
     * In equal parts on all nodes.
     */
    FARCORE_PLACEMENT_SPREAD = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum farcore_placement farcore_placement;
#else
typedef uint32_t farcore_placement;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How values that do not fit a message come to the client.
 */
enum farcore_transfer
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * The server writes them into this side's memory: one round trip. The default.
     */
    FARCORE_TRANSFER_LANDING = 0,
    /**
     * The client reads them from the server's memory: two round trips.
     */
    FARCORE_TRANSFER_READ = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum farcore_transfer farcore_transfer;
#else
typedef uint32_t farcore_transfer;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The outcomes of an operation on many keys.
 */
typedef struct farcore_batch farcore_batch;

/**
 * A connection to a server, for any number of threads.
 */
typedef struct farcore_client farcore_client;

/**
 * An operation that was submitted.
 */
typedef struct farcore_operation farcore_operation;

/**
 * Options of a client, which `farcore_connect` copies.
 */
typedef struct farcore_options farcore_options;

/**
 * A pool of remote memory, for any number of threads.
 */
typedef struct farcore_pool farcore_pool;

/**
 * Options of a pool, which `farcore_pool_connect` copies.
 */
typedef struct farcore_pool_options farcore_pool_options;

typedef void (*Handler)(void);

/**
 * A value that was read. The caller owns it, and frees it with `farcore_value_free`.
 */
typedef struct farcore_value {
    /**
     * The bytes; never null while the value is not freed.
     */
    uint8_t *bytes;
    /**
     * How many.
     */
    size_t length;
    /**
     * The key's version.
     */
    uint64_t version;
    /**
     * How many bytes are allocated. Used when the value is freed; leave it as it is.
     */
    size_t capacity;
} farcore_value;

/**
 * How and when a value is stored. All zeros: always, and it never expires.
 */
typedef struct farcore_put_options {
    /**
     * What the key must be: a `farcore_condition`.
     */
    uint32_t condition;
    /**
     * When the key expires: a `farcore_expiry`.
     */
    uint32_t expiry;
    /**
     * The version that `FARCORE_CONDITION_VERSION` requires; else ignored.
     */
    uint64_t version;
    /**
     * The time of `FARCORE_EXPIRY_AT` or `FARCORE_EXPIRY_IN`, in milliseconds; else ignored.
     */
    uint64_t expiry_ms;
} farcore_put_options;

/**
 * What is known of a key beside its value.
 */
typedef struct farcore_metadata {
    /**
     * The version.
     */
    uint64_t version;
    /**
     * Bytes of the value.
     */
    uint64_t length;
    /**
     * When it expires, in milliseconds since 1970; `FARCORE_NEVER` if it does not.
     */
    uint64_t expiry_ms;
    /**
     * The key holds a collection, as a hash of the Redis protocol is: only that protocol reads it.
     */
    bool is_collection;
} farcore_metadata;

/**
 * Bytes that a caller gives, such as a key.
 */
typedef struct farcore_slice {
    /**
     * The bytes; may be null if `length` is 0.
     */
    const void *bytes;
    /**
     * How many.
     */
    size_t length;
} farcore_slice;

/**
 * A key and the value to store under it.
 */
typedef struct farcore_pair {
    /**
     * The key.
     */
    struct farcore_slice key;
    /**
     * The value.
     */
    struct farcore_slice value;
} farcore_pair;

/**
 * How the operation on one of many keys ended. The batch owns the bytes and the text.
 */
typedef struct farcore_item {
    /**
     * How it ended.
     */
    farcore_code code;
    /**
     * The key's version; 0 if there is none.
     */
    uint64_t version;
    /**
     * The value of a get; null if there is none.
     */
    const uint8_t *bytes;
    /**
     * Bytes of the value.
     */
    size_t length;
    /**
     * Why it was not done, ended by a zero; null if `code` is `FARCORE_OK`.
     */
    const char *message;
} farcore_item;

/**
 * Points to a byte of remote memory. It may be copied, and owns nothing; all zeros is the null
 * pointer. It is valid in this process, for the pool that it came from: `farcore_pool_export`
 * makes a pointer for another process. Each access checks it against the end of the allocation,
 * its free, another pool, and memory that was lost with a node.
 */
typedef struct farcore_ptr {
    /**
     * The pool's number; 0 is none.
     */
    uint64_t pool;
    /**
     * The allocation's slot in its pool.
     */
    uint32_t slot;
    /**
     * Which of the allocations that have had that slot.
     */
    uint32_t generation;
    /**
     * From the allocation's first byte, in bytes.
     */
    int64_t offset;
} farcore_ptr;

/**
 * Bytes that are to be read.
 */
typedef struct farcore_read_part {
    /**
     * Where they are.
     */
    struct farcore_ptr from;
    /**
     * The memory that receives them. Ignored by `farcore_pool_submit_read_many`.
     */
    void *into;
    /**
     * How many.
     */
    size_t length;
} farcore_read_part;

/**
 * Bytes that are to be stored.
 */
typedef struct farcore_write_part {
    /**
     * Where they go.
     */
    struct farcore_ptr to;
    /**
     * The bytes; may be null if `length` is 0.
     */
    const void *from;
    /**
     * How many.
     */
    size_t length;
} farcore_write_part;

/**
 * A memory node, as a pool knows it.
 */
typedef struct farcore_node {
    /**
     * Whether it answers.
     */
    bool is_up;
    /**
     * How often its session was renewed, with the loss of all that was allocated.
     */
    uint64_t renewals;
    /**
     * The length of its extents, in which it lends memory, in bytes.
     */
    uint64_t extent_bytes;
    /**
     * Bytes that it lends, to all its clients.
     */
    uint64_t lent_bytes;
    /**
     * Bytes that none of its clients held when last seen.
     */
    uint64_t free_bytes;
    /**
     * Bytes that this pool has claimed.
     */
    uint64_t claimed_bytes;
    /**
     * Bytes of them that are allocated, with what rounding adds.
     */
    uint64_t allocated_bytes;
    /**
     * Its zone and address, ended by a zero; "this process" for an embedded pool.
     */
    char address[FARCORE_NODE_TEXT_BYTES];
    /**
     * Why it does not answer, ended by a zero; empty if it does.
     */
    char reason[FARCORE_NODE_TEXT_BYTES];
} farcore_node;

/**
 * Where memory is allocated. All zeros: balanced.
 */
typedef struct farcore_place {
    /**
     * On which nodes: a `farcore_placement`.
     */
    uint32_t placement;
    /**
     * The index of `FARCORE_PLACEMENT_NODE` or `FARCORE_PLACEMENT_BESIDE`; else ignored.
     */
    uint32_t node;
    /**
     * The zone of `FARCORE_PLACEMENT_ZONE`, in UTF-8, ended by a zero; else ignored.
     */
    const char *zone;
} farcore_place;

/**
 * The type of the values that shared memory holds. A program that imports must expect the type
 * that was exported.
 */
typedef struct farcore_type {
    /**
     * A mark of the type, which `farcore_type_of` computes.
     */
    uint64_t mark;
    /**
     * Bytes of one value.
     */
    uint64_t bytes;
} farcore_type;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The text of the last error of this thread, in UTF-8, ended by a zero; empty if there was none.
 *
 * It names the limit, the value and the remedy where there are some. A call that succeeds leaves
 * it as it is. The library owns the text, which lasts until this thread's next call that fails.
 * Never null; cannot fail. Cost: none.
 */
const char *farcore_error_message(void);

/**
 * The version of this library, such as "0.1.0". Never null; the library owns the text, which lasts
 * as long as the process. Any thread may call it; cannot fail. Cost: none.
 */
const char *farcore_version(void);

extern int pthread_atfork(Handler prepare, Handler parent, Handler child);

/**
 * Frees a value's bytes, and sets all of its fields to 0. A null pointer, and a value of zeros,
 * are left alone; so freeing twice does no harm.
 *
 * Any thread may free a value, one at a time. Cannot fail. Cost: one call of the allocator.
 *
 * # Safety
 * `value` is null, or points to a value of zeros, or to one that this library has filled and whose
 * `bytes` and `capacity` have not changed. No copy of it is used afterwards.
 */
void farcore_value_free(struct farcore_value *value);

/**
 * Options with their defaults. Never null. The caller owns them, and frees them with
 * `farcore_options_free`. Any thread may use them, one at a time. Cannot fail. Cost: an
 * allocation.
 */
struct farcore_options *farcore_options_new(void);

/**
 * Frees options; null is left alone. Clients that were made with them are not affected. Cannot
 * fail.
 *
 * # Safety
 * `options` is null, or came from `farcore_options_new` and is not used afterwards.
 */
void farcore_options_free(struct farcore_options *options);

/**
 * Sets the token: the secret that client and server share, 16 to 4096 bytes without white space
 * around it. Default: none. The library copies it, and overwrites its copies when it frees them.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null or the length is out of range.
 *
 * # Safety
 * `options` came from `farcore_options_new`; no other thread uses it. `token` points to `length`
 * bytes.
 */
farcore_code farcore_options_set_token(struct farcore_options *options,
                                       const void *token,
                                       size_t length);

/**
 * Sets the token to the content of a file, which is read now. Cost: the file is read.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null, the file cannot be read, or the
 * length of the token is out of range.
 *
 * # Safety
 * `options` came from `farcore_options_new`; no other thread uses it. `path` is ended by a zero.
 */
farcore_code farcore_options_set_token_file(struct farcore_options *options, const char *path);

/**
 * Sets the time limit of each operation and of connecting, in milliseconds: 1 to 86400000 (a day).
 * Default: 5000. `farcore_connect` checks the range.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
 *
 * # Safety
 * `options` came from `farcore_options_new`; no other thread uses it.
 */
farcore_code farcore_options_set_timeout_ms(struct farcore_options *options, uint64_t timeout_ms);

/**
 * Sets the client's name in the server's log, in UTF-8. Default: none.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null or the name is not UTF-8.
 *
 * # Safety
 * `options` came from `farcore_options_new`; no other thread uses it. `name` is ended by a zero.
 */
farcore_code farcore_options_set_name(struct farcore_options *options, const char *name);

/**
 * Sets how many operations may wait to be sent: 1 to 1048576. More end with `FARCORE_QUEUE_FULL`.
 * Default: 4096. Memory: about 200 bytes each. `farcore_connect` checks the range.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
 *
 * # Safety
 * `options` came from `farcore_options_new`; no other thread uses it.
 */
farcore_code farcore_options_set_queue(struct farcore_options *options, uint32_t queue);

/**
 * Sets how many messages the server may send before the client has taken them: 4 to 1024. Default:
 * 64. Memory: two buffers each, of `small_bytes` and about 1 KiB. `farcore_connect` checks the
 * range.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null or the number exceeds 65535.
 *
 * # Safety
 * `options` came from `farcore_options_new`; no other thread uses it.
 */
farcore_code farcore_options_set_credits(struct farcore_options *options, uint32_t credits);

/**
 * Sets from which length on values travel beside messages, in bytes: 512 to 49152. The server's
 * `--small-bytes` limits it too. Default: 4096. `farcore_connect` checks the range.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
 *
 * # Safety
 * `options` came from `farcore_options_new`; no other thread uses it.
 */
farcore_code farcore_options_set_small_bytes(struct farcore_options *options, uint32_t small_bytes);

/**
 * Sets how values of `small_bytes` and more are read: a `farcore_transfer`. Default:
 * `FARCORE_TRANSFER_LANDING`.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null or the number is unknown.
 *
 * # Safety
 * `options` came from `farcore_options_new`; no other thread uses it.
 */
farcore_code farcore_options_set_transfer(struct farcore_options *options, uint32_t transfer);

/**
 * Sets the bytes of a landing buffer (4096 to 1048576) and how many there are (1 to 256). They
 * receive values of `FARCORE_TRANSFER_LANDING`; a longer value is read in two round trips.
 * Default: 16 of 65536. Memory: their product. `farcore_connect` checks the ranges.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null or `count` exceeds 65535.
 *
 * # Safety
 * `options` came from `farcore_options_new`; no other thread uses it.
 */
farcore_code farcore_options_set_landings(struct farcore_options *options,
                                          uint32_t bytes,
                                          uint32_t count);

/**
 * Sets how long the client's thread polls without work before it sleeps, in microseconds. Longer
 * gives lower latency and takes a processor. Default: 0.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
 *
 * # Safety
 * `options` came from `farcore_options_new`; no other thread uses it.
 */
farcore_code farcore_options_set_spin_us(struct farcore_options *options, uint64_t spin_us);

/**
 * Sets the RDMA device, such as "mlx5_0", of addresses with `rdma://` and `rdma+tcp://`. Default:
 * the device of the route, or the first with an active port. `farcore_connect` looks for it.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null, or the name is empty or not UTF-8.
 *
 * # Safety
 * `options` came from `farcore_options_new`; no other thread uses it. `device` is ended by a
 * zero.
 */
farcore_code farcore_options_set_device(struct farcore_options *options, const char *device);

/**
 * Sets the port of the RDMA device, 1 to 255, of addresses with `rdma+tcp://`; with `rdma://` the
 * route says it. Default: the first active one.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null or the port is out of range.
 *
 * # Safety
 * `options` came from `farcore_options_new`; no other thread uses it.
 */
farcore_code farcore_options_set_port(struct farcore_options *options, uint32_t port);

/**
 * Sets the entry of the port's GID table, 0 to 255, of addresses with `rdma+tcp://`; with
 * `rdma://` the route says it. Default: that of RoCE v2 over IPv4, or the best there is.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null or the index is out of range.
 *
 * # Safety
 * `options` came from `farcore_options_new`; no other thread uses it.
 */
farcore_code farcore_options_set_gid_index(struct farcore_options *options, uint32_t gid_index);

/**
 * Connects to a server, as `tcp://host:port`, `rdma://host:port` or `rdma+tcp://host:port`.
 *
 * The caller owns `*client`, closes it with `farcore_client_close` and frees it with
 * `farcore_client_free`. `options` may be null, which means the defaults; they are copied. Starts
 * one thread, which connects again whenever the connection is lost. Any number of threads may use
 * the client. To a child of `fork` it is closed. Cost: a handshake of two round trips, and buffers
 * as the options say, 1.6 MiB by default. Blocks for the time limit of the options at most.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` (a pointer is null, the address is none, an option is out
 * of range), `FARCORE_UNREACHABLE`, `FARCORE_REFUSED`, `FARCORE_WRONG_TOKEN` or
 * `FARCORE_CANNOT_START`. Then `*client` is null.
 *
 * # Safety
 * `address` is ended by a zero. `options` is null or came from `farcore_options_new`. `client` can
 * be written.
 */
farcore_code farcore_connect(const char *address,
                             const struct farcore_options *options,
                             struct farcore_client **client);

/**
 * Closes a client: ends what is under way, then the connection and the thread.
 *
 * The handle stays: calls that use it fail with `FARCORE_CLOSED`, and `farcore_client_free` frees
 * it. Operations under way keep their outcomes. Any thread may close a client, while others use it
 * and more than once. Blocks until what is under way has ended, for the time limit of the options
 * at most.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `client` is null.
 *
 * # Safety
 * `client` is null, or came from `farcore_connect` and is not freed.
 */
farcore_code farcore_client_close(struct farcore_client *client);

/**
 * Closes a client, and frees its handle; null, and what is of a parent process, are left alone.
 * Operations under way keep their outcomes, and are freed on their own. Blocks as
 * `farcore_client_close`. Cannot fail.
 *
 * # Safety
 * `client` is null, or came from `farcore_connect`. No other thread uses it, and it is not used
 * afterwards.
 */
void farcore_client_free(struct farcore_client *client);

/**
 * Reads a value to `*value`, which the caller owns and frees with `farcore_value_free`. Unless the
 * function returns `FARCORE_OK`, `*value` is all zeros, which may be freed as well.
 *
 * Returns `FARCORE_OK`, `FARCORE_NOT_FOUND`, or a common error. Any thread may call it. Cost: a
 * round trip, an allocation, and a copy.
 *
 * # Safety
 * `client` came from `farcore_connect` and is not freed. `key` points to `key_length` bytes.
 * `value` can be written; what it held is not freed.
 */
farcore_code farcore_get(const struct farcore_client *client,
                         const void *key,
                         size_t key_length,
                         struct farcore_value *value);

/**
 * Reads a value into the caller's buffer of `capacity` bytes, and writes its length to `*length`.
 *
 * Returns `FARCORE_OK`, `FARCORE_NOT_FOUND`, `FARCORE_BUFFER_TOO_SMALL` if the value is longer
 * than the buffer (then `*length` and `*version` are written, and nothing is copied), or a common
 * error. `buffer` may be null if `capacity` is 0, and `version` may be null. Any thread may call
 * it. Cost: a round trip and a copy, also if the buffer is too small; `farcore_get` reads a value
 * of unknown length at once.
 *
 * # Safety
 * `client` came from `farcore_connect` and is not freed. `key` points to `key_length` bytes.
 * `capacity` bytes at `buffer`, `length` and `version` can be written.
 */
farcore_code farcore_get_into(const struct farcore_client *client,
                              const void *key,
                              size_t key_length,
                              void *buffer,
                              size_t capacity,
                              size_t *length,
                              uint64_t *version);

/**
 * Stores a value, which never expires, and writes its version to `*version`, which may be null.
 *
 * Returns `FARCORE_OK` or a common error. Any thread may call it. Cost: a round trip (one more for
 * each MiB), and a copy.
 *
 * # Safety
 * `client` came from `farcore_connect` and is not freed. `key` and `value` point to as many bytes
 * as their lengths say. `version` is null or can be written.
 */
farcore_code farcore_put(const struct farcore_client *client,
                         const void *key,
                         size_t key_length,
                         const void *value,
                         size_t value_length,
                         uint64_t *version);

/**
 * Stores a value if a condition holds, with an expiry. `options` may be null: always, and it never
 * expires.
 *
 * Returns `FARCORE_OK`; `FARCORE_EXISTS`, `FARCORE_NOT_FOUND` or `FARCORE_VERSION_MISMATCH` if the
 * condition (absent, present or a version) does not hold; or a common error. In the first four
 * cases `*version` is written, unless it is null: the version that was stored, 0 if its expiry was
 * past already, or the present one, 0 if the key is absent. Threads and cost as `farcore_put`.
 *
 * # Safety
 * As `farcore_put`; `options` is null or points to options.
 */
farcore_code farcore_put_with(const struct farcore_client *client,
                              const void *key,
                              size_t key_length,
                              const void *value,
                              size_t value_length,
                              const struct farcore_put_options *options,
                              uint64_t *version);

/**
 * Removes a key.
 *
 * Returns `FARCORE_OK`, `FARCORE_NOT_FOUND`, or a common error. Any thread may call it. Cost: a
 * round trip.
 *
 * # Safety
 * `client` came from `farcore_connect` and is not freed. `key` points to `key_length` bytes.
 */
farcore_code farcore_delete(const struct farcore_client *client,
                            const void *key,
                            size_t key_length);

/**
 * Removes a key if it has the version `expected`.
 *
 * Returns `FARCORE_OK`, `FARCORE_NOT_FOUND`, `FARCORE_VERSION_MISMATCH`, or a common error. In the
 * first three cases `*version` is written, unless it is null: the key's present version, 0 if it
 * is absent. Any thread may call it. Cost: a round trip.
 *
 * # Safety
 * As `farcore_delete`; `version` is null or can be written.
 */
farcore_code farcore_delete_if(const struct farcore_client *client,
                               const void *key,
                               size_t key_length,
                               uint64_t expected,
                               uint64_t *version);

/**
 * Stores a value if the key has the version `expected`; 0 expects that it is absent.
 *
 * Returns `FARCORE_OK`, `FARCORE_VERSION_MISMATCH`, or a common error. In the first two cases
 * `*version` is written, unless it is null: the version that was stored, or the present one, 0 if
 * the key is absent. Threads and cost as `farcore_put`.
 *
 * # Safety
 * As `farcore_put`.
 */
farcore_code farcore_compare_and_swap(const struct farcore_client *client,
                                      const void *key,
                                      size_t key_length,
                                      const void *value,
                                      size_t value_length,
                                      uint64_t expected,
                                      uint64_t *version);

/**
 * Adds to a decimal integer of 64 bits, and writes the sum to `*sum`, which may be null. An absent
 * key counts as 0.
 *
 * Returns `FARCORE_OK`, `FARCORE_WRONG_KIND` if the value is no such number, or a common error.
 * Any thread may call it. Cost: a round trip.
 *
 * # Safety
 * As `farcore_delete`; `sum` is null or can be written.
 */
farcore_code farcore_increment(const struct farcore_client *client,
                               const void *key,
                               size_t key_length,
                               int64_t by,
                               int64_t *sum);

/**
 * Sets when a key expires: a `farcore_expiry`, with its time in milliseconds, if a
 * `farcore_expiry_condition` on the present expiry holds.
 *
 * Returns `FARCORE_OK`; `FARCORE_NOT_FOUND` if the key is absent or the condition does not hold;
 * or a common error. Any thread may call it. Cost: a round trip.
 *
 * # Safety
 * As `farcore_delete`.
 */
farcore_code farcore_expire(const struct farcore_client *client,
                            const void *key,
                            size_t key_length,
                            uint32_t kind,
                            uint64_t expiry_ms,
                            uint32_t condition);

/**
 * Reads a key's version, length and expiry without its value to `*metadata`.
 *
 * Returns `FARCORE_OK`, `FARCORE_NOT_FOUND`, or a common error. Any thread may call it. Cost: a
 * round trip.
 *
 * # Safety
 * As `farcore_delete`; `metadata` can be written.
 */
farcore_code farcore_inspect(const struct farcore_client *client,
                             const void *key,
                             size_t key_length,
                             struct farcore_metadata *metadata);

/**
 * Whether a key exists.
 *
 * Returns `FARCORE_OK` if it does, `FARCORE_NOT_FOUND` if not, or a common error. Any thread may
 * call it. Cost: a round trip.
 *
 * # Safety
 * As `farcore_delete`.
 */
farcore_code farcore_exists(const struct farcore_client *client,
                            const void *key,
                            size_t key_length);

/**
 * Sends a message that does nothing, and waits for its answer.
 *
 * Returns `FARCORE_OK` or a common error. Any thread may call it. Cost: a round trip.
 *
 * # Safety
 * `client` came from `farcore_connect` and is not freed.
 */
farcore_code farcore_ping(const struct farcore_client *client);

/**
 * Reads the values of `count` keys. `*batch` has their outcomes in the order of the keys; the
 * caller owns it and frees it with `farcore_batch_free`. It is null unless the function returns
 * `FARCORE_OK`.
 *
 * Returns `FARCORE_OK` if each key has an outcome, be it a failure, or a common error. `keys` may
 * be null if `count` is 0. Any thread may call it. Cost: up to 32 keys share a message; a value
 * that fits no shared answer takes a round trip of its own.
 *
 * # Safety
 * `client` came from `farcore_connect` and is not freed. `keys` points to `count` slices, and each
 * to its bytes. `batch` can be written.
 */
farcore_code farcore_get_many(const struct farcore_client *client,
                              const struct farcore_slice *keys,
                              size_t count,
                              struct farcore_batch **batch);

/**
 * Stores `count` values. They are not stored together: each has its outcome, with its version.
 *
 * Returns and gives `*batch` as `farcore_get_many`. `pairs` may be null if `count` is 0. Any
 * thread may call it. Cost: up to 32 short values share a message of 4 KiB; a longer one takes a
 * round trip of its own.
 *
 * # Safety
 * `client` came from `farcore_connect` and is not freed. `pairs` points to `count` pairs, and each
 * to its bytes. `batch` can be written.
 */
farcore_code farcore_put_many(const struct farcore_client *client,
                              const struct farcore_pair *pairs,
                              size_t count,
                              struct farcore_batch **batch);

/**
 * Removes `count` keys. They are not removed together: each has its outcome, `FARCORE_OK` or
 * `FARCORE_NOT_FOUND`.
 *
 * Returns and gives `*batch` as `farcore_get_many`; so are threads, safety and what may be null.
 * Cost: up to 32 keys share a message.
 *
 * # Safety
 * As `farcore_get_many`.
 */
farcore_code farcore_delete_many(const struct farcore_client *client,
                                 const struct farcore_slice *keys,
                                 size_t count,
                                 struct farcore_batch **batch);

/**
 * Whether an operation has ended, and how. Does not wait.
 *
 * Returns `FARCORE_PENDING` while it has not, then always its code: those of the blocking function
 * of its kind. Any thread may call it, one at a time for one operation; a second one waits for the
 * first. Cost: a lock without contention.
 *
 * # Safety
 * `operation` is null (`FARCORE_INVALID_ARGUMENT`), or came from this library and is not freed.
 */
farcore_code farcore_poll(struct farcore_operation *operation);

/**
 * Waits until an operation has ended, for `timeout_ms` milliseconds at most, or without a limit of
 * its own if that is `FARCORE_NO_LIMIT`: the client's time limit bounds it then.
 *
 * Returns as `farcore_poll`. `FARCORE_PENDING` means that the operation goes on: wait again, or
 * free it. Any thread may call it, one at a time for one operation; a second one waits for the
 * first.
 *
 * # Safety
 * As `farcore_poll`.
 */
farcore_code farcore_wait(struct farcore_operation *operation, uint64_t timeout_ms);

/**
 * Writes the version that an operation returned to `*version`: of a get, put, compare-and-swap or
 * inspect; and the present version if a condition on it did not hold.
 *
 * Returns `FARCORE_OK`, `FARCORE_PENDING` if it has not ended, its code if it has no version
 * because it failed, or `FARCORE_INVALID_ARGUMENT` if a pointer is null or its kind returns no
 * version. Threads and cost as `farcore_poll`.
 *
 * # Safety
 * As `farcore_poll`; `version` can be written.
 */
farcore_code farcore_operation_version(struct farcore_operation *operation, uint64_t *version);

/**
 * Moves the value of a get to `*value`. The caller owns it, and frees it with
 * `farcore_value_free`.
 *
 * Returns `FARCORE_OK`, `FARCORE_PENDING` if the operation has not ended, its code if it failed,
 * `FARCORE_TAKEN` if the value was taken before, or `FARCORE_INVALID_ARGUMENT` if a pointer is
 * null or its kind returns no value. Threads as `farcore_poll`. Cost: nothing is copied.
 *
 * # Safety
 * As `farcore_poll`; `value` can be written. What it held is not freed.
 */
farcore_code farcore_operation_take_value(struct farcore_operation *operation,
                                          struct farcore_value *value);

/**
 * Copies the value of a get into the caller's buffer of `capacity` bytes, and writes its length to
 * `*length`. The operation keeps the value.
 *
 * Returns as `farcore_operation_take_value`, or `FARCORE_BUFFER_TOO_SMALL` if the value is longer
 * than the buffer: then `*length` is written, and nothing is copied. `buffer` may be null if
 * `capacity` is 0. Threads as `farcore_poll`. Cost: a copy.
 *
 * # Safety
 * As `farcore_poll`; `length`, and `capacity` bytes at `buffer`, can be written.
 */
farcore_code farcore_operation_copy_value(struct farcore_operation *operation,
                                          void *buffer,
                                          size_t capacity,
                                          size_t *length);

/**
 * Writes what an inspect returned to `*metadata`.
 *
 * Returns `FARCORE_OK`, `FARCORE_PENDING` if it has not ended, its code if it failed, or
 * `FARCORE_INVALID_ARGUMENT` if a pointer is null or its kind returns no metadata. Threads and
 * cost as `farcore_poll`.
 *
 * # Safety
 * As `farcore_poll`; `metadata` can be written.
 */
farcore_code farcore_operation_metadata(struct farcore_operation *operation,
                                        struct farcore_metadata *metadata);

/**
 * Writes the sum that an increment returned to `*sum`.
 *
 * Returns `FARCORE_OK`, `FARCORE_PENDING` if it has not ended, its code if it failed, or
 * `FARCORE_INVALID_ARGUMENT` if a pointer is null or its kind returns no sum. Threads and cost as
 * `farcore_poll`.
 *
 * # Safety
 * As `farcore_poll`; `sum` can be written.
 */
farcore_code farcore_operation_sum(struct farcore_operation *operation, int64_t *sum);

/**
 * Moves the outcomes of an operation on many keys to `*batch`. The caller owns them, and frees
 * them with `farcore_batch_free`.
 *
 * Returns `FARCORE_OK`, `FARCORE_PENDING` if the operation has not ended, its code if it failed as
 * a whole, `FARCORE_TAKEN` if they were taken before, or `FARCORE_INVALID_ARGUMENT` if a pointer
 * is null or its kind returns no batch. Threads as `farcore_poll`. Cost: an allocation.
 *
 * # Safety
 * As `farcore_poll`; `batch` can be written.
 */
farcore_code farcore_operation_take_batch(struct farcore_operation *operation,
                                          struct farcore_batch **batch);

/**
 * Frees an operation; null, and what is of a parent process, are left alone. One that has not
 * ended goes on, and its outcome is lost; one of a pool may end half done. Values, batches and
 * pointers that were taken from it stay. Cannot fail.
 *
 * # Safety
 * `operation` is null, or came from this library. No other thread uses it, and it is not used
 * afterwards.
 */
void farcore_operation_free(struct farcore_operation *operation);

/**
 * Submits a get. Its value is taken with `farcore_operation_take_value` or copied with
 * `farcore_operation_copy_value`; its version is `farcore_operation_version`.
 *
 * `*operation` is the caller's, who polls it with `farcore_poll` or `farcore_wait` and frees it
 * with `farcore_operation_free`. It is null unless the function returns `FARCORE_OK`.
 *
 * Returns `FARCORE_OK`, `FARCORE_INVALID_ARGUMENT` or `FARCORE_CLOSED`. All other errors are the
 * operation's outcome, with the codes of `farcore_get`. Any thread may call it. Cost: two
 * allocations and a copy of the key; does not wait.
 *
 * # Safety
 * `client` came from `farcore_connect` and is not freed. `key` points to `key_length` bytes.
 * `operation` can be written.
 */
farcore_code farcore_submit_get(const struct farcore_client *client,
                                const void *key,
                                size_t key_length,
                                struct farcore_operation **operation);

/**
 * Submits a put of a value that never expires. `farcore_operation_version` gives its version.
 *
 * Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
 * `farcore_put`. The value is copied too.
 *
 * # Safety
 * As `farcore_submit_get`; `value` points to `value_length` bytes.
 */
farcore_code farcore_submit_put(const struct farcore_client *client,
                                const void *key,
                                size_t key_length,
                                const void *value,
                                size_t value_length,
                                struct farcore_operation **operation);

/**
 * Submits a put with a condition and an expiry. `options` may be null. `farcore_operation_version`
 * gives its version, or the present one.
 *
 * Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
 * `farcore_put_with`. The value is copied too.
 *
 * # Safety
 * As `farcore_submit_get`; `value` points to `value_length` bytes, `options` is null or points to
 * options.
 */
farcore_code farcore_submit_put_with(const struct farcore_client *client,
                                     const void *key,
                                     size_t key_length,
                                     const void *value,
                                     size_t value_length,
                                     const struct farcore_put_options *options,
                                     struct farcore_operation **operation);

/**
 * Submits a delete.
 *
 * Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
 * `farcore_delete`.
 *
 * # Safety
 * As `farcore_submit_get`.
 */
farcore_code farcore_submit_delete(const struct farcore_client *client,
                                   const void *key,
                                   size_t key_length,
                                   struct farcore_operation **operation);

/**
 * Submits a delete of a key that has a version. `farcore_operation_version` gives the present one.
 *
 * Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
 * `farcore_delete_if`.
 *
 * # Safety
 * As `farcore_submit_get`.
 */
farcore_code farcore_submit_delete_if(const struct farcore_client *client,
                                      const void *key,
                                      size_t key_length,
                                      uint64_t expected,
                                      struct farcore_operation **operation);

/**
 * Submits a compare-and-swap. `farcore_operation_version` gives the stored version, or the present
 * one.
 *
 * Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
 * `farcore_compare_and_swap`. The value is copied too.
 *
 * # Safety
 * As `farcore_submit_get`; `value` points to `value_length` bytes.
 */
farcore_code farcore_submit_compare_and_swap(const struct farcore_client *client,
                                             const void *key,
                                             size_t key_length,
                                             const void *value,
                                             size_t value_length,
                                             uint64_t expected,
                                             struct farcore_operation **operation);

/**
 * Submits an increment. `farcore_operation_sum` gives its sum.
 *
 * Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
 * `farcore_increment`.
 *
 * # Safety
 * As `farcore_submit_get`.
 */
farcore_code farcore_submit_increment(const struct farcore_client *client,
                                      const void *key,
                                      size_t key_length,
                                      int64_t by,
                                      struct farcore_operation **operation);

/**
 * Submits a new expiry.
 *
 * Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
 * `farcore_expire`.
 *
 * # Safety
 * As `farcore_submit_get`.
 */
farcore_code farcore_submit_expire(const struct farcore_client *client,
                                   const void *key,
                                   size_t key_length,
                                   uint32_t kind,
                                   uint64_t expiry_ms,
                                   uint32_t condition,
                                   struct farcore_operation **operation);

/**
 * Submits an inspect. `farcore_operation_metadata` gives what it found.
 *
 * Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
 * `farcore_inspect`.
 *
 * # Safety
 * As `farcore_submit_get`.
 */
farcore_code farcore_submit_inspect(const struct farcore_client *client,
                                    const void *key,
                                    size_t key_length,
                                    struct farcore_operation **operation);

/**
 * Submits the question whether a key exists.
 *
 * Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
 * `farcore_exists`.
 *
 * # Safety
 * As `farcore_submit_get`.
 */
farcore_code farcore_submit_exists(const struct farcore_client *client,
                                   const void *key,
                                   size_t key_length,
                                   struct farcore_operation **operation);

/**
 * Submits a message that does nothing.
 *
 * Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
 * `farcore_ping`.
 *
 * # Safety
 * As `farcore_submit_get`.
 */
farcore_code farcore_submit_ping(const struct farcore_client *client,
                                 struct farcore_operation **operation);

/**
 * Submits a get of `count` keys. `farcore_operation_take_batch` gives its outcomes.
 *
 * Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
 * `farcore_get_many`.
 *
 * # Safety
 * As `farcore_submit_get`; `keys` points to `count` slices, and each to its bytes.
 */
farcore_code farcore_submit_get_many(const struct farcore_client *client,
                                     const struct farcore_slice *keys,
                                     size_t count,
                                     struct farcore_operation **operation);

/**
 * Submits a put of `count` values. `farcore_operation_take_batch` gives its outcomes.
 *
 * Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
 * `farcore_put_many`.
 *
 * # Safety
 * As `farcore_submit_get`; `pairs` points to `count` pairs, and each to its bytes.
 */
farcore_code farcore_submit_put_many(const struct farcore_client *client,
                                     const struct farcore_pair *pairs,
                                     size_t count,
                                     struct farcore_operation **operation);

/**
 * Submits a delete of `count` keys. `farcore_operation_take_batch` gives its outcomes.
 *
 * Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
 * `farcore_delete_many`.
 *
 * # Safety
 * As `farcore_submit_get`; `keys` points to `count` slices, and each to its bytes.
 */
farcore_code farcore_submit_delete_many(const struct farcore_client *client,
                                        const struct farcore_slice *keys,
                                        size_t count,
                                        struct farcore_operation **operation);

/**
 * How many outcomes a batch has: as many as keys were given. 0 if `batch` is null. Any number of
 * threads may read a batch. Cost: none.
 *
 * # Safety
 * `batch` is null, or came from this library and is not freed.
 */
size_t farcore_batch_count(const struct farcore_batch *batch);

/**
 * Writes one outcome of a batch to `*item`: that of the key at `index`, from 0 on. The batch owns
 * what the item points to, until it is freed. Any number of threads may read a batch. Cost: none.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null or the index is out of range. That
 * the key's operation failed is no failure of this call: `item->code` says it.
 *
 * # Safety
 * `batch` came from this library and is not freed. `item` can be written.
 */
farcore_code farcore_batch_item(const struct farcore_batch *batch,
                                size_t index,
                                struct farcore_item *item);

/**
 * Frees a batch with all values in it; null is left alone. Cannot fail.
 *
 * # Safety
 * `batch` is null, or came from this library. Neither it nor what its items point to is used
 * afterwards.
 */
void farcore_batch_free(struct farcore_batch *batch);

/**
 * Reads `length` bytes of remote memory into the caller's.
 *
 * Returns `FARCORE_OK` or a common error of pools. After an error the bytes at `into` are
 * unspecified. `into` may be null if `length` is 0. Any thread may call it. A read beside a write
 * may see parts of both, in units of 8 aligned bytes. Cost: a round trip; more than the option
 * `transfer_bytes` is split, and in flight together.
 *
 * # Safety
 * `pool` came from this library and is not freed. `length` bytes at `into` can be written.
 */
farcore_code farcore_pool_read(const struct farcore_pool *pool,
                               struct farcore_ptr from,
                               void *into,
                               size_t length);

/**
 * Stores `length` bytes of the caller in remote memory.
 *
 * Returns `FARCORE_OK` or a common error of pools. After an error of the node, none, some or all
 * of the bytes are stored. `from` may be null if `length` is 0. Any thread may call it. Cost: as
 * `farcore_pool_read`.
 *
 * # Safety
 * `pool` came from this library and is not freed. `from` points to `length` bytes.
 */
farcore_code farcore_pool_write(const struct farcore_pool *pool,
                                struct farcore_ptr to,
                                const void *from,
                                size_t length);

/**
 * Reads `count` parts of remote memory, all in flight together, each into its own buffer.
 *
 * Returns `FARCORE_OK`, `FARCORE_INVALID_ARGUMENT` if two buffers overlap, or a common error of
 * pools: that of one part. If it is one of the node, the bytes of all are unspecified; otherwise
 * nothing was sent. `parts` may be null if `count` is 0. Any thread may call it. Cost: a round
 * trip.
 *
 * # Safety
 * `pool` came from this library and is not freed. `parts` points to `count` parts, and each part's
 * `length` bytes at `into` can be written.
 */
farcore_code farcore_pool_read_many(const struct farcore_pool *pool,
                                    const struct farcore_read_part *parts,
                                    size_t count);

/**
 * Stores `count` parts in remote memory, all in flight together; those on one node in order.
 *
 * Returns `FARCORE_OK` or a common error of pools: that of one part. If it is one of the node,
 * none, some or all of the bytes are stored; otherwise nothing was sent. `parts` may be null if
 * `count` is 0. Any thread may call it. Cost: a round trip.
 *
 * # Safety
 * `pool` came from this library and is not freed. `parts` points to `count` parts, and each part's
 * `from` to its `length` bytes.
 */
farcore_code farcore_pool_write_many(const struct farcore_pool *pool,
                                     const struct farcore_write_part *parts,
                                     size_t count);

/**
 * Stores `desired` in the 64-bit word at `word` if it equals `expected`. Writes the old value to
 * `*old`, which may be null: the swap was made if it equals `expected`. Atomic among all clients
 * of the node. The word has the byte order of x86, lowest byte first.
 *
 * Returns `FARCORE_OK`, also if the word did not equal `expected`; `FARCORE_UNALIGNED` if its
 * offset is no multiple of 8; `FARCORE_UNKNOWN_OUTCOME` if the connection broke after the request
 * was sent; or a common error of pools. Any thread may call it. Cost: a round trip.
 *
 * # Safety
 * `pool` came from this library and is not freed. `old` is null or can be written.
 */
farcore_code farcore_pool_compare_and_swap(const struct farcore_pool *pool,
                                           struct farcore_ptr word,
                                           uint64_t expected,
                                           uint64_t desired,
                                           uint64_t *old);

/**
 * Adds to the 64-bit word at `word`, wrapping, and writes its old value to `*old`, which may be
 * null. Atomic as `farcore_pool_compare_and_swap`.
 *
 * Returns and costs as `farcore_pool_compare_and_swap`.
 *
 * # Safety
 * As `farcore_pool_compare_and_swap`.
 */
farcore_code farcore_pool_fetch_add(const struct farcore_pool *pool,
                                    struct farcore_ptr word,
                                    uint64_t addend,
                                    uint64_t *old);

/**
 * Calls a procedure of the program that hosts the node with an index, with `length` bytes as its
 * argument, and writes the bytes that it answers to `*answer`; each has 32 KiB at most.
 *
 * The caller owns `*answer`, and frees it with `farcore_value_free`; it is all zeros unless the
 * function returns `FARCORE_OK`. It may be null: then the answer is dropped. `argument` may be
 * null if `length` is 0.
 *
 * Fails with `FARCORE_PROCEDURE` (the host has none of this name, it failed or is late, or the
 * argument or the name is too long), `FARCORE_NO_NODE`, `FARCORE_RENEWED`,
 * `FARCORE_UNKNOWN_OUTCOME` if the connection broke, `FARCORE_INVALID_ARGUMENT` or
 * `FARCORE_CLOSED`. Any thread may call it; the calls of one pool to one node run one after
 * another. Cost: a round trip, and what the procedure takes.
 *
 * # Safety
 * `pool` came from this library and is not freed. `procedure` is ended by a zero. `argument`
 * points to `length` bytes. `answer` is null or can be written; what it held is not freed.
 */
farcore_code farcore_pool_call(const struct farcore_pool *pool,
                               uint32_t node,
                               const char *procedure,
                               const void *argument,
                               size_t length,
                               struct farcore_value *answer);

/**
 * Calls a procedure of the program that hosts the node of an allocation, which is given by the
 * pointer to its first byte. The procedure may read and write it. Only its owner may do so, and it
 * must lie in one place.
 *
 * Gives `*answer` and fails as `farcore_pool_call`, or with a common error of pools. If a call is
 * late, or its outcome unknown, the memory is not allocated again before this pool is closed.
 * Threads and cost as `farcore_pool_call`.
 *
 * # Safety
 * As `farcore_pool_call`.
 */
farcore_code farcore_pool_call_on(const struct farcore_pool *pool,
                                  struct farcore_ptr target,
                                  const char *procedure,
                                  const void *argument,
                                  size_t length,
                                  struct farcore_value *answer);

/**
 * Submits a call of a procedure. `farcore_operation_take_value` gives its answer. Name and
 * argument are copied.
 *
 * Gives `*operation` and returns as `farcore_pool_submit_allocate`; its codes are those of
 * `farcore_pool_call`. Any thread may call it. Cost: some allocations; does not wait.
 *
 * # Safety
 * `pool` came from this library and is not freed. `procedure` is ended by a zero. `argument`
 * points to `length` bytes. `operation` can be written.
 */
farcore_code farcore_pool_submit_call(const struct farcore_pool *pool,
                                      uint32_t node,
                                      const char *procedure,
                                      const void *argument,
                                      size_t length,
                                      struct farcore_operation **operation);

/**
 * Submits a call of a procedure on an allocation. `farcore_operation_take_value` gives its answer.
 *
 * Gives `*operation` and returns as `farcore_pool_submit_read`; its codes are those of
 * `farcore_pool_call_on`. Name and argument are copied. Any thread may call it. Cost: some
 * allocations; does not wait.
 *
 * # Safety
 * As `farcore_pool_submit_call`.
 */
farcore_code farcore_pool_submit_call_on(const struct farcore_pool *pool,
                                         struct farcore_ptr target,
                                         const char *procedure,
                                         const void *argument,
                                         size_t length,
                                         struct farcore_operation **operation);

/**
 * Writes how many memory nodes a pool has to `*count`; their indexes begin at 0, in the order of
 * their addresses.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null, or with `FARCORE_CLOSED`. Any thread
 * may call it. Cost: no round trip.
 *
 * # Safety
 * `pool` came from this library and is not freed. `count` can be written.
 */
farcore_code farcore_pool_node_count(const struct farcore_pool *pool, uint32_t *count);

/**
 * Writes the figures of the node with an index to `*node`.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null, with `FARCORE_NO_NODE` if the pool
 * has no such node, or with `FARCORE_CLOSED`. Any thread may call it. Cost: no round trip.
 *
 * # Safety
 * `pool` came from this library and is not freed. `node` can be written.
 */
farcore_code farcore_pool_node(const struct farcore_pool *pool,
                               uint32_t index,
                               struct farcore_node *node);

/**
 * Connects to `count` memory nodes, each named as `[zone=]scheme://host[:port]` with the schemes
 * `tcp`, `rdma` and `rdma+tcp`, and opens a session at each.
 *
 * The caller owns `*pool`, closes it with `farcore_pool_close` and frees it with
 * `farcore_pool_free`. `options` may be null, which means the defaults; they are copied. Starts a
 * thread for the sessions, one for their heartbeats, and one for each connection. A lost
 * connection is made again. Any number of threads may use the pool. To a child of `fork` it is
 * closed.
 * Blocks until the nodes answer, for the time that the options say at most.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` (a pointer is null, no node is named, or one twice, an
 * address is none, an option is out of range), `FARCORE_UNREACHABLE` (too few nodes can be used;
 * the text says why), `FARCORE_WRONG_TOKEN` or `FARCORE_CANNOT_START`. Then `*pool` is null.
 *
 * # Safety
 * `nodes` points to `count` texts that are ended by zeros. `options` is null or came from
 * `farcore_pool_options_new`. `pool` can be written.
 */
farcore_code farcore_pool_connect(const char *const *nodes,
                                  size_t count,
                                  const struct farcore_pool_options *options,
                                  struct farcore_pool **pool);

/**
 * Makes a pool of `bytes` in this process, for a first program and for tests: no node is needed.
 * What is allocated in it cannot be exported.
 *
 * The caller owns `*pool`, as that of `farcore_pool_connect`.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `pool` is null, or with `FARCORE_CANNOT_START` if the
 * process cannot have the memory or a thread. Then `*pool` is null.
 *
 * # Safety
 * `pool` can be written.
 */
farcore_code farcore_pool_embedded(uint64_t bytes, struct farcore_pool **pool);

/**
 * Closes a pool: frees what was allocated in it, and ends its sessions.
 *
 * The handle stays: calls that use it fail with `FARCORE_CLOSED`, and `farcore_pool_free` frees
 * it. Calls and operations under way end with their own outcomes; the sessions end when the last
 * of them has ended or was freed. Any thread may close a pool, while others use it and more than
 * once. Blocks until the nodes have answered, for some seconds at most.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `pool` is null.
 *
 * # Safety
 * `pool` is null, or came from `farcore_pool_connect` or `farcore_pool_embedded` and is not freed.
 */
farcore_code farcore_pool_close(struct farcore_pool *pool);

/**
 * Closes a pool, and frees its handle; null, and what is of a parent process, are left alone.
 * Operations under way are freed on their own. Blocks as `farcore_pool_close`. Cannot fail.
 *
 * # Safety
 * `pool` is null, or came from `farcore_pool_connect` or `farcore_pool_embedded`. No other thread
 * uses it, and it is not used afterwards.
 */
void farcore_pool_free(struct farcore_pool *pool);

/**
 * Allocates `bytes` bytes, the first of them at a multiple of `align`: a power of two up to 4096,
 * or 0 for 16. Their contents are unspecified. `place` says where; it may be null, which means
 * balanced.
 *
 * `*ptr` leads to the first byte. The caller owns the memory, and frees it with
 * `farcore_pool_deallocate`; closing the pool frees it, too. `*ptr` is null unless the function
 * returns `FARCORE_OK`.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` (a pointer is null, the alignment or the placement is
 * none), `FARCORE_TOO_LONG`, `FARCORE_EXHAUSTED`, `FARCORE_NO_NODE`, `FARCORE_NODE_DOWN` or
 * `FARCORE_CLOSED`. Any thread may call it. Cost: no round trip if what the pool has claimed of
 * the nodes has room, else two.
 *
 * # Safety
 * `pool` came from this library and is not freed. `place` is null or points to a place. `ptr` can
 * be written.
 */
farcore_code farcore_pool_allocate(const struct farcore_pool *pool,
                                   size_t bytes,
                                   size_t align,
                                   const struct farcore_place *place,
                                   struct farcore_ptr *ptr);

/**
 * Frees an allocation, given by the pointer to its first byte. A null pointer is left alone. Of
 * memory that was imported, it gives up this pool's share.
 *
 * All pointers to it are refused from now on with `FARCORE_FREED`, also if its memory is allocated
 * again. Calls and operations that use it go on; the memory is free after the last of them.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` (`pool` is null, or the pointer does not lead to a first
 * byte), `FARCORE_FREED` (it was freed before), `FARCORE_FOREIGN` or `FARCORE_CLOSED`. Memory that
 * was lost with its node is freed as other memory is. Any thread may call it. Cost: no round trip.
 *
 * # Safety
 * `pool` came from this library and is not freed.
 */
farcore_code farcore_pool_deallocate(const struct farcore_pool *pool, struct farcore_ptr ptr);

/**
 * Writes the length of a pointer's allocation to `*bytes`.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` (a pointer is null), `FARCORE_FREED`, `FARCORE_FOREIGN` or
 * `FARCORE_CLOSED`. Any thread may call it. Cost: no round trip.
 *
 * # Safety
 * `pool` came from this library and is not freed. `bytes` can be written.
 */
farcore_code farcore_pool_length(const struct farcore_pool *pool,
                                 struct farcore_ptr ptr,
                                 size_t *bytes);

/**
 * Whether the contents of a pointer's allocation are lost.
 *
 * Returns `FARCORE_OK` if not, as far as this pool knows; `FARCORE_RENEWED` if they are lost with
 * a node; or `FARCORE_INVALID_ARGUMENT`, `FARCORE_FREED`, `FARCORE_FOREIGN` or `FARCORE_CLOSED`.
 * Any thread may call it. Cost: no round trip.
 *
 * # Safety
 * `pool` came from this library and is not freed.
 */
farcore_code farcore_pool_loss(const struct farcore_pool *pool, struct farcore_ptr ptr);

/**
 * Writes the indexes of the nodes that hold a pointer's allocation, in the order of its bytes, to
 * an array of `capacity`, and how many they are to `*count`. Most allocations are on one node. A
 * node may appear again.
 *
 * Fails with `FARCORE_BUFFER_TOO_SMALL` if they are more than the array has (then `*count` is
 * written), with `FARCORE_INVALID_ARGUMENT`, `FARCORE_FREED`, `FARCORE_FOREIGN` or
 * `FARCORE_CLOSED`. `nodes` may be null if `capacity` is 0. Any thread may call it. Cost: no round
 * trip.
 *
 * # Safety
 * `pool` came from this library and is not freed. `capacity` numbers at `nodes`, and `count`, can
 * be written.
 */
farcore_code farcore_pool_nodes_of(const struct farcore_pool *pool,
                                   struct farcore_ptr ptr,
                                   uint32_t *nodes,
                                   size_t capacity,
                                   size_t *count);

/**
 * Options of a pool with their defaults. Never null. The caller owns them, and frees them with
 * `farcore_pool_options_free`. Any thread may use them, one at a time. Cannot fail. Cost: an
 * allocation.
 */
struct farcore_pool_options *farcore_pool_options_new(void);

/**
 * Frees options of a pool; null is left alone. Pools that were made with them are not affected.
 * Cannot fail.
 *
 * # Safety
 * `options` is null, or came from `farcore_pool_options_new` and is not used afterwards.
 */
void farcore_pool_options_free(struct farcore_pool_options *options);

/**
 * Sets the token: the secret that the pool and its memory nodes share, 16 to 4096 bytes without
 * white space around it. Default: none. The library copies it, and overwrites its copies when it
 * frees them.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null or the length is out of range.
 *
 * # Safety
 * `options` came from `farcore_pool_options_new`; no other thread uses it. `token` points to
 * `length` bytes.
 */
farcore_code farcore_pool_options_set_token(struct farcore_pool_options *options,
                                            const void *token,
                                            size_t length);

/**
 * Sets the token to the content of a file, which is read now. Cost: the file is read.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null, the file cannot be read, or the
 * length of the token is out of range.
 *
 * # Safety
 * `options` came from `farcore_pool_options_new`; no other thread uses it. `path` is ended by a
 * zero.
 */
farcore_code farcore_pool_options_set_token_file(struct farcore_pool_options *options,
                                                 const char *path);

/**
 * Sets the pool's name in the logs of the nodes, in UTF-8. Default: "farcore-pool".
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null or the name is not UTF-8.
 *
 * # Safety
 * `options` came from `farcore_pool_options_new`; no other thread uses it. `name` is ended by a
 * zero.
 */
farcore_code farcore_pool_options_set_name(struct farcore_pool_options *options, const char *name);

/**
 * Sets this program's zone, in UTF-8, a name without `=`: memory is allocated on nodes of this
 * zone first. Default: none. `farcore_pool_connect` checks the name.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null or the zone is not UTF-8.
 *
 * # Safety
 * `options` came from `farcore_pool_options_new`; no other thread uses it. `zone` is ended by a
 * zero.
 */
farcore_code farcore_pool_options_set_zone(struct farcore_pool_options *options, const char *zone);

/**
 * Sets the number of connections to each node, 1 to 16, over which threads are spread. Default: 1;
 * more help several threads that work at once. `farcore_pool_connect` checks the range.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
 *
 * # Safety
 * `options` came from `farcore_pool_options_new`; no other thread uses it.
 */
farcore_code farcore_pool_options_set_connections(struct farcore_pool_options *options,
                                                  uint32_t connections);

/**
 * Sets how many requests may be in flight on each connection, 1 to 4096. Default: 64.
 * `farcore_pool_connect` checks the range.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
 *
 * # Safety
 * `options` came from `farcore_pool_options_new`; no other thread uses it.
 */
farcore_code farcore_pool_options_set_depth(struct farcore_pool_options *options, uint32_t depth);

/**
 * Sets the longest single transfer, in bytes, 4096 to 16777216; longer ones are split. Default:
 * 524288. `farcore_pool_connect` checks the range.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
 *
 * # Safety
 * `options` came from `farcore_pool_options_new`; no other thread uses it.
 */
farcore_code farcore_pool_options_set_transfer_bytes(struct farcore_pool_options *options,
                                                     uint32_t transfer_bytes);

/**
 * Sets how long an operation waits for a node that does not answer, in milliseconds, 1 to 3600000
 * (an hour). Default: 5000. `farcore_pool_connect` checks the range.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
 *
 * # Safety
 * `options` came from `farcore_pool_options_new`; no other thread uses it.
 */
farcore_code farcore_pool_options_set_timeout_ms(struct farcore_pool_options *options,
                                                 uint64_t timeout_ms);

/**
 * Sets how long a node may leave all requests unanswered before its connection counts as lost, in
 * milliseconds, 1 to 3600000. Default: 1000. `farcore_pool_connect` checks the range.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
 *
 * # Safety
 * `options` came from `farcore_pool_options_new`; no other thread uses it.
 */
farcore_code farcore_pool_options_set_silence_ms(struct farcore_pool_options *options,
                                                 uint64_t silence_ms);

/**
 * Sets how many nodes must answer before `farcore_pool_connect` returns, and for how many
 * milliseconds it waits for them, 0 to 3600000. 0 nodes means all. Default: all, and 5000.
 * `farcore_pool_connect` checks the ranges.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
 *
 * # Safety
 * `options` came from `farcore_pool_options_new`; no other thread uses it.
 */
farcore_code farcore_pool_options_set_nodes_min(struct farcore_pool_options *options,
                                                uint32_t nodes_min,
                                                uint64_t wait_ms);

/**
 * Sets how long a waiting thread polls before it sleeps, in microseconds. Longer gives lower
 * latency and takes a processor. Default: 50.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
 *
 * # Safety
 * `options` came from `farcore_pool_options_new`; no other thread uses it.
 */
farcore_code farcore_pool_options_set_spin_us(struct farcore_pool_options *options,
                                              uint64_t spin_us);

/**
 * Sets the RDMA device, such as "mlx5_0", of addresses with `rdma://` and `rdma+tcp://`. Default:
 * the device of the route, or the first with an active port. `farcore_pool_connect` looks for it.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null, or the name is empty or not UTF-8.
 *
 * # Safety
 * `options` came from `farcore_pool_options_new`; no other thread uses it. `device` is ended by a
 * zero.
 */
farcore_code farcore_pool_options_set_device(struct farcore_pool_options *options,
                                             const char *device);

/**
 * Sets the port of the RDMA device, 1 to 255, of addresses with `rdma+tcp://`; with `rdma://` the
 * route says it. Default: the first active one.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null or the port is out of range.
 *
 * # Safety
 * `options` came from `farcore_pool_options_new`; no other thread uses it.
 */
farcore_code farcore_pool_options_set_port(struct farcore_pool_options *options, uint32_t port);

/**
 * Sets the entry of the port's GID table, 0 to 255, of addresses with `rdma+tcp://`; with
 * `rdma://` the route says it. Default: that of RoCE v2 over IPv4, or the best there is.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null or the index is out of range.
 *
 * # Safety
 * `options` came from `farcore_pool_options_new`; no other thread uses it.
 */
farcore_code farcore_pool_options_set_gid_index(struct farcore_pool_options *options,
                                                uint32_t gid_index);

/**
 * A pointer moved by some bytes, forwards or backwards. It may leave its allocation, and come
 * back; only accesses are checked. Cannot fail: a pointer that leaves what 64 bits hold stays out
 * of bounds. Any thread may call it. Cost: none.
 */
struct farcore_ptr farcore_ptr_add(struct farcore_ptr ptr, int64_t bytes);

/**
 * Whether a pointer is null. Cannot fail. Any thread may call it. Cost: none.
 */
bool farcore_ptr_is_null(struct farcore_ptr ptr);

/**
 * Whether two pointers lead to one byte. Cannot fail. Any thread may call it. Cost: none.
 */
bool farcore_ptr_equal(struct farcore_ptr first, struct farcore_ptr second);

/**
 * Writes how many bytes `first` lies behind `second` to `*bytes`.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if `bytes` is null, if the pointers lead to different
 * allocations, or if the difference exceeds 64 bits. Any thread may call it. Cost: none.
 *
 * # Safety
 * `bytes` can be written.
 */
farcore_code farcore_ptr_difference(struct farcore_ptr first,
                                    struct farcore_ptr second,
                                    int64_t *bytes);

/**
 * Computes the type of values of `bytes` bytes from its name, in UTF-8, and the marks of its
 * `count` parts.
 *
 * For the types of Rust programs, as `farcore-pool` names them: an integer, a float, `bool` and
 * `char` by their names in Rust ("u64", "f32") without parts; an array by "array", with the mark
 * of an element and the length; a struct by its name, with the mark of each field, which is that
 * of the field's name with the mark of its type as its only part. Among programs in C any names
 * do.
 *
 * Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null, the name is not UTF-8, or `bytes` is
 * 0. `parts` may be null if `count` is 0. Any thread may call it. Cost: no allocation.
 *
 * # Safety
 * `name` is ended by a zero. `parts` points to `count` marks. `holds` can be written.
 */
farcore_code farcore_type_of(const char *name,
                             const uint64_t *parts,
                             size_t count,
                             uint64_t bytes,
                             struct farcore_type *holds);

/**
 * Exports an allocation, given by the pointer to its first byte: writes a text to `*text` by which
 * other processes can share the memory. `holds` says which values it has; it may be null, which
 * means bytes. With `may_write` the others may write it, too.
 *
 * The text is ended by a zero. The caller owns it, and frees it with `farcore_value_free`; it is
 * all zeros unless the function returns `FARCORE_OK`. A program that has the text can access the
 * memory, so it is a secret. The memory lives until the last process that has imported it and this
 * one have freed it; if this process dies, until the last of them has.
 *
 * Fails with `FARCORE_EMBEDDED` (memory of this process), `FARCORE_GONE` (it was imported),
 * `FARCORE_WRONG_TYPE` (the length is no multiple of the type's), `FARCORE_INVALID_ARGUMENT`, or a
 * common error of pools. Any thread may call it. Cost: a round trip the first time.
 *
 * # Safety
 * `pool` came from this library and is not freed. `holds` is null or points to a type. `text` can
 * be written; what it held is not freed.
 */
farcore_code farcore_pool_export(const struct farcore_pool *pool,
                                 struct farcore_ptr ptr,
                                 const struct farcore_type *holds,
                                 bool may_write,
                                 struct farcore_value *text);

/**
 * Gives an allocation away: writes a text to `*text` by which one other process becomes its owner,
 * who frees it. All pointers to it are refused from now on with `FARCORE_FREED`. Until the other
 * process has imported the text, the memory lives as long as this pool.
 *
 * Gives `*text` as `farcore_pool_export`, and fails as it does. `FARCORE_IN_USE` says that calls
 * or operations under way use the memory. After an error the memory is still the caller's, unless
 * the node fails in the last step: then it is freed, and pointers to it are refused with
 * `FARCORE_FREED`. Any thread may call it. Cost: four round trips.
 *
 * # Safety
 * As `farcore_pool_export`.
 */
farcore_code farcore_pool_transfer(const struct farcore_pool *pool,
                                   struct farcore_ptr ptr,
                                   const struct farcore_type *holds,
                                   struct farcore_value *text);

/**
 * Imports memory that another process has exported, or given away. `holds` says which values are
 * expected; it may be null, which means bytes.
 *
 * `*ptr` leads to its first byte, and is null unless the function returns `FARCORE_OK`. The caller
 * owns a share, or the memory if it was given away, and frees it with `farcore_pool_deallocate`.
 *
 * Fails with `FARCORE_MALFORMED` (the text is no exported pointer), `FARCORE_WRONG_TYPE`,
 * `FARCORE_OTHER_NODE` (this pool has no session at a node that holds it), `FARCORE_GONE` (it was
 * freed or taken, or its exporter has ended), `FARCORE_INVALID_ARGUMENT`, or a common error of
 * pools. Any thread may call it. Cost: some round trips.
 *
 * # Safety
 * `pool` came from this library and is not freed. `text` is ended by a zero. `holds` is null or
 * points to a type. `ptr` can be written.
 */
farcore_code farcore_pool_import(const struct farcore_pool *pool,
                                 const char *text,
                                 const struct farcore_type *holds,
                                 struct farcore_ptr *ptr);

/**
 * Submits an allocation. `farcore_operation_take_ptr` gives its pointer; unless it is taken,
 * freeing the operation frees the memory.
 *
 * `*operation` is the caller's, who polls it with `farcore_poll` or `farcore_wait` and frees it
 * with `farcore_operation_free`. It is null unless the function returns `FARCORE_OK`. An operation
 * that is freed before it has ended may be carried out, in part or not at all.
 *
 * Returns `FARCORE_OK`, `FARCORE_INVALID_ARGUMENT` or `FARCORE_CLOSED`. All other errors are the
 * operation's outcome, with the codes of `farcore_pool_allocate`. Any thread may call it. Cost:
 * two allocations; does not wait.
 *
 * # Safety
 * `pool` came from this library and is not freed. `place` is null or points to a place.
 * `operation` can be written.
 */
farcore_code farcore_pool_submit_allocate(const struct farcore_pool *pool,
                                          size_t bytes,
                                          size_t align,
                                          const struct farcore_place *place,
                                          struct farcore_operation **operation);

/**
 * Submits a read of `length` bytes. They are taken with `farcore_operation_take_value` or copied
 * with `farcore_operation_copy_value`.
 *
 * Gives `*operation` as `farcore_pool_submit_allocate`. Returns `FARCORE_OK`,
 * `FARCORE_INVALID_ARGUMENT`, `FARCORE_FREED`, `FARCORE_FOREIGN` or `FARCORE_CLOSED`. All other
 * errors are the operation's outcome, with the codes of `farcore_pool_read`. Any thread may call
 * it. Cost: three allocations; does not wait.
 *
 * # Safety
 * `pool` came from this library and is not freed. `operation` can be written.
 */
farcore_code farcore_pool_submit_read(const struct farcore_pool *pool,
                                      struct farcore_ptr from,
                                      size_t length,
                                      struct farcore_operation **operation);

/**
 * Submits a write. The bytes are copied.
 *
 * Gives `*operation`, returns and costs as `farcore_pool_submit_read`; its codes are those of
 * `farcore_pool_write`. Writes of one pool that are under way together may be carried out in any
 * order.
 *
 * # Safety
 * As `farcore_pool_submit_read`; `from` points to `length` bytes.
 */
farcore_code farcore_pool_submit_write(const struct farcore_pool *pool,
                                       struct farcore_ptr to,
                                       const void *from,
                                       size_t length,
                                       struct farcore_operation **operation);

/**
 * Submits a read of `count` parts, all in flight together. `farcore_operation_take_batch` gives
 * their bytes, in the order of the parts. The parts are copied, and their `into` is not used.
 *
 * Gives `*operation` and returns as `farcore_pool_submit_read`; its codes are those of
 * `farcore_pool_read_many`. Cost: an allocation for each part.
 *
 * # Safety
 * As `farcore_pool_submit_read`; `parts` points to `count` parts.
 */
farcore_code farcore_pool_submit_read_many(const struct farcore_pool *pool,
                                           const struct farcore_read_part *parts,
                                           size_t count,
                                           struct farcore_operation **operation);

/**
 * Submits a write of `count` parts, all in flight together; those on one node in order. Parts and
 * bytes are copied.
 *
 * Gives `*operation` and returns as `farcore_pool_submit_read`; its codes are those of
 * `farcore_pool_write_many`. Cost: an allocation for each part.
 *
 * # Safety
 * As `farcore_pool_submit_read`; `parts` points to `count` parts, and each part's `from` to its
 * `length` bytes.
 */
farcore_code farcore_pool_submit_write_many(const struct farcore_pool *pool,
                                            const struct farcore_write_part *parts,
                                            size_t count,
                                            struct farcore_operation **operation);

/**
 * Submits a compare-and-swap of a 64-bit word. `farcore_operation_word` gives its old value.
 *
 * Gives `*operation`, returns and costs as `farcore_pool_submit_read`; its codes are those of
 * `farcore_pool_compare_and_swap`.
 *
 * # Safety
 * As `farcore_pool_submit_read`.
 */
farcore_code farcore_pool_submit_compare_and_swap(const struct farcore_pool *pool,
                                                  struct farcore_ptr word,
                                                  uint64_t expected,
                                                  uint64_t desired,
                                                  struct farcore_operation **operation);

/**
 * Submits an addition to a 64-bit word. `farcore_operation_word` gives its old value.
 *
 * Gives `*operation`, returns and costs as `farcore_pool_submit_read`; its codes are those of
 * `farcore_pool_fetch_add`.
 *
 * # Safety
 * As `farcore_pool_submit_read`.
 */
farcore_code farcore_pool_submit_fetch_add(const struct farcore_pool *pool,
                                           struct farcore_ptr word,
                                           uint64_t addend,
                                           struct farcore_operation **operation);

/**
 * Submits an export. `farcore_operation_take_value` gives the text, which is ended by a zero.
 *
 * Gives `*operation`, returns and costs as `farcore_pool_submit_read`; its codes are those of
 * `farcore_pool_export`.
 *
 * # Safety
 * As `farcore_pool_submit_read`; `holds` is null or points to a type.
 */
farcore_code farcore_pool_submit_export(const struct farcore_pool *pool,
                                        struct farcore_ptr ptr,
                                        const struct farcore_type *holds,
                                        bool may_write,
                                        struct farcore_operation **operation);

/**
 * Submits an import. `farcore_operation_take_ptr` gives its pointer; unless it is taken, freeing
 * the operation gives up the share.
 *
 * Gives `*operation` as `farcore_pool_submit_allocate`. Returns `FARCORE_OK`,
 * `FARCORE_INVALID_ARGUMENT`, `FARCORE_MALFORMED`, `FARCORE_WRONG_TYPE` or `FARCORE_CLOSED`. All
 * other errors are the operation's outcome, with the codes of `farcore_pool_import`. Any thread
 * may call it. Cost: some allocations; does not wait.
 *
 * # Safety
 * `pool` came from this library and is not freed. `text` is ended by a zero. `holds` is null or
 * points to a type. `operation` can be written.
 */
farcore_code farcore_pool_submit_import(const struct farcore_pool *pool,
                                        const char *text,
                                        const struct farcore_type *holds,
                                        struct farcore_operation **operation);

/**
 * Writes the old value that an atomic operation of a pool returned to `*word`.
 *
 * Returns `FARCORE_OK`, `FARCORE_PENDING` if it has not ended, its code if it failed, or
 * `FARCORE_INVALID_ARGUMENT` if a pointer is null or its kind returns no word. Threads and cost as
 * `farcore_poll`.
 *
 * # Safety
 * As `farcore_poll`; `word` can be written.
 */
farcore_code farcore_operation_word(struct farcore_operation *operation, uint64_t *word);

/**
 * Moves the memory that an operation has allocated or imported to the caller, who frees it with
 * `farcore_pool_deallocate`. `*ptr` leads to its first byte.
 *
 * Returns `FARCORE_OK`, `FARCORE_PENDING` if the operation has not ended, its code if it failed,
 * `FARCORE_TAKEN` if it was taken before, `FARCORE_CLOSED` if the pool was closed meanwhile, or
 * `FARCORE_INVALID_ARGUMENT` if a pointer is null or its kind returns none. Threads and cost as
 * `farcore_poll`.
 *
 * # Safety
 * As `farcore_poll`; `ptr` can be written.
 */
farcore_code farcore_operation_take_ptr(struct farcore_operation *operation,
                                        struct farcore_ptr *ptr);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FARCORE_H */
