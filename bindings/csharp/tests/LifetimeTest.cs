using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

namespace Inlay.Tests
{
    public static class LifetimeTest
    {
        private static readonly GenerateOptions forever = new GenerateOptions { IgnoreEos = true };

        public static void UseAfterDispose()
        {
            Engine engine = Env.NewEngine(Drive.Host);
            Model model = engine.LoadModel(Env.Model);
            Session session = model.CreateSession();
            Prefix prefix = model.CreatePrefix("p", "x", false);
            Request request = session.Submit("A dog", forever);
            request.Dispose();
            Check.Throws<ObjectDisposedException>(() => request.Cancel());
            Check.Throws<ObjectDisposedException>(() => request.TryNext(out RequestEvent none));
            Check.Throws<ObjectDisposedException>(() => request.ToList());
            engine.Step();
            session.Dispose();
            Check.Throws<ObjectDisposedException>(() => session.Submit("x"));
            Check.Throws<ObjectDisposedException>(() => session.Fork());
            Check.Throws<ObjectDisposedException>(() => session.GetTokens());
            prefix.Dispose();
            Check.Throws<ObjectDisposedException>(() => prefix.Open());
            Session other = model.CreateSession();
            model.Dispose();
            Check.Throws<ObjectDisposedException>(() => model.CreateSession());
            Check.Throws<ObjectDisposedException>(() => model.Tokenize("x"));
            // What depends on it lives on.
            Check.Equal(3, other.Generate("A dog", new GenerateOptions { MaxTokens = 3, IgnoreEos = true }).Tokens.Length);
            engine.Dispose();
            Check.Throws<ObjectDisposedException>(() => engine.Step());
            Check.Throws<ObjectDisposedException>(() => engine.GetStatistics());
            Check.Throws<ObjectDisposedException>(() => engine.LoadModel(Env.Model));
            Check.Throws<ObjectDisposedException>(() => other.Submit("x"));
            Check.Throws<ObjectDisposedException>(() => other.Info.ToString());
            foreach (IDisposable each in new IDisposable[] { engine, model, session, other, prefix, request })
            {
                each.Dispose();
                each.Dispose();
            }
        }

        public static void DisposingUnderCalls()
        {
            for (int round = 0; round < 20; ++round)
            {
                Engine engine = Env.NewEngine();
                Model model = engine.LoadModel(Env.SmallModel);
                var threads = Enumerable.Range(0, 6).Select(i => new Thread(() =>
                {
                    try
                    {
                        while (true)
                        {
                            using (Session session = model.CreateSession())
                            {
                                if (i % 2 == 0) session.GenerateAsync("A dog", new GenerateOptions { MaxTokens = 5 }).Wait();
                                else foreach (TokenEvent next in session.Stream("A dog", new GenerateOptions { MaxTokens = 5 })) { }
                            }
                        }
                    }
                    catch (AggregateException e) when (e.InnerException is ObjectDisposedException)
                    {
                    }
                    catch (ObjectDisposedException)
                    {
                    }
                })).ToList();
                threads.ForEach(each => each.Start());
                Thread.Sleep(round * 3);
                if (round % 2 == 0) model.Dispose();
                engine.Dispose();
                foreach (Thread each in threads) Check.True(each.Join(TimeSpan.FromSeconds(30)), "a thread hangs");
            }
        }

        public static void FinalizersAlone()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            {
                OnOtherThread(() =>
                {
                    // Dropped at work, awaited or not, and idle.
                    for (int i = 0; i < 20; ++i)
                    {
                        Session session = model.CreateSession();
                        Request request = session.Submit("A dog", forever);
                        if (i % 2 == 0) request.TryNext(TimeSpan.FromSeconds(1), out RequestEvent next);
                        else request.NextAsync().Wait();
                        model.CreateSession();
                        model.CreatePrefix("p" + i, "A dog", false);
                    }
                });
                Collected(() =>
                {
                    EngineStatistics statistics = engine.GetStatistics();
                    return statistics.RunningRequests == 0 && statistics.Sessions == 0;
                }, "sessions and requests are released");
                Check.Throws<InlayNotFoundException>(() => model.FindPrefix("p3"));
            }
            var engines = new List<WeakReference>();
            int logged = 0;
            OnOtherThread(() =>
            {
                for (int i = 0; i < 5; ++i)
                {
                    var engine = new Engine(new EngineOptions { LogLevel = EngineLogLevel.Debug, Log = (level, message) => ++logged });
                    engines.Add(new WeakReference(engine));
                    Model model = engine.LoadModel(Env.SmallModel);
                    Request request = model.CreateSession().Submit("A dog", forever);
                    // With a pump, that is a thread of ours that must not keep them.
                    if (i % 2 == 0) request.NextAsync().Wait();
                    else request.TryNext(TimeSpan.FromSeconds(1), out RequestEvent next);
                }
            });
            Collected(() => engines.All(each => !each.IsAlive), "engines are released");
            // Their threads, the library's and ours, are gone too.
            Collected(() => System.IO.Directory.GetDirectories("/proc/self/task").Length < 24, "threads end");
        }

        // Mono's collector looks for references on stacks conservatively: work on a thread that is gone leaves none.
        [MethodImpl(MethodImplOptions.NoInlining)]
        private static void OnOtherThread(Action action)
        {
            Exception failure = null;
            var thread = new Thread(() =>
            {
                try
                {
                    action();
                }
                catch (Exception e)
                {
                    failure = e;
                }
            });
            thread.Start();
            thread.Join();
            if (failure != null) throw failure;
        }

        private static void Collected(Func<bool> condition, string what)
        {
            Check.Soon(() =>
            {
                GC.Collect();
                GC.WaitForPendingFinalizers();
                return condition();
            }, what);
        }
    }
}
