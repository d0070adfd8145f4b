/* Inlay: an LLM inference engine that a program links in. The only public C header (C99).
 *
 * THE FIVE HANDLES
 *   inlay_engine    devices, threads, memory budget, the scheduler that batches every request
 *   inlay_model     weights, tokenizer and chat template of one model; sessions run on it
 *   inlay_session   a token log and its KV cache; grows by requests, can be forked and rewound
 *   inlay_request   one generation in a session
 *   inlay_event     what a request produced: tokens and text, logits, its end
 * and two small ones that carry results out: inlay_buffer (bytes) and inlay_error (what went wrong).
 *
 * IN SHORT
 *   create an engine, load a model, create a session, submit a request; then, until the request's FINISHED event:
 *   host-driven (the default): call inlay_engine_step(), take what inlay_event_next() has;
 *   thread-driven (INLAY_DRIVE_THREAD): only wait in inlay_event_next() or poll inlay_engine_event_fd().
 *
 * ERRORS. Every function that can fail returns an inlay_status. Its last parameter `error` may be null; if it is not, it
 *   receives an error object on failure (null on success), to be read from any thread and released by the caller.
 *   INLAY_TIMEOUT and INLAY_END are answers, not failures: they come without an error object. Results are written only on
 *   INLAY_OK, except that result handles are set to null first. The library never aborts, exits, prints or throws.
 *
 * HANDLES are checked: null, foreign, stale (released) or wrongly typed ones give INLAY_INVALID_HANDLE. Functions returning
 *   void ignore them. Each handle is released once by whoever got it, in any order, from any thread (a finalizer's too):
 *   release only marks, and the next step reclaims; of a model as much as its time allows, and others that follow the rest.
 *   What a handle depends on lives until the last of them is gone, except
 *   that releasing the engine ends all work at once and later calls on its models, sessions and requests give INLAY_CLOSED.
 *   In the child of fork() those of the parent are invalid, and releasing them does nothing; it can make an engine of its own.
 *
 * THREADS. Unless a declaration says otherwise, any function may be called from any thread at any time. Callbacks run on
 *   the thread that causes them; they must not call back into the library for the same engine, and must not throw. An engine's
 *   own threads have ended when inlay_engine_release returns. Release all handles before you unload the library.
 *
 * STRUCTS that carry options or results begin with `struct_size`: call the _init function (it sets struct_size and defaults),
 *   then change fields. They only ever grow at their end; enum values are pinned. Strings are UTF-8. Times are microseconds.
 *   Where a struct has grown, _init is a macro that tells the library which size the caller was compiled with; the function
 *   of that name serves callers compiled before.
 *
 * PREFIX SHARING is automatic: a request whose tokens begin like earlier ones reuses their KV (keys and values), copied only
 *   where the two come to differ. What no request runs on stays cached until its memory is needed. Neither hits nor misses,
 *   nor batching, chunking, preemption or restoring change a request's tokens.
 *
 * Since: ABI 1 for everything not marked otherwise; "since 2" and so on name the INLAY_ABI_VERSION that brought it.
 */
#ifndef INLAY_INLAY_H_
#define INLAY_INLAY_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define INLAY_API __attribute__((visibility("default")))
#else
#define INLAY_API
#endif

/* ---- Version ---------------------------------------------------------------------------------------------------------- */

#define INLAY_VERSION_MAJOR 0
#define INLAY_VERSION_MINOR 1
#define INLAY_VERSION_PATCH 0
/* Grows by one with every release that adds to the ABI; nothing is ever taken away. */
#define INLAY_ABI_VERSION 13

/* "0.1.0" of the library that is loaded; static. */
INLAY_API const char* inlay_version(void);
/* INLAY_ABI_VERSION of the library that is loaded: at least the header's, or the header is too new for it. */
INLAY_API uint32_t inlay_abi_version(void);

/* ---- Status and errors ------------------------------------------------------------------------------------------------ */

typedef int32_t inlay_status;
enum {
  INLAY_OK = 0,
  INLAY_INVALID_ARGUMENT = 1,   /* a value, file or text is not what it must be */
  INLAY_INVALID_HANDLE = 2,     /* null, released, foreign or of another type */
  INLAY_INVALID_STATE = 3,      /* right call, wrong moment: for example a second request in a busy session */
  INLAY_NOT_FOUND = 4,          /* a file, tensor, template or kernel that was named does not exist */
  INLAY_UNSUPPORTED = 5,        /* well-formed, but this build cannot do it; the message names it */
  INLAY_RESOURCE_EXHAUSTED = 6, /* over a budget or limit of this engine; the message has the numbers */
  INLAY_OUT_OF_MEMORY = 7,      /* the allocator returned null */
  INLAY_CANCELLED = 8,
  INLAY_TIMEOUT = 9,   /* nothing within the time asked */
  INLAY_END = 10,      /* the request's last event was already taken */
  INLAY_CLOSED = 11,   /* the engine was released */
  INLAY_IO_ERROR = 12, /* the system refused to read or write a file */
  INLAY_NUMERIC = 13,  /* the model produced NaN or infinity for this request */
  INLAY_DEVICE_LOST = 14, /* the device failed; the engine can only be released */
  INLAY_INTERNAL = 15  /* a bug in the library */
};

/* "INLAY_TIMEOUT" and so on; "unknown status" for other values. Static. */
INLAY_API const char* inlay_status_name(inlay_status status);

typedef struct inlay_error inlay_error;
/* INLAY_INVALID_HANDLE for a bad handle. */
INLAY_API inlay_status inlay_error_status(const inlay_error* error);
/* What was wrong, the value got, the value allowed, the next step. Valid until release; "" for a bad handle. */
INLAY_API const char* inlay_error_message(const inlay_error* error);
INLAY_API void inlay_error_release(inlay_error* error);

/* Bytes the library made for the caller. */
typedef struct inlay_buffer inlay_buffer;
/* `size` bytes, followed by a NUL that does not count. Valid until release; "" / 0 for a bad handle. */
INLAY_API const char* inlay_buffer_data(const inlay_buffer* buffer);
INLAY_API size_t inlay_buffer_size(const inlay_buffer* buffer);
INLAY_API void inlay_buffer_release(inlay_buffer* buffer);

/* ---- Engine ----------------------------------------------------------------------------------------------------------- */

typedef struct inlay_engine inlay_engine;
typedef struct inlay_model inlay_model;
typedef struct inlay_session inlay_session;
typedef struct inlay_request inlay_request;
typedef struct inlay_event inlay_event;

enum { INLAY_BACKEND_AUTO = 0, INLAY_BACKEND_CPU = 1, INLAY_BACKEND_CUDA = 2 };
enum {
  INLAY_DRIVE_HOST = 0,  /* the host calls inlay_engine_step(); no thread but the kernels' workers */
  INLAY_DRIVE_THREAD = 1 /* a thread of the engine's own steps while there is work, and sleeps otherwise */
};
enum { INLAY_LOG_ERROR = 0, INLAY_LOG_WARNING = 1, INLAY_LOG_INFO = 2, INLAY_LOG_DEBUG = 3 };

/* `message` is valid during the call. */
typedef void (*inlay_log_callback)(void* user, int32_t level, const char* message);

/* Memory for weights that are not mapped, KV cache and scratch comes from here; small host objects do not.
 * Not used with CUDA. `allocate` returns null when there is none; `alignment` is a power of two. Both may be called from any
 * thread. */
typedef void* (*inlay_allocate_callback)(void* user, size_t bytes, size_t alignment);
typedef void (*inlay_deallocate_callback)(void* user, void* memory, size_t bytes, size_t alignment);

typedef struct inlay_engine_options {
  uint32_t struct_size;
  int32_t backend;              /* INLAY_BACKEND_*; default AUTO: a GPU where CUDA can be had (compute capability 8.0, a
                                   driver for CUDA 13) and no allocator is given, otherwise the CPU. With CUDA,
                                   INLAY_UNSUPPORTED says what is missing: in the build, driver or GPU */
  int32_t drive;                /* INLAY_DRIVE_*; default HOST */
  int32_t num_threads;          /* CPU kernels, the stepping thread included; 0 (default): one per core; at most 1024 */
  uint64_t memory_budget_bytes; /* all allocations of the device for weights, KV and scratch together; 0 (default): no limit.
                                   Mapped weight files are page cache and do not count. */
  uint32_t max_batch_tokens;    /* tokens computed in one step, decodes first; default 512, at most 65536 */
  uint32_t max_running;         /* requests that take part in steps; default 256, at most 4096 */
  uint32_t max_queue;           /* requests that wait for that; default 65536 */
  int32_t log_level;            /* INLAY_LOG_*: messages above it are dropped; default WARNING */
  inlay_log_callback log;       /* default null: no log */
  void* log_user;
  inlay_allocate_callback allocate; /* both or neither; default null: the C++ runtime's aligned new */
  inlay_deallocate_callback deallocate;
  void* allocator_user;
  /* Since 2. */
  uint32_t prefix_sharing;   /* 1 (default): sessions share the KV of common prefixes; 0: only a session and its forks do, so
                                that no session can tell by timing what another has asked */
  uint32_t max_prefill_chunk; /* prompt tokens of one request in a step; 0 (default): max_batch_tokens */
  uint64_t tpot_target_us;   /* prompts take part in a step of running generations only as far as the step is expected to
                                stay within it; 0 (default): no target */
  uint64_t starvation_us;    /* who waited this long goes before all others; default 10 s; 0: never */
  /* Since 3. */
  uint32_t gpu;              /* CUDA's number of the GPU; default 0. Not used on CPU */
  uint32_t batch_invariant;  /* 1: on CUDA too, as on CPU always, a request gets the same tokens whatever else runs: slower,
                                see kernels/README.md; 0 (default): sums may be ordered by the batch */
} inlay_engine_options;

INLAY_API void inlay_engine_options_init(inlay_engine_options* options);
INLAY_API void inlay_engine_options_init_sized(inlay_engine_options* options, size_t size); /* since 2 */
#define inlay_engine_options_init(options) inlay_engine_options_init_sized((options), sizeof(inlay_engine_options))
/* `options` may be null for the defaults. */
INLAY_API inlay_status inlay_engine_create(const inlay_engine_options* options, inlay_engine** engine,
                                           inlay_error** error);
/* Cancels everything, stops the engine's thread (waiting for the step it is in) and frees all memory of its models. What a
 * disk cache is to keep is written first. */
INLAY_API void inlay_engine_release(inlay_engine* engine);

/* What an engine computes on. Since 3. */
typedef struct inlay_device_info {
  uint32_t struct_size;
  int32_t backend;             /* INLAY_BACKEND_CPU or INLAY_BACKEND_CUDA */
  uint64_t memory_bytes;       /* physical memory of the device */
  uint32_t num_processors;     /* multiprocessors of a GPU; threads on CPU */
  uint32_t compute_capability; /* of a GPU, times 10: 90 is 9.0; 0 on CPU */
  char name[104];              /* UTF-8, cut where it is longer */
} inlay_device_info;

INLAY_API void inlay_device_info_init(inlay_device_info* info);
INLAY_API inlay_status inlay_engine_device(inlay_engine* engine, inlay_device_info* info, inlay_error** error);
/* Times copies of `bytes` (1 MiB to 4 GiB) within the device's memory for about 20 ms, in scratch of twice that: bytes read plus
 * bytes written a second, what decoding is measured against. Beside steps both get slower. INLAY_RESOURCE_EXHAUSTED: no room.
 * Since 3. */
INLAY_API inlay_status inlay_engine_measure_copy(inlay_engine* engine, uint64_t bytes, double* bytes_per_second,
                                                 inlay_error** error);

/* What one step did. */
typedef struct inlay_step_info {
  uint32_t struct_size;
  uint32_t num_requests;     /* that took part */
  uint32_t prefill_tokens;   /* prompt tokens computed */
  uint32_t decode_tokens;    /* generated tokens computed */
  uint32_t sampled_tokens;   /* tokens chosen */
  uint32_t more_work;        /* 1 when another step now would do something */
  uint64_t duration_us;
  /* Since 2. */
  uint64_t predicted_us; /* what the steps were expected to take */
  uint64_t overshoot_us; /* how far duration_us went past the budget; 0 without one */
} inlay_step_info;

/* Host-driven engines: runs steps until `budget_us` is used up or there is nothing to do; 0 means exactly one step. With a
 * budget, batches and prompt chunks are sized by what steps have taken so far on this machine, so that the call ends in time;
 * running generations take turns where not all fit. Something is computed in every call, however small its budget. What comes back from a disk
 * cache is read beside steps; with nothing else to do a call waits for it, no longer than its budget; with 0, until the disk answers. A step
 * once begun is finished: overshoot_us tells when that was too late. Without a budget, a GPU may have begun the next step when the
 * call returns; with one it is idle then. `info` may be null; it sums over the steps. The CPU's kernels take up to 400 KB of the
 * calling thread's stack, as of the workers': threads with less than 1 MB are not for stepping, nor for inlay_quantize().
 * INLAY_INVALID_STATE on a thread-driven engine and while another thread is stepping. */
INLAY_API inlay_status inlay_engine_step(inlay_engine* engine, uint64_t budget_us, inlay_step_info* info,
                                         inlay_error** error);
INLAY_API void inlay_step_info_init(inlay_step_info* info);
INLAY_API void inlay_step_info_init_sized(inlay_step_info* info, size_t size); /* since 2 */
#define inlay_step_info_init(info) inlay_step_info_init_sized((info), sizeof(inlay_step_info))

/* The most memory that weights, KV and scratch of a device may take together, from now on, up or down; 0: no limit. `device`: 0,
 * the only one that an engine has. Obeyed at once, or at the end of the step in flight: caches shrink (what no request runs on goes first, then running
 * requests give their KV up and wait), and grow back when there is room again. A step in flight with a time budget keeps that: it and
 * those after it give back what their time allows (half of it comes before anything is computed, and 16 MiB or 1/256 of the cache go in
 * each), and have `more_work` until it is obeyed; set between steps, it is obeyed before this returns. No session and no request is lost: what does
 * not fit meanwhile waits. INLAY_RESOURCE_EXHAUSTED, with nothing changed, below what weights and scratch take; before
 * that, released models are freed, which waits until their disk caches are written. Since 2. */
INLAY_API inlay_status inlay_engine_set_memory_budget(inlay_engine* engine, int32_t device, uint64_t bytes,
                                                      inlay_error** error);

/* Of everything since creation; percentiles to within 1/16. Since 2. Its size is fixed: it has no struct_size. */
typedef struct inlay_distribution {
  uint64_t count;
  uint64_t sum;
  uint64_t p50;
  uint64_t p90;
  uint64_t p99;
  uint64_t max;
} inlay_distribution;

typedef struct inlay_stats {
  uint32_t struct_size;
  uint32_t num_models;
  uint32_t num_sessions;
  uint32_t running_requests;
  uint32_t waiting_requests;
  uint32_t reserved;
  uint64_t submitted_requests; /* since creation, as are the counters below */
  uint64_t finished_requests;  /* ended on their own: stop or length */
  uint64_t cancelled_requests;
  uint64_t failed_requests;
  uint64_t preemptions;
  uint64_t evictions; /* cached KV blocks dropped for others; what is missing is recomputed */
  uint64_t steps;
  uint64_t step_us;      /* time inside steps */
  uint64_t schedule_us;  /* of that, planning, reserving, building batches and committing */
  uint64_t prefill_tokens;
  uint64_t decode_tokens;
  uint64_t kv_blocks_total; /* over all models */
  uint64_t kv_blocks_used; /* that requests, pinned prefixes and reservations hold; see also kv_blocks_cached */
  uint64_t memory_bytes; /* in use now; its parts follow */
  uint64_t memory_peak_bytes;
  uint64_t memory_budget_bytes;
  uint64_t weight_bytes;
  uint64_t kv_bytes;
  uint64_t workspace_bytes;
  uint64_t mapped_bytes; /* weight files mapped, not counted in memory_bytes */
  /* Since 2. */
  uint64_t kv_blocks_cached; /* held by nobody, kept for requests that begin alike */
  uint64_t lookup_tokens;    /* prompt tokens of requests that began */
  uint64_t hit_tokens;       /* of these, tokens whose KV was cached */
  inlay_distribution queue_time_us;          /* from submit to the first step */
  inlay_distribution time_to_first_token_us; /* TTFT: from submit */
  inlay_distribution inter_token_time_us;    /* from one token of a request to its next; the mean is the TPOT */
  inlay_distribution request_time_us;        /* from submit to the end */
  inlay_distribution step_time_us;
  inlay_distribution schedule_time_us;
  inlay_distribution step_overshoot_us; /* of steps with a budget; 0 where it was kept */
  inlay_distribution step_tokens;
  /* Since 11: of the models loaded now, and not counted in memory_bytes. */
  uint64_t host_cache_bytes;        /* of KV that host caches hold */
  uint64_t host_cache_peak_bytes;   /* the most they have held */
  uint64_t host_cache_budget_bytes; /* host memory that they took when their models were loaded, and never pass */
  uint64_t disk_cache_bytes;        /* of files of KV, those of earlier runs included */
  uint64_t disk_cache_budget_bytes; /* what these may take; 0 where a disk cannot be used, too */
  uint64_t expert_host_bytes;       /* pinned host memory of experts that a GPU has no room for */
} inlay_stats;

INLAY_API void inlay_stats_init(inlay_stats* stats);
INLAY_API void inlay_stats_init_sized(inlay_stats* stats, size_t size); /* since 2 */
#define inlay_stats_init(stats) inlay_stats_init_sized((stats), sizeof(inlay_stats))
INLAY_API inlay_status inlay_engine_stats(inlay_engine* engine, inlay_stats* stats, inlay_error** error);

enum {
  INLAY_METRICS_PROMETHEUS = 0, /* text exposition format 0.0.4 */
  INLAY_METRICS_PROTOBUF = 1    /* inlay.stats.EngineStats of api/proto/stats.proto, histograms included */
};
/* All there is to count, for a monitoring system. Since 2. */
INLAY_API inlay_status inlay_engine_metrics(inlay_engine* engine, int32_t format, inlay_buffer** metrics,
                                            inlay_error** error);

/* Records what steps, requests and KV blocks do in a ring of the newest `num_events` events (about 100 bytes each; 1 to 1048576).
 * INLAY_INVALID_STATE when it records already. Since 2. */
INLAY_API inlay_status inlay_engine_trace_start(inlay_engine* engine, size_t num_events, inlay_error** error);
/* What was recorded since the start or the last take, as a trace that Perfetto (ui.perfetto.dev) opens; with `stop` 1,
 * recording ends and its memory is freed. INLAY_INVALID_STATE when nothing is recorded. Since 2. */
INLAY_API inlay_status inlay_engine_trace_take(inlay_engine* engine, int32_t stop, inlay_buffer** trace,
                                               inlay_error** error);

/* ---- Model ------------------------------------------------------------------------------------------------------------ */

enum {
  INLAY_KV_AUTO = 0,
  INLAY_KV_F32 = 1,
  INLAY_KV_F16 = 2,
  INLAY_KV_BF16 = 3,
  INLAY_KV_I8 = 4, /* 8-bit integers, a scale for each token and head: head_dim + 4 bytes a row */
  INLAY_KV_F8 = 5, /* 8-bit floats (e4m3), the same scales and size; for models with outliers in their keys */
  INLAY_KV_Q4 = 6  /* 4-bit integers, scale and offset for each 32 elements: 5 bits an element */
};
enum {
  INLAY_WEIGHTS_MAP = 0, /* map weight files: fast to load, shared between processes; the host must not truncate them */
  INLAY_WEIGHTS_READ = 1 /* read them into memory from the engine's allocator */
};
/* Sparse attention by content, since 7: how blocks of 16 keys are chosen, for each query and KV head. */
enum {
  INLAY_BLOCK_SELECTION_NONE = 0,
  INLAY_BLOCK_SELECTION_BOUNDS = 1, /* by the least and the most of each dimension of their keys */
  INLAY_BLOCK_SELECTION_KMEANS = 2, /* by two centroids of their keys */
  INLAY_BLOCK_SELECTION_LSH = 3     /* by 128-bit hashes of their keys: finds single keys best, reads least, computes most */
};
enum { INLAY_LOAD_CONFIG = 0, INLAY_LOAD_TOKENIZER = 1, INLAY_LOAD_WEIGHTS = 2, INLAY_LOAD_READY = 3 };

/* Called while loading, on the loading thread: `stage` is INLAY_LOAD_*, `fraction` of that stage in [0, 1].
 * A result other than 0 cancels the load, which then gives INLAY_CANCELLED. */
typedef int32_t (*inlay_progress_callback)(void* user, int32_t stage, float fraction);

typedef struct inlay_model_options {
  uint32_t struct_size;
  int32_t vocab_only;        /* 1: only tokenizer and chat template; sessions are refused. Default 0 */
  int32_t weights;           /* INLAY_WEIGHTS_*; default MAP */
  int32_t kv_type;           /* INLAY_KV_*; AUTO (default) is f32 on CPU, on CUDA the type of most weights */
  uint32_t kv_block_size;    /* tokens a block: a power of two from 8 to 256; 0 (default): 16; on CUDA at least 16. Where layers
                                differ in their windows, those of some have a multiple */
  uint32_t max_context;      /* cap on a session's tokens; 0 (default): the model's own */
  uint64_t kv_budget_bytes;  /* for this model's KV cache, allocated at load; 0 (default): room for 4 full contexts, within
                                a quarter of the machine's memory and the engine's budget */
  const char* kernels;       /* forces kernels, for tests and measurements: "gemm=cpu_scalar,attention=cpu_simd"; null: none */
  inlay_progress_callback progress; /* default null */
  void* progress_user;
  /* Since 2: tiers below the KV cache. What the cache gives up goes there while reading it back is cheaper than computing it
   * again, and comes back when a request begins alike. */
  uint64_t host_cache_bytes;     /* host memory for it, beside the engine's memory budget; 0 (default): none */
  const char* disk_cache_folder; /* below that: a folder for this model alone, made if missing; null (default): none */
  uint64_t disk_cache_bytes;     /* that its files may take */
  /* Since 7. */
  const char* attention_pattern; /* sparse attention by position: which earlier tokens are seen where a layer would see all;
                                    the model is another one with it. "window=4096,global=64,random=192,..": block (64: a power
                                    of two from 16 to 1024) and, in tokens and multiples of it, any of
                                    window    its own block and those before it, so many tokens in all
                                    global    the first tokens: seen by all
                                    segment   tokens of the same part of so many
                                    dilated, dilation   every so many tokens back, as far as dilated
                                    stride    the last block of each so many tokens
                                    random    blocks drawn for each block by seed (0)
                                    context   tokens from this position on see all before them, whatever is said above. Star
                                              Attention: "segment=4096,global=4096,context=65536", the prompt's context filled
                                              up to that length, then the question and what is generated
                                    Null (default): dense. INLAY_INVALID_ARGUMENT says what is wrong, or that no layer sees all */
  int32_t block_selection;       /* INLAY_BLOCK_SELECTION_*; default NONE. Sparse attention by content in layers that would see all
                                    earlier tokens: of those a query sees selected_tokens, the first 16 and the last 17 to 32
                                    among them; the model is another one with it, prompts too, but for sequences no longer than
                                    that. The KV cache grows by 2 to 6 % (f32 and
                                    16 bits; i8 to 12, q4 to 25). kv_block_size must be at least 16. Not together with
                                    attention_pattern. INLAY_UNSUPPORTED where no layer can (latent attention, encoders, windows
                                    or recurrent layers alone) */
  uint32_t selected_tokens;      /* of a query and KV head: a multiple of 16 from 64 to 131072 */
  /* Since 8: mixtures of experts that are larger than the GPU's memory. */
  uint64_t expert_device_bytes;  /* what the experts of all layers may take of a GPU's memory; 0 (default), or enough for all: all
                                    are there. Otherwise they lie in pinned host memory, beside the engine's memory budget, and the
                                    GPU has the experts that were needed last, as many of each layer, and fetches others when a
                                    step needs them. What comes out is the same to the bit. Shared experts and routers stay on
                                    the GPU. INLAY_INVALID_ARGUMENT names the least, the experts of one token in every layer;
                                    INLAY_RESOURCE_EXHAUSTED: the machine has less host memory, INLAY_OUT_OF_MEMORY: it cannot
                                    be pinned. On CPU, and without experts, no effect */
} inlay_model_options;

INLAY_API void inlay_model_options_init(inlay_model_options* options);
INLAY_API void inlay_model_options_init_sized(inlay_model_options* options, size_t size); /* since 2 */
#define inlay_model_options_init(options) inlay_model_options_init_sized((options), sizeof(inlay_model_options))
/* `path`: a Hugging Face directory (config.json, safetensors; tokenizer optional), a GGUF file (the first of a split model;
 * its name ends in ".gguf"), or "random:CONFIG_DIR[?dtype=bf16]" for random weights in a configuration's shapes. Blocks until
 * loaded; other threads go on stepping meanwhile.
 * `options` may be null. */
INLAY_API inlay_status inlay_model_load(inlay_engine* engine, const char* path, const inlay_model_options* options,
                                        inlay_model** model, inlay_error** error);
INLAY_API void inlay_model_release(inlay_model* model);

typedef struct inlay_model_info {
  uint32_t struct_size;
  uint32_t num_layers;
  char architecture[64]; /* as config.json has it */
  uint64_t vocab_size;
  uint64_t hidden_size;
  uint64_t max_context;
  uint64_t num_parameters;
  uint64_t weight_bytes;
  uint64_t bytes_per_decode; /* weights read for one token at batch 1: over the time a token takes, the bandwidth achieved */
  uint64_t kv_bytes_per_token;
  uint64_t kv_capacity_tokens;
  int32_t bos_token; /* -1: none. Of generation_config.json, else config.json, else the tokenizer's files */
  int32_t eos_token; /* the first of them, of the same files; -1: none */
  int32_t has_tokenizer;
  int32_t has_chat_template;
  /* Since 12. */
  uint64_t embedding_size; /* elements of what INLAY_EMBEDDING_DEFAULT gives, through the files' Dense modules; where a request names
                              its pooling, hidden_size. 0: the files ask for what is not supported, or no weights were loaded */
} inlay_model_info;

INLAY_API void inlay_model_info_init(inlay_model_info* info);
INLAY_API void inlay_model_info_init_sized(inlay_model_info* info, size_t size); /* since 12 */
#define inlay_model_info_init(info) inlay_model_info_init_sized((info), sizeof(inlay_model_info))
INLAY_API inlay_status inlay_model_get_info(inlay_model* model, inlay_model_info* info, inlay_error** error);

/* What a model path holds, without loading weights: JSON with architecture, configuration, tensors, formats, the memory
 * each backend needs, and of a classification head "classification": {"labels": names, "scores": what DEFAULT gives}. */
INLAY_API inlay_status inlay_model_inspect(const char* path, inlay_buffer** json, inlay_error** error);

/* Since 4, all of quantisation that is not marked otherwise. */

/* How weights are rounded; since 5. Matrices whose format keeps codewords, and all that are not between a norm and the logits
 * (embeddings, also where they are the head), are rounded to nearest whatever the method. */
enum {
  INLAY_QUANTIZE_NEAREST = 0, /* to nearest, by the format's encoder */
  INLAY_QUANTIZE_IMATRIX = 1, /* errors weighted by the mean squares of the layer's inputs */
  INLAY_QUANTIZE_GPTQ = 2,    /* each column's error is made up for in those after it (arXiv:2210.17323) */
  INLAY_QUANTIZE_AWQ = 3,     /* columns are scaled first, what gives the inputs the other way (arXiv:2306.00978) */
  INLAY_QUANTIZE_SMOOTHQUANT = 4 /* the same, by the largest inputs and weights, for inputs in 8 bits (arXiv:2211.10438); since 6 */
};

typedef struct inlay_quantize_options {
  uint32_t struct_size;
  int32_t num_threads; /* the calling one included; 0 (default): one per core; at most 1024 */
  const char* type;    /* "q8_0" (default), "q4_0", "q6_k", ..., "f16", "bf16", "f32", or a mixture of K-quants: "q3_k_s", "q3_k_m",
                          "q3_k_l", "q4_k_s", "q4_k_m", "q5_k_s", "q5_k_m"; another one is answered by the list */
  const char* const* tensor_types; /* "PATTERN=TYPE": of tensors whose published names match (* and ?); the last match counts.
                                      A pattern of no tensor is INLAY_INVALID_ARGUMENT */
  size_t num_tensor_types;         /* default 0; at most 4096 */
  uint32_t no_tokenizer;           /* 1: leave tokenizer and chat template out; default 0 */
  uint32_t reserved;
  inlay_progress_callback progress; /* default null; stages INLAY_LOAD_WEIGHTS and, at the end, INLAY_LOAD_READY; a result other
                                       than 0 cancels */
  void* progress_user;
  /* Since 5. */
  uint32_t method;    /* INLAY_QUANTIZE_*, default NEAREST; the others need calibration (IMATRIX: or imatrix_path) */
  uint32_t act_order; /* GPTQ: 1 takes inputs of largest squares first; default 0 */
  /* Calibration runs texts such as the model is for through it: each from its start, special tokens in them read, cut into
   * sequences of `sequence_tokens`, at most `calibration_tokens` in all. */
  const char* const* calibration;
  size_t num_calibration;      /* default 0; at most 2^20 */
  uint32_t sequence_tokens;    /* default 512; at least 2 */
  uint32_t calibration_tokens; /* default 65536; at least 2 */
  /* Since 6. */
  float smoothing;    /* SMOOTHQUANT's alpha, 0 to 1: how much of the inputs' spread goes to the weights; default 0.5 */
  uint32_t reserved2;
  /* Since 9. */
  uint64_t expert_bytes; /* bytes that calibration keeps of a layer's experts at a time: sums over what they read and, once those
                            are gone, for GPTQ, their weights in float32: with less, layers run more often and weights are
                            decoded more often, to the same file; one expert has room whatever this is; default 4 GiB */
  /* Since 10. */
  uint64_t memory_limit; /* bytes that all of it may take beside mapped files and the tokenizer's document: with less than calibration
                            would keep, layers run more often, to the same file; less than is needed at least is
                            INLAY_RESOURCE_EXHAUSTED, whose message says how much that is, or that the model and the tokens of
                            calibration have no room; 0 (default): no limit */
  /* Since 13. */
  const char* imatrix_path; /* in calibration's place, for IMATRIX and GGUF files: what llama.cpp's imatrix measured of this model
                               (GGUF, or .dat), whose matrices are found by their names there; others are rounded to nearest.
                               Default null; of another model: INLAY_INVALID_ARGUMENT */
} inlay_quantize_options;

INLAY_API void inlay_quantize_options_init(inlay_quantize_options* options);
INLAY_API void inlay_quantize_options_init_sized(inlay_quantize_options* options, size_t size); /* since 5 */
#define inlay_quantize_options_init(options) inlay_quantize_options_init_sized((options), sizeof(inlay_quantize_options))
/* Writes the model at `model_path` (as inlay_model_load() takes it, random: too) as a GGUF file at `out_path`, weights rounded,
 * in bounded memory on the calling thread and helpers of its own. Matrices get the type; norms and biases stay f32; where
 * rows do not fit a type's blocks, the nearest type that fits takes its place. `out_path` is replaced when the file is complete, and
 * keeps what it has otherwise. Calibration keeps 4 bytes for each token and element of the residual stream, 4 n^2 for each input of
 * n elements of one layer (IMATRIX: 8 n; of its experts `expert_bytes` at a time), and for GPTQ a layer in float32, of its experts what is written; where layers read the
 * keys and values of others, those of all tokens. The model's files are mapped meanwhile: the host must not truncate them. Types u4_g128, u4_g32, i8_g128 and i8_g32 (since 5) give a
 * Hugging Face folder instead, of GPTQ's layout, whose other tensors are as they were; its files are replaced one by one, and
 * those of tokenizer, chat templates, generation_config.json and sentence-transformers are copied. So do
 * (since 6) u4_g64, u4_channel, these with _sym, i8_g64, i8_channel, i8_channel_sym (since 10 all i8 with _sym); awq_g128, awq_g64, awq_g32 of AWQ's layout; w8a8_int8, w8a8_fp8,
 * w8a8_fp8_tensor and w8a8_fp8_static of compressed-tensors', of which the last needs calibration with any method;
 * (since 13) w8a8_fp8_block, w4a16_g128, w4a16_g64, w4a16_g32, w4a16_channel, these with _asym, of the latter; nf4 and fp4 of bitsandbytes'.
 * `options` may be null for the defaults. `report` may be null; it is JSON:
 *   type, method, calibration_tokens, bytes_before, bytes_after (of tensors), file_bytes, has_tokenizer
 *   tensors  [{"name", "gguf", "shape", "from", "to", "wanted": where that did not fit, "error": root mean square, relative to
 *            that of the values, "seconds": to encode and write it, without the calibration, "bytes_before", "bytes_after";
 *            where the method did it: "output_error", the same of the outputs over the calibration (for IMATRIX with inputs
 *            taken for independent), "nearest_error": that of rounding to nearest, of experts "expert_tokens": how many tokens
 *            of the calibration went to each}]
 * INLAY_UNSUPPORTED: an architecture, a setting or a tokenizer that GGUF cannot say, or text without a tokenizer;
 * INLAY_INVALID_ARGUMENT: a type, a method without calibration, one that does nothing with the type (w8a8_fp8, nf4: all but NEAREST and
 * SMOOTHQUANT), or weights or inputs of layers that are not finite; INLAY_CANCELLED; INLAY_NOT_FOUND, INLAY_RESOURCE_EXHAUSTED (the
 * disk is full, or, before there is any work, one of the files to copy has more than 256 MiB), INLAY_IO_ERROR: files. */
INLAY_API inlay_status inlay_quantize(const char* model_path, const char* out_path, const inlay_quantize_options* options,
                                      inlay_buffer** report, inlay_error** error);

/* ---- Text ------------------------------------------------------------------------------------------------------------- */

enum {
  INLAY_TEXT_ADD_SPECIAL = 1,   /* what the tokenizer puts around a text (BOS, EOS) */
  INLAY_TEXT_PARSE_SPECIAL = 2, /* text that spells a special token becomes that token; leave it out for untrusted text */
  INLAY_TEXT_SKIP_SPECIAL = 4   /* detokenize: leave special tokens out */
};

/* Writes at most `capacity` ids to `tokens` (may be null when capacity is 0) and the number there are to `num_tokens`.
 * INLAY_UNSUPPORTED when the model has no tokenizer. Invalid UTF-8 is read as U+FFFD. */
INLAY_API inlay_status inlay_model_tokenize(inlay_model* model, const char* text, size_t text_bytes, uint32_t flags,
                                            int32_t* tokens, size_t capacity, size_t* num_tokens, inlay_error** error);
/* The text of `tokens`; ids outside the vocabulary give INLAY_INVALID_ARGUMENT. */
INLAY_API inlay_status inlay_model_detokenize(inlay_model* model, const int32_t* tokens, size_t num_tokens, uint32_t flags,
                                              inlay_buffer** text, inlay_error** error);

/* Renders a chat template (Jinja). `json` is an object: "messages" (a list of {"role", "content"}), "tools",
 * "add_generation_prompt", and any further variable the template reads. "template", "bos_token", "eos_token" and "now"
 * ("2026-03-14T09:26:53") in it override the model's; with "template" there, `model` may be null. "template" may also name
 * one of a model's several ("default", "tool_use", ...). Messages are changed as transformers does: members that are null
 * are left out, reasoning is there by all names that templates read. A model's template that knows contents as lists of
 * parts alone (some models with vision) gets a string as [{"type": "text", "text": ...}]. With "continue_final_message" true
 * (or the name of a member, such as "reasoning_content") the text ends where the last message's content does: what is
 * generated goes on from there; INLAY_INVALID_ARGUMENT where "add_generation_prompt" is true too, or the template does not
 * print that content as it is. Since 11. At most 256 MB, 64 levels, and 1,024 members an object: INLAY_RESOURCE_EXHAUSTED. */
INLAY_API inlay_status inlay_chat_render(inlay_model* model, const char* json, size_t json_bytes, inlay_buffer** text,
                                         inlay_error** error);

/* ---- Session ---------------------------------------------------------------------------------------------------------- */

/* An empty session. It costs nothing until its first request. */
INLAY_API inlay_status inlay_session_create(inlay_model* model, inlay_session** session, inlay_error** error);
/* Cancels its request, if one runs. */
INLAY_API void inlay_session_release(inlay_session* session);

/* A new session with the same token log; KV blocks are shared, and copied only where the two come to differ.
 * INLAY_INVALID_STATE while a request runs in it. */
INLAY_API inlay_status inlay_session_fork(inlay_session* session, inlay_session** fork, inlay_error** error);
/* Cuts the log back to its first `num_tokens` tokens; what KV stays valid is kept. INLAY_INVALID_STATE while a request runs,
 * INLAY_INVALID_ARGUMENT above the log's length. */
INLAY_API inlay_status inlay_session_rewind(inlay_session* session, size_t num_tokens, inlay_error** error);

typedef struct inlay_session_info {
  uint32_t struct_size;
  uint32_t busy;        /* 1 while a request runs */
  uint64_t num_tokens;  /* in the log */
  uint64_t num_cached;  /* of these, tokens whose KV is in memory; one alone in the last block is not kept */
} inlay_session_info;

INLAY_API void inlay_session_info_init(inlay_session_info* info);
INLAY_API inlay_status inlay_session_get_info(inlay_session* session, inlay_session_info* info, inlay_error** error);
/* The token log, in the way of inlay_model_tokenize(). */
INLAY_API inlay_status inlay_session_tokens(inlay_session* session, int32_t* tokens, size_t capacity, size_t* num_tokens,
                                            inlay_error** error);

/* Snapshots: the log, its KV as the cache has it, and where random draws stand, in a format of Inlay's own with checksums.
 * Saving replaces the file as a whole or not at all, whatever happens meanwhile. INLAY_INVALID_STATE while a request runs:
 * cancel it, save, and go on later with inlay_request_options.resume. Since 2. */
INLAY_API inlay_status inlay_session_save(inlay_session* session, const char* path, inlay_error** error);
INLAY_API inlay_status inlay_session_save_buffer(inlay_session* session, inlay_buffer** buffer, inlay_error** error);

typedef struct inlay_restore_info {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t num_tokens;   /* in the log */
  uint64_t num_restored; /* of these, tokens whose KV is there again; the others are computed again when the session goes on */
  char note[248];        /* why not all: damage, another model or KV format, no room; "" otherwise */
} inlay_restore_info;

INLAY_API void inlay_restore_info_init(inlay_restore_info* info);
/* A session that goes on with exactly the tokens that the saved one would have. Where KV is damaged or of another model, it is
 * computed again from the log. INLAY_IO_ERROR: the log itself is damaged beyond its second copy; INLAY_INVALID_ARGUMENT: no
 * snapshot, one of another vocabulary, or too long for the model; INLAY_UNSUPPORTED: of a later version. Checksums find
 * damage, not forgery: trust a snapshot as you trust a model. `info` may be null. Since 2. */
INLAY_API inlay_status inlay_session_restore(inlay_model* model, const char* path, inlay_session** session,
                                             inlay_restore_info* info, inlay_error** error);
INLAY_API inlay_status inlay_session_restore_buffer(inlay_model* model, const void* data, size_t bytes,
                                                    inlay_session** session, inlay_restore_info* info,
                                                    inlay_error** error);

/* ---- Named prefixes ---------------------------------------------------------------------------------------------------- */

/* Tokens that many sessions begin with (a system prompt, a document), under a name. A pinned one is computed once, in the
 * engine's own time, and its KV cannot be evicted; only a smaller memory budget may take it, and then it is computed again
 * when there is room. Since 2, all of this section. */
typedef struct inlay_prefix inlay_prefix;

typedef struct inlay_prefix_options {
  uint32_t struct_size;
  uint32_t pin; /* 1 (default): compute and keep it; 0: only the name and the tokens */
  /* Exactly one of text, tokens and chat, as in inlay_request_options; for chat, "add_generation_prompt" is false here. */
  const char* text;
  size_t text_bytes;
  const int32_t* tokens;
  size_t num_tokens;
  const char* chat;
  size_t chat_bytes;
  uint32_t text_flags; /* default ADD_SPECIAL | PARSE_SPECIAL */
  uint32_t reserved;
  uint64_t budget_bytes; /* of KV that it may pin; 0 (default): the whole cache */
} inlay_prefix_options;

INLAY_API void inlay_prefix_options_init(inlay_prefix_options* options);
/* INLAY_INVALID_STATE: the model has a prefix of that name; INLAY_RESOURCE_EXHAUSTED: pinned, it would not fit. */
INLAY_API inlay_status inlay_prefix_create(inlay_model* model, const char* name, const inlay_prefix_options* options,
                                           inlay_prefix** prefix, inlay_error** error);
/* A handle of its own on the model's prefix of that name. INLAY_NOT_FOUND. */
INLAY_API inlay_status inlay_prefix_find(inlay_model* model, const char* name, inlay_prefix** prefix, inlay_error** error);
INLAY_API inlay_status inlay_prefix_pin(inlay_prefix* prefix, int32_t pinned, inlay_error** error);
/* A session whose log is the prefix. */
INLAY_API inlay_status inlay_prefix_open(inlay_prefix* prefix, inlay_session** session, inlay_error** error);

typedef struct inlay_prefix_info {
  uint32_t struct_size;
  uint32_t pinned;
  uint64_t num_tokens;
  uint64_t num_cached; /* of these, tokens whose KV is in memory; one alone in the last block is not kept */
  uint64_t kv_bytes;   /* of its tokens: what pinning it holds */
} inlay_prefix_info;

INLAY_API void inlay_prefix_info_init(inlay_prefix_info* info);
INLAY_API inlay_status inlay_prefix_get_info(inlay_prefix* prefix, inlay_prefix_info* info, inlay_error** error);
/* The last handle's release forgets the prefix and unpins its KV; sessions opened from it go on. */
INLAY_API void inlay_prefix_release(inlay_prefix* prefix);

/* ---- Request ---------------------------------------------------------------------------------------------------------- */

enum {
  INLAY_INPUT_APPEND = 0, /* the input follows the session's log */
  INLAY_INPUT_REPLACE = 1 /* the input is the whole new log: what it shares with the old one from the start stays cached */
};
enum {
  INLAY_LOGITS_NONE = 0,
  INLAY_LOGITS_LAST = 1,      /* those the first token is chosen from */
  INLAY_LOGITS_ALL = 2,       /* of every prompt token computed by this request */
  INLAY_LOGITS_POSITIONS = 3, /* of the session positions listed */
  INLAY_LOGITS_GENERATED = 4  /* of every choice: LAST, and one for each further token. A request's logits take 1 GiB at most
                                 (INLAY_RESOURCE_EXHAUSTED); where max_tokens is -1 it ends when that is reached */
};

/* One vector of the whole log instead of a generation: the last hidden states of its tokens, pooled. Since 7. */
enum {
  INLAY_EMBEDDING_NONE = 0,
  INLAY_EMBEDDING_DEFAULT = 1, /* as the model's files say (modules.json), through their Dense modules; where they do not, MEAN of an
                                  encoder and LAST of others. Prompts that they list are the host's to put before texts */
  INLAY_EMBEDDING_MEAN = 2,
  INLAY_EMBEDDING_CLS = 3, /* the first token's */
  INLAY_EMBEDDING_LAST = 4 /* the last token's */
};

/* The scores of the labels of a model with a classification head (..ForSequenceClassification) instead of a generation, of the
 * whole log: a sentiment, or with pairs of texts what a cross-encoder reranks by. Since 9. */
enum {
  INLAY_CLASSIFICATION_NONE = 0,
  INLAY_CLASSIFICATION_DEFAULT = 1, /* as the model's files say (config.json: sentence_transformers.activation_fn); where they do
                                       not, SIGMOID of a single label and LOGITS of several */
  INLAY_CLASSIFICATION_LOGITS = 2,  /* scores are the logits */
  INLAY_CLASSIFICATION_SIGMOID = 3, /* of each logit */
  INLAY_CLASSIFICATION_SOFTMAX = 4  /* over the labels */
};

typedef struct inlay_logit_bias {
  int32_t token;
  float bias; /* added to the logit; -INFINITY forbids the token */
} inlay_logit_bias;

typedef struct inlay_request_options {
  uint32_t struct_size;
  int32_t input_mode; /* INLAY_INPUT_*; default APPEND; chat input is always REPLACE */

  /* The input: exactly one of text, tokens and chat. Copied during the call. */
  const char* text;
  size_t text_bytes;
  const int32_t* tokens;
  size_t num_tokens;
  const char* chat; /* JSON as inlay_chat_render() takes; "add_generation_prompt" defaults to true here,
                       unless "continue_final_message" is set */
  size_t chat_bytes;
  uint32_t text_flags; /* for text; default ADD_SPECIAL | PARSE_SPECIAL. ADD_SPECIAL counts only where the log was empty */

  int32_t max_tokens; /* to generate; -1 (default): until a stop or the end of the context; 0: only compute the prompt */
  int32_t ignore_eos; /* 1: end-of-sequence tokens do not stop. Default 0 */
  const int32_t* stop_tokens; /* stop like end-of-sequence */
  size_t num_stop_tokens;
  const char* const* stop_strings; /* NUL-terminated; generation stops before them and no part of one is emitted */
  size_t num_stop_strings;         /* at most 64 of at most 1024 bytes */

  /* Sampling, in this order: bias, penalties, temperature, top-k, top-p, min-p. */
  float temperature; /* 0 (default): greedy */
  int32_t top_k;     /* 0 (default): off */
  float top_p;       /* 1 (default): off */
  float min_p;       /* 0 (default): off */
  float repetition_penalty; /* 1 (default): off; prompt and generated tokens */
  float frequency_penalty;  /* 0 (default): off; generated tokens */
  float presence_penalty;   /* 0 (default): off; generated tokens */
  uint32_t reserved;
  uint64_t seed; /* the same seed, prompt and options give the same tokens */
  const inlay_logit_bias* logit_bias;
  size_t num_logit_bias;

  int32_t num_logprobs; /* -1 (default): none; 0: of the chosen token; n: of the n likeliest too, at most 128 */
  int32_t logits;       /* INLAY_LOGITS_*; default NONE */
  const int64_t* logits_positions;
  size_t num_logits_positions;
  int32_t score_prompt; /* 1: SCORES events with the log-probability of each prompt token given those before it */

  int32_t priority; /* higher runs first; default 0 */
  void* user_data;  /* comes back in every event */
  /* Since 2. */
  uint32_t resume;      /* 1: the session's last generation goes on: random draws and the tokens that penalties count continue,
                           so that the tokens are those it would have gone on with. The seed must be the same. Default 0 */
  uint32_t reserved2;
  uint64_t deadline_us; /* from submit: earlier ones run first among equal priorities, and a request still there when it
                           passes ends with INLAY_FINISH_ERROR and INLAY_TIMEOUT; 0 (default): none */
  uint64_t share_key;   /* requests of one key count against one share of the engine, such as a user's; 0 (default): the
                           session's own. Whose key has been served least runs first among equals */
  /* Since 7. */
  int32_t embedding;    /* INLAY_EMBEDDING_*; default NONE. Otherwise an EMBEDDING event comes and nothing is generated; max_tokens must
                           be 0 or -1, and logits, score_prompt and resume are not for it. Encoders need it or `classification`,
                           and at least as many max_batch_tokens as the input has: they compute it in one step. Many texts are a
                           request each, in sessions of their own: what is submitted before a step is computed together */
  uint32_t normalise;   /* 1: scaled to length 1; default 0. DEFAULT does what the model's files say */
  /* Since 9. */
  const char* text_pair; /* a second text beside `text`, for encoders: both are joined as the tokenizer joins pairs (BERT: [CLS] text
                            [SEP] text_pair [SEP], of types 0 and 1) and are the whole new log, as with REPLACE. Null (default): none */
  size_t text_pair_bytes;
  const int32_t* token_types; /* of each of `tokens`, for encoders that have several (BERT's segments); null (default): 0. Types are
                                 the request's: tokens that were in the log before have 0 */
  int32_t classification;     /* INLAY_CLASSIFICATION_*; default NONE. Otherwise a CLASSIFICATION event comes; embedding must be NONE,
                                 and what is said there of other options holds here. INLAY_INVALID_ARGUMENT: the model has no labels */
  uint32_t reserved3;
} inlay_request_options;

INLAY_API void inlay_request_options_init(inlay_request_options* options);
INLAY_API void inlay_request_options_init_sized(inlay_request_options* options, size_t size); /* since 2 */
#define inlay_request_options_init(options) inlay_request_options_init_sized((options), sizeof(inlay_request_options))
/* Overwrites `options` (which _init has prepared) with the defaults and the sampling settings of the model's
 * generation_config.json, where it has them. */
INLAY_API inlay_status inlay_model_request_options(inlay_model* model, inlay_request_options* options,
                                                   inlay_error** error);

/* Starts a generation in `session`, which is busy until the FINISHED event is made. The prompt and every generated token are
 * added to the log (an end-of-sequence token and the tokens of a matched stop string included).
 * INLAY_INVALID_STATE when the session is busy; INLAY_RESOURCE_EXHAUSTED when the request could never fit the KV cache or the
 * queue is full; INLAY_INVALID_ARGUMENT names the option. On failure the session's log is unchanged. Text is tokenised on the calling thread,
 * while nothing waits for it, and where its tokenizer can do so part by part, no further than the context goes. */
INLAY_API inlay_status inlay_session_submit(inlay_session* session, const inlay_request_options* options,
                                            inlay_request** request, inlay_error** error);

/* What a request would need if it were submitted now. */
typedef struct inlay_quote {
  uint32_t struct_size;
  uint32_t fits;          /* 1: its KV fits the cache if nothing else were there */
  uint32_t fits_now;      /* 1: also beside what runs now */
  uint32_t reserved;      /* 1: blocks for all of it were set aside */
  uint64_t prompt_tokens; /* of the input and the log before it */
  uint64_t cached_tokens; /* of these, not to be computed again */
  uint64_t kv_bytes;      /* that it comes to hold at its longest */
  uint64_t new_kv_bytes;  /* of these, not shared with what is cached */
  uint64_t first_token_us; /* estimate, behind what is queued now, from the times of past steps */
} inlay_quote;

INLAY_API void inlay_quote_init(inlay_quote* quote);
/* Takes the options that inlay_session_submit() would. With `reserve` 1, blocks for all of the request are set aside for the
 * session: until its next request begins (or is submitted, where it needs more: it waits as others do), its next quote, its
 * release, or a smaller memory budget takes them back. Then INLAY_RESOURCE_EXHAUSTED when they are not to be had. While they
 * are set aside, requests of other sessions that need them wait, and steps that find nothing else to do say more_work 0.
 * Errors otherwise as inlay_session_submit(). Since 2. */
INLAY_API inlay_status inlay_request_quote(inlay_session* session, const inlay_request_options* options, int32_t reserve,
                                           inlay_quote* quote, inlay_error** error);

/* Ends it in whatever state it is, within a step; a FINISHED event with INLAY_CANCELLED follows. No effect once finished. */
INLAY_API inlay_status inlay_request_cancel(inlay_request* request, inlay_error** error);
/* Cancels it if it is unfinished, and drops its events that were not taken. */
INLAY_API void inlay_request_release(inlay_request* request);

/* ---- Events ----------------------------------------------------------------------------------------------------------- */

enum {
  INLAY_EVENT_TOKENS = 0,  /* tokens and their text */
  INLAY_EVENT_LOGITS = 1,  /* logits of one position */
  INLAY_EVENT_SCORES = 2,  /* log-probabilities of prompt tokens */
  INLAY_EVENT_FINISHED = 3, /* the last event of every request */
  INLAY_EVENT_EMBEDDING = 4, /* the vector that `embedding` asked for. Since 7 */
  INLAY_EVENT_CLASSIFICATION = 5 /* logits and scores of the labels that `classification` asked for. Since 9 */
};
enum {
  INLAY_FINISH_STOP = 0,   /* an end-of-sequence token, stop token or stop string */
  INLAY_FINISH_LENGTH = 1, /* max_tokens, or the context is full */
  INLAY_FINISH_CANCELLED = 2,
  INLAY_FINISH_ERROR = 3 /* status and message say which */
};

typedef struct inlay_token_logprob {
  int32_t token;
  float logprob; /* natural logarithm, of the model's own distribution (before bias, penalties and temperature) */
} inlay_token_logprob;

/* A view into an event: every pointer is valid until the event is released. */
typedef struct inlay_event_info {
  uint32_t struct_size;
  int32_t kind;           /* INLAY_EVENT_* */
  inlay_request* request; /* to compare with; not a reference of its own */
  void* user_data;

  /* TOKENS: one or several steps' tokens, and the text that became certain (whole code points; it can lag behind the tokens,
   * and either may be empty). `bytes` are the raw bytes of the tokens, for those who join text themselves. */
  const int32_t* tokens;
  size_t num_tokens;
  const char* text; /* NUL-terminated too */
  size_t text_bytes;
  const char* bytes;
  size_t num_bytes;
  const inlay_token_logprob* logprobs; /* per token, when asked for: the token itself, then `top_logprobs` alternatives */
  size_t num_logprobs;                 /* num_tokens * (1 + top_logprobs), or 0 */
  size_t top_logprobs;

  /* LOGITS: of `position`. SCORES: scores[i] of position + i. CLASSIFICATION: logits and scores of each label, in the order of
   * config.json's id2label (inlay_model_inspect() has their names). */
  int64_t position;
  const float* logits;
  size_t num_logits;
  const float* scores;
  size_t num_scores;

  /* FINISHED */
  int32_t finish_reason; /* INLAY_FINISH_* */
  inlay_status status;   /* INLAY_OK, INLAY_CANCELLED, or why it failed */
  const char* message;   /* "" when there is nothing to say */
  int32_t stop_token;    /* the token it stopped at; -1: none */
  int32_t stop_string;   /* index of the stop string it stopped at; -1: none */
  uint64_t prompt_tokens;    /* of the request's input and the log before it */
  uint64_t cached_tokens;    /* of these, not computed again */
  uint64_t generated_tokens; /* chosen, a stop token included */
  uint64_t queue_us;         /* from submit to the first step */
  uint64_t first_token_us;   /* from submit to the first token; 0: there was none */
  uint64_t total_us;         /* from submit to the end */

  /* EMBEDDING; since 7. */
  const float* embedding;
  size_t num_embedding; /* inlay_model_info.hidden_size; with DEFAULT what the last Dense module of the model's files gives, if they have any */
} inlay_event_info;

INLAY_API void inlay_event_info_init(inlay_event_info* info);
INLAY_API void inlay_event_info_init_sized(inlay_event_info* info, size_t size); /* since 7 */
#define inlay_event_info_init(info) inlay_event_info_init_sized((info), sizeof(inlay_event_info))

/* The oldest event of any request, or INLAY_TIMEOUT when none came within `timeout_us` (0: look, do not wait; UINT64_MAX: no
 * limit). Each event is handed out once. It does not step: host-driven engines call inlay_engine_step() in between. */
INLAY_API inlay_status inlay_event_next(inlay_engine* engine, uint64_t timeout_us, inlay_event** event,
                                        inlay_error** error);
/* The same for one request's events only; INLAY_END after its FINISHED event was taken. */
INLAY_API inlay_status inlay_request_next_event(inlay_request* request, uint64_t timeout_us, inlay_event** event,
                                                inlay_error** error);
INLAY_API inlay_status inlay_event_get_info(const inlay_event* event, inlay_event_info* info, inlay_error** error);
INLAY_API void inlay_event_release(inlay_event* event);

/* A descriptor that is readable while an event waits and once the engine was released (Linux eventfd), for poll() and event loops.
 * The engine owns it: do not read, write or close it. It is closed when the last handle of the engine and what it made is
 * released: take it out of event loops before. */
INLAY_API inlay_status inlay_engine_event_fd(inlay_engine* engine, int32_t* fd, inlay_error** error);

/* ---- Record and replay -------------------------------------------------------------------------------------------------- */

/* Writes all that comes in for `model` (tokens, options, cancels, budgets, times) and every step's plan and tokens to a file at
 * `path`, which is replaced and readable by its owner only: it holds the prompts. Written step by step, so that it also tells
 * of a process that died, about 10 us a step of 256 requests; what goes wrong with the file ends the recording, with a
 * warning to the log, and disturbs nothing else. The KV cache is emptied at the start, and what steps take is learned anew.
 * INLAY_INVALID_STATE while the model records or requests run in it, with a pinned prefix or a reserving quote, and for a
 * model with a host_cache. Since 2, all of this section. */
INLAY_API inlay_status inlay_model_record_start(inlay_model* model, const char* path, inlay_error** error);
/* The end of the recording, as the engine's release is one too: why it ended before, or INLAY_OK for a whole one.
 * INLAY_INVALID_STATE when the model does not record. */
INLAY_API inlay_status inlay_model_record_stop(inlay_model* model, inlay_error** error);
/* Serves a recording again with the weights of `model`, in a KV cache of its own as large as the recorded one, with the
 * recorded times in place of the clock, and compares every plan and token. Leaves nothing behind; no other step of the engine
 * runs meanwhile. `report` is JSON:
 *   same              no plan and no token differs
 *   entries, steps, requests, tokens   replayed and compared
 *   tokens_differing  of these; the recorded ones were taken in their place
 *   first_difference  null, or {"step": from 1 on, "request": 0 for none in particular, "what"}
 *   stopped           after that difference nothing could be compared
 *   damage            "", or why there was not more to replay: the recording is cut or damaged
 *   tokens_of         {"<request>": [token, ..]}, as sampled now
 * INLAY_INVALID_ARGUMENT: no recording, of another model or KV type, or one that contradicts itself; INLAY_IO_ERROR: damaged
 * at its beginning; INLAY_UNSUPPORTED: of a later version; INLAY_RESOURCE_EXHAUSTED: no memory for its KV cache. */
INLAY_API inlay_status inlay_model_replay(inlay_model* model, const char* path, inlay_buffer** report, inlay_error** error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* INLAY_INLAY_H_ */
