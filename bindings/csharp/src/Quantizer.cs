using System;
using System.Collections.Generic;
using System.Threading;
using Inlay.Native;
using static Inlay.Native.InlayNative;

namespace Inlay
{
    /// <summary>How weights are rounded.</summary>
    public enum QuantizeMethod
    {
        /// <summary>To nearest.</summary>
        Nearest = INLAY_QUANTIZE_NEAREST,
        /// <summary>Errors weighted by the mean squares of the layer's inputs.</summary>
        Imatrix = INLAY_QUANTIZE_IMATRIX,
        /// <summary>Each column's error is made up for in those after it.</summary>
        Gptq = INLAY_QUANTIZE_GPTQ,
        /// <summary>Columns are scaled first.</summary>
        Awq = INLAY_QUANTIZE_AWQ,
        /// <summary>The same for inputs in 8 bits.</summary>
        SmoothQuant = INLAY_QUANTIZE_SMOOTHQUANT
    }

    /// <summary>How to quantise. What is null is left to the library's default.</summary>
    public sealed class QuantizeOptions
    {
        /// <summary>Such as <c>q8_0</c> (default), <c>q4_0</c>, <c>q4_k_m</c>, <c>w8a8_int8</c>; another one is answered by the list.</summary>
        public string Type { get; set; }
        /// <summary><c>PATTERN=TYPE</c> for tensors by their published names; the last match counts.</summary>
        public List<string> TensorTypes { get; } = new List<string>();
        /// <summary>Threads, the calling one included; default: one per core.</summary>
        public int? Threads { get; set; }
        /// <summary>Leave tokenizer and chat template out.</summary>
        public bool WithoutTokenizer { get; set; }
        /// <summary>How; all but to nearest need <see cref="Calibration"/>, or imatrix an <see cref="ImatrixPath"/>.</summary>
        public QuantizeMethod Method { get; set; }
        /// <summary>GPTQ: inputs of largest squares first.</summary>
        public bool ActOrder { get; set; }
        /// <summary>Texts such as the model is for.</summary>
        public List<string> Calibration { get; } = new List<string>();
        /// <summary>Tokens of a sequence; default 512.</summary>
        public int? SequenceTokens { get; set; }
        /// <summary>Tokens at most; default 65536.</summary>
        public int? CalibrationTokens { get; set; }
        /// <summary>SmoothQuant's alpha, 0 to 1; default 0.5.</summary>
        public float? Smoothing { get; set; }
        /// <summary>Bytes that calibration keeps of a layer's experts at a time: sums, then GPTQ's weights in float32; default 4 GiB.</summary>
        public long? ExpertBytes { get; set; }
        /// <summary>Bytes that all of it may take beside mapped files; default: what it needs.</summary>
        public long? MemoryLimit { get; set; }

        /// <summary>What llama.cpp's imatrix measured of the model, in calibration's place.</summary>
        public string ImatrixPath { get; set; }

        internal void Write(inlay_quantize_options native, Pins pins)
        {
            if (Type != null) native.type = pins.CString(Type, nameof(Type));
            native.tensor_types = pins.CStrings(TensorTypes, nameof(TensorTypes));
            native.num_tensor_types = (ulong)TensorTypes.Count;
            if (Threads is int threads) native.num_threads = threads;
            native.no_tokenizer = WithoutTokenizer ? 1u : 0;
            native.method = (uint)Method;
            native.act_order = ActOrder ? 1u : 0;
            native.calibration = pins.CStrings(Calibration, nameof(Calibration));
            native.num_calibration = (ulong)Calibration.Count;
            if (SequenceTokens is int sequence) native.sequence_tokens = Numbers.UInt(sequence, nameof(SequenceTokens));
            if (CalibrationTokens is int tokens) native.calibration_tokens = Numbers.UInt(tokens, nameof(CalibrationTokens));
            if (Smoothing is float smoothing) native.smoothing = smoothing;
            if (ExpertBytes is long bytes) native.expert_bytes = Numbers.ULong(bytes, nameof(ExpertBytes));
            if (MemoryLimit is long limit) native.memory_limit = Numbers.ULong(limit, nameof(MemoryLimit));
            if (ImatrixPath != null) native.imatrix_path = pins.CString(ImatrixPath, nameof(ImatrixPath));
        }
    }

    /// <summary>Writes quantised models. Thread-safe.</summary>
    public static class Quantizer
    {
        /// <summary>Writes a model with its weights rounded, as a GGUF file or, for some types, a Hugging Face folder. Blocks; the file is
        /// replaced when it is complete.</summary>
        /// <returns>A report as JSON: what each tensor became, and its error.</returns>
        /// <exception cref="InlayException">The type, the model or the file is not what it must be.</exception>
        /// <exception cref="OperationCanceledException">It was cancelled.</exception>
        public static string Quantize(string modelPath, string outPath, QuantizeOptions options = null,
                                      IProgress<LoadProgress> progress = null, CancellationToken cancellation = default(CancellationToken))
        {
            if (modelPath == null) throw new ArgumentNullException(nameof(modelPath));
            if (outPath == null) throw new ArgumentNullException(nameof(outPath));
            cancellation.ThrowIfCancellationRequested();
            Library.Load();
            using (var native = new inlay_quantize_options())
            using (var pins = new Pins())
            using (var sink = new ProgressSink(progress, cancellation))
            {
                (options ?? new QuantizeOptions()).Write(native, pins);
                native.progress = ProgressSink.Pointer;
                native.progress_user = sink.User;
                int status = inlay_quantize(pins.CString(modelPath, nameof(modelPath)), pins.CString(outPath, nameof(outPath)), native,
                                            out IntPtr report, out IntPtr error);
                sink.Check(status, error);
                return Buffers.TakeText(report);
            }
        }
    }
}
