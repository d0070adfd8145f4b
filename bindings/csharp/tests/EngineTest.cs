using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Inlay.Tests
{
    public static class EngineTest
    {
        private static readonly GenerateOptions twenty = new GenerateOptions { MaxTokens = 20, IgnoreEos = true };

        public static void TheHostSteps()
        {
            using (Engine engine = Env.NewEngine(Drive.Host))
            using (Model model = engine.LoadModel(Env.Model))
            {
                Request[] requests = Enumerable.Range(0, 3).Select(i => model.CreateSession().Submit("Frame " + i, twenty)).ToArray();
                Check.True(!requests[0].TryNext(out RequestEvent none));
                Check.True(!requests[0].TryNext(TimeSpan.FromMilliseconds(2), out none));
                int sampled = 0, calls = 0;
                StepResult result;
                do
                {
                    result = engine.Step(TimeSpan.FromMilliseconds(4));
                    sampled += result.SampledTokens;
                    ++calls;
                    Check.True(result.Duration > TimeSpan.Zero || !result.MoreWork);
                } while (result.MoreWork);
                Check.Equal(60, sampled);
                Check.True(calls > 1);
                foreach (Request request in requests)
                {
                    Check.Equal(20, request.OfType<TokenEvent>().Sum(each => each.Tokens.Length));
                    Check.Equal(FinishReason.Length, request.Finished.Reason);
                }
                Check.Throws<ArgumentOutOfRangeException>(() => engine.Step(TimeSpan.FromMilliseconds(-1)));
            }
            using (Engine engine = Env.NewEngine()) Check.Throws<InlayStateException>(() => engine.Step());
        }

        public static async Task MemoryLease()
        {
            const long kv = 24 << 20;
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model, new ModelOptions { KvBudgetBytes = kv }))
            {
                Func<int, Task<Completion>> ask = i => model.CreateSession().GenerateAsync(
                    string.Concat(Enumerable.Repeat("The " + i + " foxes run. ", 20)), new GenerateOptions { MaxTokens = 40, IgnoreEos = true });
                var alone = new List<int[]>();
                for (int i = 0; i < 12; ++i) alone.Add((await ask(i)).Tokens);
                EngineStatistics before = engine.GetStatistics();
                long floor = before.WeightBytes + before.WorkspaceBytes;
                var running = Enumerable.Range(0, 12).Select(ask).ToList();
                foreach (long bytes in new[] { floor + kv / 4, floor + kv / 2, floor + kv / 8, floor + 2 * kv })
                {
                    engine.SetMemoryBudget(bytes);
                    Check.Soon(() => engine.GetStatistics().MemoryBytes <= bytes, "within the lease");
                    Check.Equal(bytes, engine.GetStatistics().MemoryBudgetBytes);
                    await Task.Delay(30);
                }
                engine.SetMemoryBudget(null);
                Completion[] done = await Task.WhenAll(running);
                for (int i = 0; i < 12; ++i) Check.Same(alone[i], done[i].Tokens);
                var thrown = Check.Throws<InlayResourceException>(() => engine.SetMemoryBudget(1000));
                Check.Equal(ErrorCode.ResourceExhausted, thrown.Code);
                Check.Throws<ArgumentOutOfRangeException>(() => engine.SetMemoryBudget(0));
            }
        }

        public static void StatisticsMetricsAndTraces()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            {
                engine.StartTrace(1000);
                Check.Throws<InlayStateException>(() => engine.StartTrace(1000));
                using (Session session = model.CreateSession())
                {
                    session.Generate("A dog", twenty);
                    // The step that made the last event may still be counting.
                    Check.Soon(() => engine.GetStatistics().StepTimes.Count >= 20, "all steps are counted");
                    EngineStatistics statistics = engine.GetStatistics();
                    Check.Equal(1, statistics.Models);
                    Check.Equal(1, statistics.Sessions);
                    Check.Equal(1L, statistics.SubmittedRequests);
                    Check.Equal(1L, statistics.FinishedRequests);
                    Check.Equal((long)model.Tokenize("A dog").Length, statistics.PrefillTokens);
                    Check.Equal(19L, statistics.InterTokenTime.Count);
                    Check.True(statistics.StepTimes.Count >= 20 && statistics.StepTimes.Max >= statistics.StepTimes.P50);
                    Check.True(statistics.KvBytes > 0 && statistics.MemoryBytes >= statistics.KvBytes);
                    Check.True(statistics.MappedBytes + statistics.WeightBytes > 1 << 20);
                    Check.Equal(0L, statistics.HostCacheBudgetBytes);
                }
                using (engine.LoadModel(Env.Model, new ModelOptions { HostCacheBytes = 16 << 20 }))
                {
                    EngineStatistics statistics = engine.GetStatistics();
                    Check.True(statistics.HostCacheBudgetBytes > 15 << 20 && statistics.HostCacheBudgetBytes <= 16 << 20);
                    Check.Equal(0L, statistics.HostCacheBytes + statistics.DiskCacheBytes);
                }
                Check.Contains("# TYPE", engine.GetPrometheusMetrics());
                Check.True(engine.GetProtobufMetrics().Length > 100);
                Check.True(engine.TakeTrace(true).Length > 100);
                Check.Throws<InlayStateException>(() => engine.TakeTrace(true));
                DeviceInfo device = engine.GetDevice();
                Check.Equal(Backend.Cpu, device.Backend);
                Check.True(device.Name.Length > 0 && device.MemoryBytes > 1 << 28 && device.Processors > 0);
                Check.True(engine.MeasureCopy(1 << 22) > 1e8);
            }
        }

        public static void RecordsAndReplays()
        {
            string path = Env.TempFile();
            try
            {
                using (Engine engine = Env.NewEngine())
                using (Model model = engine.LoadModel(Env.Model))
                {
                    model.StartRecording(path);
                    model.CreateSession().Generate("A dog", twenty);
                    model.StopRecording();
                    Check.Contains("\"same\":true", model.Replay(path).Replace(" ", ""));
                    Check.Throws<InlayStateException>(() => model.StopRecording());
                }
            }
            finally
            {
                File.Delete(path);
            }
        }

        public static void LogsAndSurvivesItsExceptions()
        {
            int messages = 0;
            var options = new EngineOptions
            {
                LogLevel = EngineLogLevel.Debug,
                Log = (level, message) =>
                {
                    if (message.Length > 0) Interlocked.Increment(ref messages);
                    throw new Exception("in the log");
                }
            };
            using (var engine = new Engine(options))
            using (Model model = engine.LoadModel(Env.Model)) model.CreateSession().Generate("A dog", twenty);
            Check.True(messages > 0);
        }

        public static void ProgressOfLoads()
        {
            using (Engine engine = Env.NewEngine())
            {
                var stages = new List<LoadStage>();
                float last = -1;
                using (engine.LoadModel(Env.Model, null, new Told(progress =>
                {
                    stages.Add(progress.Stage);
                    last = progress.Fraction;
                }))) { }
                Check.Same(new[] { LoadStage.Config, LoadStage.Tokenizer, LoadStage.Weights, LoadStage.Ready }, stages.Distinct());
                Check.Equal(1f, last);
                var thrown = Check.Throws<InvalidTimeZoneException>(() => engine.LoadModel(Env.Model, null, new Told(progress =>
                {
                    throw new InvalidTimeZoneException("mine");
                })));
                Check.Contains("Told", thrown.StackTrace);
                using (var source = new CancellationTokenSource())
                {
                    var cancelled = Check.Throws<OperationCanceledException>(
                        () => engine.LoadModel(Env.Model, null, new Told(progress => source.Cancel()), source.Token));
                    Check.True(cancelled.CancellationToken == source.Token);
                }
                Check.Equal(0, engine.GetStatistics().Models);
                using (Model model = engine.LoadModelAsync(Env.Model).Result) Check.Equal("LlamaForCausalLM", model.Info.Architecture);
            }
        }

        private sealed class Told : IProgress<LoadProgress>
        {
            private readonly Action<LoadProgress> action;

            internal Told(Action<LoadProgress> action) { this.action = action; }

            public void Report(LoadProgress value) { action(value); }
        }

        public static void ErrorsByCode()
        {
            using (Engine engine = Env.NewEngine())
            {
                var missing = Check.Throws<InlayNotFoundException>(() => engine.LoadModel("/nowhere/at/all"));
                Check.Equal(ErrorCode.NotFound, missing.Code);
                Check.Equal("INLAY_NOT_FOUND", missing.Name);
                Check.Contains("/nowhere/at/all", missing.Message);
                Check.Throws<ArgumentNullException>(() => engine.LoadModel(null));
                Check.Throws<ArgumentException>(() => engine.LoadModel("a\0b"));
                Check.Throws<InlayNotFoundException>(() => engine.LoadModel("/nowhere/ünïcödé 😀"));
                using (Model model = engine.LoadModel(Env.Model))
                using (Session session = model.CreateSession())
                {
                    Action<GenerateOptions> submit = options => session.Submit("A dog", options).Dispose();
                    Check.Contains("top_p", Check.Throws<InlayArgumentException>(() => submit(new GenerateOptions { TopP = 2 })).Message);
                    Check.Contains("temperature",
                                   Check.Throws<InlayArgumentException>(() => submit(new GenerateOptions { Temperature = float.NaN })).Message);
                    Check.Throws<ArgumentOutOfRangeException>(() => submit(new GenerateOptions { MaxTokens = -1 }));
                    var nul = new GenerateOptions();
                    nul.StopStrings.Add("a\0");
                    Check.Throws<ArgumentException>(() => submit(nul));
                    Check.Throws<ArgumentNullException>(() => session.Submit(null));
                    Check.Throws<InlayException>(() => session.Submit(Prompt.FromChatJson("{")));
                    var late = new GenerateOptions { IgnoreEos = true, Deadline = TimeSpan.FromMilliseconds(30) };
                    Check.Equal(ErrorCode.Timeout, Check.Throws<InlayTimeoutException>(() => session.Generate("A dog", late)).Code);
                    Check.Throws<InlayArgumentException>(() => session.Submit(Prompt.FromTokens(Enumerable.Repeat(70, 100000))));
                }
            }
            using (var engine = new Engine(new EngineOptions { Drive = Drive.Host, MaxRunning = 1, MaxQueue = 1 }))
            using (Model model = engine.LoadModel(Env.Model))
            {
                var full = Check.Throws<InlayResourceException>(() => Enumerable.Range(0, 5).Select(i => model.CreateSession().Submit("x")).ToList());
                Check.Equal(ErrorCode.ResourceExhausted, full.Code);
            }
            Check.Throws<InlayException>(() => new Engine(new EngineOptions { Threads = -5 }));
            Check.Throws<ArgumentOutOfRangeException>(() => new Engine(new EngineOptions { MaxQueue = -5 }));
            Check.Throws<InlayNotFoundException>(() => Library.Inspect("/nowhere"));
            Check.Contains("LlamaForCausalLM", Library.Inspect(Env.Model));
            Check.True(Library.AbiVersion >= 6 && Library.Version.Split('.').Length == 3);
        }
    }

    public static class QuantizeTest
    {
        public static void WritesAModelThatAnswers()
        {
            string path = Env.TempFile() + ".gguf";
            try
            {
                var options = new QuantizeOptions { Type = "q8_0" };
                options.TensorTypes.Add("*.mlp.*=q4_0");
                string report = Quantizer.Quantize(Env.Model, path, options);
                Check.Contains("\"q4_0\"", report);
                using (Engine engine = Env.NewEngine())
                using (Model model = engine.LoadModel(path))
                using (var chat = new Chat(model.CreateSession())) Check.Equal("873", chat.Say("946 - 73"));
                using (var source = new CancellationTokenSource())
                {
                    source.Cancel();
                    Check.Throws<OperationCanceledException>(() => Quantizer.Quantize(Env.Model, path, null, null, source.Token));
                }
                Check.Contains("q8_0", Check.Throws<InlayArgumentException>(
                    () => Quantizer.Quantize(Env.Model, path, new QuantizeOptions { Type = "none" })).Message);
                options.Method = QuantizeMethod.Imatrix;
                options.ImatrixPath = path + ".none";
                Check.Throws<InlayNotFoundException>(() => Quantizer.Quantize(Env.Model, path, options));
                Check.True(new FileInfo(path).Length > 1 << 20);
            }
            finally
            {
                File.Delete(path);
            }
        }
    }
}
