using System;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;
using Inlay.Native;
using static Inlay.Native.InlayNative;

namespace Inlay
{
    /// <summary>Devices, threads, the memory budget, and the scheduler that batches every request. Thread-safe. Disposing it ends all work:
    /// later calls on its models, sessions and requests throw <see cref="ObjectDisposedException"/>. One that was dropped with all of
    /// its models, sessions and requests is released by the garbage collector.</summary>
    public sealed class Engine : IDisposable
    {
        private readonly EngineHandle handle;

        /// <summary>Makes an engine.</summary>
        /// <param name="options">Null: the defaults.</param>
        /// <exception cref="DllNotFoundException">The native libraries cannot be loaded.</exception>
        /// <exception cref="InlayException">An option is not what it must be, or the device is not there.</exception>
        public Engine(EngineOptions options = null)
        {
            Library.Load();
            if (options == null) options = new EngineOptions();
            Drive = options.Drive;
            var sink = default(GCHandle);
            try
            {
                using (var native = new inlay_engine_options())
                {
                    options.Write(native);
                    if (options.Log != null)
                    {
                        sink = GCHandle.Alloc(options.Log);
                        native.log = LogSink.Pointer;
                        native.log_user = GCHandle.ToIntPtr(sink);
                    }
                    Errors.Check(inlay_engine_create(native, out handle, out IntPtr error), error);
                }
                handle.LogSink = sink;
            }
            catch
            {
                if (sink.IsAllocated) sink.Free();
                throw;
            }
            Router = new EventRouter(handle);
        }

        /// <summary>The pump, if there is one, keeps the handle: it must end first.</summary>
        ~Engine()
        {
            // Null where the constructor threw.
            if (Router != null) Router.Stop(false);
        }

        internal EngineHandle Handle { get { return handle; } }
        internal EventRouter Router { get; private set; }

        /// <summary>Who steps.</summary>
        public Drive Drive { get; private set; }

        /// <summary>Ends all work and frees the memory of all models. Waits for the step in flight.</summary>
        public void Dispose()
        {
            GC.SuppressFinalize(this);
            Router.Stop(true);
            handle.Dispose();
        }

        /// <summary>Loads a model; other threads go on meanwhile.</summary>
        /// <param name="path">A Hugging Face directory, a GGUF file, or <c>random:CONFIG_DIR</c> for random weights.</param>
        /// <param name="options">Null: the defaults.</param>
        /// <param name="progress">Told on this thread how far it is. What it throws cancels the load, and comes out of this call.</param>
        /// <param name="cancellation">Cancels the load.</param>
        /// <exception cref="InlayNotFoundException">There is no such file.</exception>
        /// <exception cref="InlayException">The model cannot be read, or does not fit the budget.</exception>
        /// <exception cref="OperationCanceledException">It was cancelled.</exception>
        public Model LoadModel(string path, ModelOptions options = null, IProgress<LoadProgress> progress = null,
                               CancellationToken cancellation = default(CancellationToken))
        {
            if (path == null) throw new ArgumentNullException(nameof(path));
            cancellation.ThrowIfCancellationRequested();
            using (var native = new inlay_model_options())
            using (var pins = new Pins())
            using (var sink = new ProgressSink(progress, cancellation))
            {
                (options ?? new ModelOptions()).Write(native, pins);
                native.progress = ProgressSink.Pointer;
                native.progress_user = sink.User;
                int status = inlay_model_load(handle, pins.CString(path, nameof(path)), native, out ModelHandle model, out IntPtr error);
                sink.Check(status, error);
                return new Model(this, model);
            }
        }

        /// <summary>The same on a thread of its own.</summary>
        public Task<Model> LoadModelAsync(string path, ModelOptions options = null, IProgress<LoadProgress> progress = null,
                                          CancellationToken cancellation = default(CancellationToken))
        {
            return Task.Factory.StartNew(() => LoadModel(path, options, progress, cancellation), cancellation,
                                         TaskCreationOptions.LongRunning, TaskScheduler.Default);
        }

        /// <summary>Of a host-driven engine: runs steps until the budget is used up or there is nothing to do. Something is computed in every
        /// call, however small its budget; a step once begun is finished, and <see cref="StepResult.Overshoot"/> tells when that was too
        /// late.</summary>
        /// <param name="budget">To the microsecond; zero: exactly one step, however long.</param>
        /// <exception cref="InlayStateException">The engine has a thread of its own, or another thread is stepping.</exception>
        public StepResult Step(TimeSpan budget)
        {
            using (var native = new inlay_step_info())
            {
                Errors.Check(inlay_engine_step(handle, Numbers.Microseconds(budget, nameof(budget)), native, out IntPtr error), error);
                return new StepResult(native);
            }
        }

        /// <summary>Exactly one step.</summary>
        public StepResult Step() { return Step(TimeSpan.Zero); }

        /// <summary>The most that weights, KV and scratch may take together, from now on, up or down; null: no limit. Obeyed at once, or at the
        /// end of the step in flight. No session and no request is lost: what does not fit meanwhile waits.</summary>
        /// <exception cref="InlayResourceException">Below what weights and scratch take; nothing has changed.</exception>
        public void SetMemoryBudget(long? bytes)
        {
            ulong limit = bytes is long value ? Numbers.ULong(value, nameof(bytes)) : 0;
            if (bytes == 0) throw new ArgumentOutOfRangeException(nameof(bytes), 0, "Must be positive, or null for no limit.");
            Errors.Check(inlay_engine_set_memory_budget(handle, 0, limit, out IntPtr error), error);
        }

        /// <summary>Counters, memory and distributions of this moment.</summary>
        public EngineStatistics GetStatistics()
        {
            using (var native = new inlay_stats())
            {
                Errors.Check(inlay_engine_stats(handle, native, out IntPtr error), error);
                return new EngineStatistics(native);
            }
        }

        /// <summary>All there is to count, in Prometheus' text format 0.0.4.</summary>
        public string GetPrometheusMetrics() { return Utf8.GetString(Metrics(INLAY_METRICS_PROMETHEUS)); }

        /// <summary>The same as a protobuf message, <c>inlay.stats.EngineStats</c> of <c>stats.proto</c>.</summary>
        public byte[] GetProtobufMetrics() { return Metrics(INLAY_METRICS_PROTOBUF); }

        /// <summary>Records what steps, requests and KV blocks do, in a ring of the newest events (about 100 bytes each).</summary>
        /// <exception cref="InlayStateException">It records already.</exception>
        public void StartTrace(int events)
        {
            Errors.Check(inlay_engine_trace_start(handle, Numbers.UInt(events, nameof(events)), out IntPtr error), error);
        }

        /// <summary>What was recorded since the start or the last take, for ui.perfetto.dev.</summary>
        /// <param name="stop">Ends the recording.</param>
        /// <exception cref="InlayStateException">Nothing is recorded.</exception>
        public byte[] TakeTrace(bool stop)
        {
            Errors.Check(inlay_engine_trace_take(handle, stop ? 1 : 0, out IntPtr trace, out IntPtr error), error);
            return Buffers.TakeBytes(trace);
        }

        /// <summary>What the engine computes on.</summary>
        public DeviceInfo GetDevice()
        {
            using (var native = new inlay_device_info())
            {
                Errors.Check(inlay_engine_device(handle, native, out IntPtr error), error);
                return new DeviceInfo(native);
            }
        }

        /// <summary>Copies for about 20 ms: bytes read plus bytes written a second, what decoding is measured against.</summary>
        /// <param name="bytes">1 MiB to 4 GiB; scratch of twice that is needed.</param>
        public double MeasureCopy(long bytes)
        {
            Errors.Check(inlay_engine_measure_copy(handle, Numbers.ULong(bytes, nameof(bytes)), out double rate, out IntPtr error), error);
            return rate;
        }

        // For those who wait for an event. False: pause before the next.
        internal bool StepOnce()
        {
            using (var native = new inlay_step_info())
            {
                int status = inlay_engine_step(handle, 0, native, out IntPtr error);
                if (status == INLAY_INVALID_STATE)
                {
                    inlay_error_release(error);
                    return false;
                }
                Errors.Check(status, error);
                return native.num_requests > 0 || native.more_work != 0;
            }
        }

        private byte[] Metrics(int format)
        {
            Errors.Check(inlay_engine_metrics(handle, format, out IntPtr metrics, out IntPtr error), error);
            return Buffers.TakeBytes(metrics);
        }
    }
}
