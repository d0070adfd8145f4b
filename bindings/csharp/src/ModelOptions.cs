using System;
using System.Runtime.ExceptionServices;
using System.Runtime.InteropServices;
using System.Threading;
using Inlay.Native;
using static Inlay.Native.InlayNative;

namespace Inlay
{
    /// <summary>How keys and values are stored.</summary>
    public enum KvType
    {
        /// <summary>float32 on CPU; on CUDA the type of most weights.</summary>
        Auto = INLAY_KV_AUTO,
        /// <summary>float32.</summary>
        F32 = INLAY_KV_F32,
        /// <summary>float16.</summary>
        F16 = INLAY_KV_F16,
        /// <summary>bfloat16.</summary>
        BF16 = INLAY_KV_BF16,
        /// <summary>8-bit integers with a scale for each token and head.</summary>
        I8 = INLAY_KV_I8,
        /// <summary>8-bit floats, the same scales; for models with outliers in their keys.</summary>
        F8 = INLAY_KV_F8,
        /// <summary>4-bit integers with scale and offset for each 32 elements.</summary>
        Q4 = INLAY_KV_Q4
    }

    /// <summary>How blocks of keys are chosen where a query does not see all of them.</summary>
    public enum BlockSelection
    {
        /// <summary>All are seen.</summary>
        None = INLAY_BLOCK_SELECTION_NONE,
        /// <summary>By the least and the most of each dimension of their keys.</summary>
        Bounds = INLAY_BLOCK_SELECTION_BOUNDS,
        /// <summary>By two centroids of their keys.</summary>
        KMeans = INLAY_BLOCK_SELECTION_KMEANS,
        /// <summary>By 128-bit hashes of their keys.</summary>
        Lsh = INLAY_BLOCK_SELECTION_LSH
    }

    /// <summary>Where weights are kept.</summary>
    public enum WeightStorage
    {
        /// <summary>Files are mapped: fast to load, shared between processes. They must not be truncated while in use.</summary>
        Map = INLAY_WEIGHTS_MAP,
        /// <summary>Files are read into memory.</summary>
        Read = INLAY_WEIGHTS_READ
    }

    /// <summary>What a load is doing.</summary>
    public enum LoadStage
    {
        /// <summary>Reading the configuration.</summary>
        Config = INLAY_LOAD_CONFIG,
        /// <summary>Reading the tokenizer.</summary>
        Tokenizer = INLAY_LOAD_TOKENIZER,
        /// <summary>Reading, or writing, weights.</summary>
        Weights = INLAY_LOAD_WEIGHTS,
        /// <summary>Done.</summary>
        Ready = INLAY_LOAD_READY
    }

    /// <summary>How far a load is.</summary>
    public struct LoadProgress
    {
        internal LoadProgress(LoadStage stage, float fraction)
        {
            Stage = stage;
            Fraction = fraction;
        }

        /// <summary>What it is doing.</summary>
        public LoadStage Stage { get; }
        /// <summary>How much of that is done, 0 to 1.</summary>
        public float Fraction { get; }
    }

    /// <summary>How a model is loaded. What is null is left to the library's default. Not thread-safe while it is changed.</summary>
    public sealed class ModelOptions
    {
        /// <summary>Only tokenizer and chat template; sessions are refused. Default false.</summary>
        public bool VocabularyOnly { get; set; }
        /// <summary>Where weights are kept; default mapped.</summary>
        public WeightStorage Weights { get; set; }
        /// <summary>How keys and values are stored.</summary>
        public KvType KvType { get; set; }
        /// <summary>Tokens a KV block: a power of two from 8 to 256; default 16.</summary>
        public int? KvBlockSize { get; set; }
        /// <summary>A cap on a session's tokens; default: the model's own.</summary>
        public int? MaxContext { get; set; }
        /// <summary>Bytes of this model's KV cache; default: room for 4 full contexts within a quarter of the machine's memory.</summary>
        public long? KvBudgetBytes { get; set; }
        /// <summary>Forces kernels, for tests and measurements.</summary>
        public string Kernels { get; set; }
        /// <summary>Host memory for what the KV cache gives up; default none.</summary>
        public long? HostCacheBytes { get; set; }
        /// <summary>A folder for that, for this model alone; made if missing. Default none.</summary>
        public string DiskCacheFolder { get; set; }
        /// <summary>Bytes that its files may take.</summary>
        public long? DiskCacheBytes { get; set; }
        /// <summary>Sparse attention by position, on CPU: "window=1024,global=64"; inlay.h lists what there is. Default: dense.</summary>
        public string AttentionPattern { get; set; }
        /// <summary>Sparse attention by content, on CPU: how blocks of keys are chosen for each query. Default: dense.</summary>
        public BlockSelection BlockSelection { get; set; }
        /// <summary>Tokens that a query sees with <see cref="BlockSelection"/>: a multiple of 16 from 64.</summary>
        public int? SelectedTokens { get; set; }
        /// <summary>Bytes of a GPU's memory for the experts of all layers; those it does not hold lie in host memory. Default: all are on the GPU.</summary>
        public long? ExpertDeviceBytes { get; set; }

        internal void Write(inlay_model_options native, Pins pins)
        {
            native.vocab_only = VocabularyOnly ? 1 : 0;
            native.weights = (int)Weights;
            native.kv_type = (int)KvType;
            if (KvBlockSize is int block) native.kv_block_size = Numbers.UInt(block, nameof(KvBlockSize));
            if (MaxContext is int context) native.max_context = Numbers.UInt(context, nameof(MaxContext));
            if (KvBudgetBytes is long budget) native.kv_budget_bytes = Numbers.ULong(budget, nameof(KvBudgetBytes));
            native.kernels = pins.CString(Kernels, nameof(Kernels));
            if (HostCacheBytes is long host) native.host_cache_bytes = Numbers.ULong(host, nameof(HostCacheBytes));
            native.disk_cache_folder = pins.CString(DiskCacheFolder, nameof(DiskCacheFolder));
            if (DiskCacheBytes is long disk) native.disk_cache_bytes = Numbers.ULong(disk, nameof(DiskCacheBytes));
            native.attention_pattern = pins.CString(AttentionPattern, nameof(AttentionPattern));
            native.block_selection = (int)BlockSelection;
            if (SelectedTokens is int selected) native.selected_tokens = Numbers.UInt(selected, nameof(SelectedTokens));
            if (ExpertDeviceBytes is long experts) native.expert_device_bytes = Numbers.ULong(experts, nameof(ExpertDeviceBytes));
        }
    }
}

namespace Inlay.Native
{
    // Gets the progress of one call of the library, for as long as that call lasts.
    internal sealed class ProgressSink : IDisposable
    {
        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        private delegate int Callback(IntPtr user, int stage, float fraction);

        private static readonly Callback callback = Report;

        internal static readonly IntPtr Pointer = Marshal.GetFunctionPointerForDelegate(callback);

        private readonly IProgress<LoadProgress> progress;
        private readonly CancellationToken cancellation;
        private ExceptionDispatchInfo thrown;
        private GCHandle self;

        internal ProgressSink(IProgress<LoadProgress> progress, CancellationToken cancellation)
        {
            this.progress = progress;
            this.cancellation = cancellation;
            self = GCHandle.Alloc(this);
        }

        internal IntPtr User { get { return GCHandle.ToIntPtr(self); } }

        public void Dispose() { self.Free(); }

        // What the callback threw, or what the call came to.
        internal void Check(int status, IntPtr error)
        {
            if (status == INLAY_OK) return;
            Exception failure = Errors.Take(status, error);
            if (status != INLAY_CANCELLED) throw failure;
            if (thrown != null) thrown.Throw();
            throw new OperationCanceledException(failure.Message, cancellation);
        }

        private static int Report(IntPtr user, int stage, float fraction)
        {
            // An exception must not unwind through the library: it cancels the call, which throws it again.
            try
            {
                var sink = (ProgressSink)GCHandle.FromIntPtr(user).Target;
                try
                {
                    if (sink.cancellation.IsCancellationRequested) return 1;
                    if (sink.progress != null) sink.progress.Report(new LoadProgress((LoadStage)stage, fraction));
                    return 0;
                }
                catch (Exception e)
                {
                    sink.thrown = ExceptionDispatchInfo.Capture(e);
                    return 1;
                }
            }
            catch (Exception)
            {
                return 1;
            }
        }
    }
}
