using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;

namespace Inlay.Tests
{
    public static class AsyncTest
    {
        private static readonly GenerateOptions forever = new GenerateOptions { IgnoreEos = true };

        public static async Task SixtyFourSessionsInParallel()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            {
                Func<int, GenerateOptions> options = i => new GenerateOptions { MaxTokens = 24, Temperature = 0.9f, Seed = (ulong)i };
                var alone = Enumerable.Range(0, 64).Select(i => model.CreateSession().Generate("The " + i + " foxes", options(i)).Text).ToList();
                Completion[] together =
                    await Task.WhenAll(Enumerable.Range(0, 64).Select(i => model.CreateSession().GenerateAsync("The " + i + " foxes", options(i))));
                Check.Same(alone, together.Select(each => each.Text));
                Check.Soon(() => engine.GetStatistics().StepTokens.Max > 30, "they ran together");
            }
        }

        public static void ThreadsOfTheirOwn()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            {
                string expected = model.CreateSession().Generate("A dog", new GenerateOptions { MaxTokens = 16 }).Text;
                var said = new string[16];
                // Half of them wait in the library as the other half's awaits begin.
                var threads = Enumerable.Range(0, said.Length).Select(i => new Thread(() =>
                {
                    Session session = model.CreateSession();
                    var options = new GenerateOptions { MaxTokens = 16 };
                    if (i % 2 == 0) said[i] = string.Concat(session.Stream("A dog", options).Select(each => each.Text));
                    else said[i] = session.GenerateAsync("A dog", options).Result.Text;
                })).ToList();
                threads.ForEach(each => each.Start());
                threads.ForEach(each => each.Join());
                Check.True(said.All(each => each == expected), string.Join("|", said));
            }
        }

        public static async Task EventsOneByOne()
        {
            foreach (Drive drive in new[] { Drive.Thread, Drive.Host })
            {
                using (Engine engine = Env.NewEngine(drive))
                using (Model model = engine.LoadModel(Env.Model))
                using (Request request = model.CreateSession().Submit("A dog", new GenerateOptions { MaxTokens = 30 }))
                {
                    // A host that steps without caring who waits for what.
                    Task host = drive == Drive.Thread ? Task.CompletedTask : Task.Run(() =>
                    {
                        while (engine.Step().MoreWork) { }
                    });
                    var tokens = new List<int>();
                    while (await request.NextAsync() is RequestEvent next)
                    {
                        if (next is TokenEvent each) tokens.AddRange(each.Tokens);
                    }
                    await host;
                    Check.Equal(FinishReason.Length, request.Finished.Reason);
                    Check.Same(model.CreateSession().Generate("A dog", new GenerateOptions { MaxTokens = 30 }).Tokens, tokens);
                    Check.True(await request.NextAsync() == null);
                    Check.True(!request.TryNext(out RequestEvent none));
                }
            }
        }

        public static void CancelsWithinAStep()
        {
            using (Engine engine = Env.NewEngine(Drive.Host))
            using (Model model = engine.LoadModel(Env.Model))
            using (Session session = model.CreateSession())
            using (Request request = session.Submit("A dog", forever))
            {
                RequestEvent next;
                for (int i = 0; i < 5; ++i) engine.Step();
                while (request.TryNext(out next)) Check.True(next is TokenEvent);
                request.Cancel();
                engine.Step();
                while (request.TryNext(out next) && !(next is FinishedEvent)) { }
                Check.Equal(FinishReason.Cancelled, request.Finished.Reason);
                Check.Equal(ErrorCode.Cancelled, request.Finished.Code);
                Check.True(!session.Info.Busy);
                request.Cancel();
            }
        }

        public static async Task CancellationTokens()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            using (Session session = model.CreateSession())
            {
                // So that there is something to go on from, however soon the others are cancelled.
                session.Generate("A dog", new GenerateOptions { MaxTokens = 1 });
                var source = new CancellationTokenSource(50);
                var thrown = await Check.ThrowsAsync<OperationCanceledException>(session.GenerateAsync(Prompt.Empty, forever, source.Token));
                Check.True(thrown.CancellationToken == source.Token);
                source = new CancellationTokenSource(50);
                Check.Throws<OperationCanceledException>(() => session.Generate(Prompt.Empty, forever, source.Token));
                source = new CancellationTokenSource();
                int pieces = 0;
                Check.Throws<OperationCanceledException>(() =>
                {
                    foreach (TokenEvent next in session.Stream(Prompt.Empty, forever, source.Token))
                    {
                        if (++pieces == 3) source.Cancel();
                    }
                });
                Check.True(pieces >= 3);
                Check.Throws<OperationCanceledException>(() => session.Generate("x", null, source.Token));
                // What came before is in the log, and the session goes on.
                Check.Equal(4L, session.Generate(Prompt.Empty, new GenerateOptions { MaxTokens = 4, IgnoreEos = true }).Finished.GeneratedTokens);
            }
        }

        public static async Task CancelStorm()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.SmallModel))
            {
                int cancelled = 0, done = 0;
                var tasks = Enumerable.Range(0, 8).Select(worker => Task.Run(async () =>
                {
                    var random = new Random(worker);
                    for (int i = 0; i < 40; ++i)
                    {
                        using (Session session = model.CreateSession())
                        using (var source = new CancellationTokenSource())
                        {
                            Task<Completion> task = session.GenerateAsync("A " + random.Next(100) + " dog",
                                new GenerateOptions { MaxTokens = random.Next(1, 30), IgnoreEos = true }, source.Token);
                            if (random.Next(4) > 0)
                            {
                                if (random.Next(2) > 0) await Task.Delay(random.Next(3));
                                source.Cancel();
                            }
                            try
                            {
                                await task;
                                Interlocked.Increment(ref done);
                            }
                            catch (OperationCanceledException)
                            {
                                Interlocked.Increment(ref cancelled);
                            }
                        }
                    }
                })).ToArray();
                await Task.WhenAll(tasks);
                Check.Equal(320, cancelled + done);
                Check.True(cancelled > 20 && done > 20, cancelled + " cancelled, " + done + " done");
                Check.Soon(() => engine.GetStatistics().RunningRequests + engine.GetStatistics().WaitingRequests == 0, "all have ended");
                Check.Equal(0L, engine.GetStatistics().FailedRequests);
                Check.Equal(8, (await model.CreateSession().GenerateAsync("A dog", new GenerateOptions { MaxTokens = 8, IgnoreEos = true })).Tokens.Length);
            }
        }

        public static async Task ClosingUnderAwaits()
        {
            foreach (Drive drive in new[] { Drive.Host, Drive.Thread })
            {
                Engine engine = Env.NewEngine(drive);
                Model model = engine.LoadModel(Env.Model);
                Request request = model.CreateSession().Submit("A dog", forever);
                Task<RequestEvent> first = NextForever(request);
                // Nobody steps the host's, so that the first await cannot end yet.
                if (drive == Drive.Host) await Check.ThrowsAsync<InvalidOperationException>(request.NextAsync());
                request.Dispose();
                await Check.ThrowsAsync<ObjectDisposedException>(first);
                var tasks = Enumerable.Range(0, 8).Select(i => model.CreateSession().GenerateAsync("A dog", forever)).ToList();
                Request last = model.CreateSession().Submit("A dog", forever);
                await Task.Delay(20);
                engine.Dispose();
                foreach (Task<Completion> task in tasks) await Check.ThrowsAsync<ObjectDisposedException>(task);
                await Check.ThrowsAsync<ObjectDisposedException>(NextForever(last));
                Check.Throws<ObjectDisposedException>(() => last.Cancel());
                Check.Throws<ObjectDisposedException>(() => model.CreateSession());
            }
        }

        private static async Task<RequestEvent> NextForever(Request request)
        {
            RequestEvent last = null;
            while (await request.NextAsync() is RequestEvent next) last = next;
            return last;
        }
    }
}
