using System;
using System.Runtime.InteropServices;
using Inlay.Native;
using static Inlay.Native.InlayNative;

namespace Inlay
{
    /// <summary>What an engine computes on.</summary>
    public enum Backend
    {
        /// <summary>A GPU where CUDA can be had, otherwise the CPU.</summary>
        Auto = INLAY_BACKEND_AUTO,
        /// <summary>The CPU.</summary>
        Cpu = INLAY_BACKEND_CPU,
        /// <summary>A GPU by CUDA.</summary>
        Cuda = INLAY_BACKEND_CUDA
    }

    /// <summary>Who runs an engine's steps.</summary>
    public enum Drive
    {
        /// <summary>The program calls <see cref="Engine.Step(TimeSpan)"/>, such as once a frame; waiting calls step by themselves.</summary>
        Host = INLAY_DRIVE_HOST,
        /// <summary>A thread of the engine's own.</summary>
        Thread = INLAY_DRIVE_THREAD
    }

    /// <summary>How much a log message matters.</summary>
    public enum EngineLogLevel
    {
        /// <summary>Something failed.</summary>
        Error = INLAY_LOG_ERROR,
        /// <summary>Something is not as it should be.</summary>
        Warning = INLAY_LOG_WARNING,
        /// <summary>What goes on.</summary>
        Info = INLAY_LOG_INFO,
        /// <summary>All details.</summary>
        Debug = INLAY_LOG_DEBUG
    }

    /// <summary>How an engine is made. What is null is left to the library's default. Not thread-safe; read once, by the engine's
    /// constructor.</summary>
    public sealed class EngineOptions
    {
        /// <summary>What to compute on; default <see cref="Inlay.Backend.Auto"/>.</summary>
        public Backend Backend { get; set; } = Backend.Auto;
        /// <summary>Who steps; default <see cref="Inlay.Drive.Thread"/> (the C header's is the host).</summary>
        public Drive Drive { get; set; } = Drive.Thread;
        /// <summary>Threads of CPU kernels, the stepping one included, at most 1024; default: one per core.</summary>
        public int? Threads { get; set; }
        /// <summary>Bytes of all allocations of the device together; default: no limit. Mapped weight files do not count.</summary>
        public long? MemoryBudgetBytes { get; set; }
        /// <summary>Tokens computed in one step; default 512, at most 65536.</summary>
        public int? MaxBatchTokens { get; set; }
        /// <summary>Requests that take part in steps; default 256, at most 4096.</summary>
        public int? MaxRunning { get; set; }
        /// <summary>Requests that wait for that; default 65536.</summary>
        public int? MaxQueue { get; set; }
        /// <summary>Whether sessions share the KV of common prefixes. Without, no session can tell by timing what another has asked.
        /// Default true.</summary>
        public bool? PrefixSharing { get; set; }
        /// <summary>Prompt tokens of one request in a step; default: <see cref="MaxBatchTokens"/>.</summary>
        public int? MaxPrefillChunk { get; set; }
        /// <summary>Prompts take part in a step only as far as it is expected to stay within this; default: no target.</summary>
        public TimeSpan? TokenTimeTarget { get; set; }
        /// <summary>Who waited this long goes before all others; default 10 s; zero: never.</summary>
        public TimeSpan? StarvationLimit { get; set; }
        /// <summary>CUDA's number of the GPU; default 0.</summary>
        public int? Gpu { get; set; }
        /// <summary>On CUDA too, as on CPU always, a request gets the same tokens whatever else runs. Slower; default false.</summary>
        public bool? BatchInvariant { get; set; }
        /// <summary>Messages above it are dropped; default <see cref="EngineLogLevel.Warning"/>.</summary>
        public EngineLogLevel LogLevel { get; set; } = EngineLogLevel.Warning;
        /// <summary>Gets the log, on whichever thread causes it, until the engine is disposed. It must be quick and must not call
        /// into the engine; what it throws is dropped. It is kept alive by the engine: if it holds the engine, only
        /// <see cref="Engine.Dispose"/> ends that.</summary>
        public Action<EngineLogLevel, string> Log { get; set; }

        internal void Write(inlay_engine_options native)
        {
            native.backend = (int)Backend;
            native.drive = (int)Drive;
            native.log_level = (int)LogLevel;
            if (Threads is int threads) native.num_threads = threads;
            if (MemoryBudgetBytes is long budget) native.memory_budget_bytes = Numbers.ULong(budget, nameof(MemoryBudgetBytes));
            if (MaxBatchTokens is int batch) native.max_batch_tokens = Numbers.UInt(batch, nameof(MaxBatchTokens));
            if (MaxRunning is int running) native.max_running = Numbers.UInt(running, nameof(MaxRunning));
            if (MaxQueue is int queue) native.max_queue = Numbers.UInt(queue, nameof(MaxQueue));
            if (PrefixSharing is bool sharing) native.prefix_sharing = sharing ? 1u : 0;
            if (MaxPrefillChunk is int chunk) native.max_prefill_chunk = Numbers.UInt(chunk, nameof(MaxPrefillChunk));
            if (TokenTimeTarget is TimeSpan target) native.tpot_target_us = Numbers.Microseconds(target, nameof(TokenTimeTarget));
            if (StarvationLimit is TimeSpan limit) native.starvation_us = Numbers.Microseconds(limit, nameof(StarvationLimit));
            if (Gpu is int gpu) native.gpu = Numbers.UInt(gpu, nameof(Gpu));
            if (BatchInvariant is bool invariant) native.batch_invariant = invariant ? 1u : 0;
        }
    }

    // One delegate for all engines, so that no engine's can be collected while a thread of the library is in it.
    internal static class LogSink
    {
        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        private delegate void Callback(IntPtr user, int level, IntPtr message);

        private static readonly Callback callback = Write;

        internal static readonly IntPtr Pointer = Marshal.GetFunctionPointerForDelegate(callback);

        private static void Write(IntPtr user, int level, IntPtr message)
        {
            // An exception must not unwind through the library.
            try
            {
                var log = (Action<EngineLogLevel, string>)GCHandle.FromIntPtr(user).Target;
                log((EngineLogLevel)level, Utf8.Copy(message));
            }
            catch (Exception)
            {
            }
        }
    }
}
