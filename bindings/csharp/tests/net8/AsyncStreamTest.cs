// Session.StreamAsync, which only net8.0 has: compiled with what that defines, beside the sources of the other tests.
using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace Inlay.Tests
{
    public static class AsyncStreamTest
    {
        // What `await foreach` becomes. `each` returns false to leave.
        private static async Task ForEach(IAsyncEnumerable<TokenEvent> stream, Func<TokenEvent, bool> each,
                                          CancellationToken own = default(CancellationToken))
        {
            IAsyncEnumerator<TokenEvent> enumerator = stream.GetAsyncEnumerator(own);
            try
            {
                while (await enumerator.MoveNextAsync())
                {
                    if (!each(enumerator.Current)) return;
                }
            }
            finally
            {
                await enumerator.DisposeAsync();
            }
        }

        public static async Task SaysWhatGenerateSays()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            using (Session session = model.CreateSession())
            {
                var options = new GenerateOptions { MaxTokens = 24 };
                var tokens = new List<int>();
                await ForEach(session.StreamAsync("A dog", options), each => { tokens.AddRange(each.Tokens); return true; });
                Check.Same(model.CreateSession().Generate("A dog", options).Tokens, tokens);
                Check.True(!session.Info.Busy);
            }
        }

        public static async Task NothingRunsBeforeItIsEnumerated()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            using (Session session = model.CreateSession())
            {
                IAsyncEnumerable<TokenEvent> stream = session.StreamAsync("A dog", new GenerateOptions { MaxTokens = 4 });
                await stream.GetAsyncEnumerator().DisposeAsync();
                Check.Equal(0L, session.Info.Tokens);
                // Each enumeration is a generation of its own, which goes on from the log.
                await ForEach(stream, each => true);
                long once = session.Info.Tokens;
                await ForEach(stream, each => true);
                Check.True(session.Info.Tokens > once);
                Check.Throws<InlayArgumentException>(
                    () => ForEach(session.StreamAsync("A dog", new GenerateOptions { TopP = 2 }), each => true).GetAwaiter().GetResult());
            }
        }

        public static async Task LeavingCancels()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            using (Session session = model.CreateSession())
            {
                int count = 0;
                await ForEach(session.StreamAsync("A dog", new GenerateOptions { IgnoreEos = true }), each => ++count < 3);
                Check.Equal(3, count);
                Check.Soon(() => !session.Info.Busy, "the generation ends");
                Check.Soon(() => engine.GetStatistics().RunningRequests == 0, "nothing runs");
            }
        }

        public static async Task BothTokensCancel()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            {
                foreach (bool own in new[] { false, true })
                {
                    using (Session session = model.CreateSession())
                    using (var source = new CancellationTokenSource())
                    {
                        CancellationToken none = CancellationToken.None;
                        IAsyncEnumerable<TokenEvent> stream =
                            session.StreamAsync("A dog", new GenerateOptions { IgnoreEos = true }, own ? none : source.Token);
                        await Check.ThrowsAsync<OperationCanceledException>(ForEach(stream, each => { source.Cancel(); return true; }, own ? source.Token : none));
                        Check.Soon(() => !session.Info.Busy, "the generation ends");
                        // And before it begins.
                        await Check.ThrowsAsync<OperationCanceledException>(ForEach(stream, each => true, own ? source.Token : none));
                    }
                }
            }
        }

        public static async Task EndsWithItsEngine()
        {
            using (Engine engine = Env.NewEngine())
            {
                Model model = engine.LoadModel(Env.Model);
                Session session = model.CreateSession();
                await Check.ThrowsAsync<ObjectDisposedException>(
                    ForEach(session.StreamAsync("A dog", new GenerateOptions { IgnoreEos = true }), each => { engine.Dispose(); return true; }));
            }
        }
    }
}
