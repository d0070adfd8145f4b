using System;
using System.IO;
using System.Linq;
using System.Threading.Tasks;

namespace Inlay.Tests
{
    public static class LeakTest
    {
        public static async Task TenThousandRequests()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.SmallModel))
            {
                await Ask(model, 2000);
                long before = ResidentBytes();
                await Ask(model, 10000);
                long grown = ResidentBytes() - before;
                Console.WriteLine("10,000 requests: resident memory grew by {0:0.0} MiB, from {1:0.0}", grown / 1048576.0, before / 1048576.0);
                // 400 bytes a request: less than any of the objects that a request is made of.
                Check.True(grown < 4 << 20, "leaks");
                Check.Equal(12000L, engine.GetStatistics().SubmittedRequests);
                Check.Soon(() => engine.GetStatistics().RunningRequests + engine.GetStatistics().WaitingRequests == 0, "all have ended");
            }
        }

        // A third awaited, a third streamed, a third with all that options can point to.
        private static Task Ask(Model model, int requests)
        {
            const int workers = 16;
            return Task.WhenAll(Enumerable.Range(0, workers).Select(worker => Task.Run(async () =>
            {
                for (int i = 0; i < requests / workers; ++i)
                {
                    using (Session session = model.CreateSession())
                    {
                        var options = new GenerateOptions { MaxTokens = 2 };
                        if (i % 3 == 0)
                        {
                            await session.GenerateAsync("A dog", options);
                        }
                        else if (i % 3 == 1)
                        {
                            foreach (TokenEvent next in session.Stream("A dog", options)) { }
                        }
                        else
                        {
                            options.StopStrings.Add("never said");
                            options.StopTokens.Add(5);
                            options.LogitBias[70] = -1;
                            options.LogprobCount = 2;
                            options.Logits = LogitsMode.Last;
                            try
                            {
                                session.Submit("A dog", new GenerateOptions { TopP = 7 });
                            }
                            catch (InlayArgumentException)
                            {
                            }
                            using (Session fork = session.Fork()) await fork.GenerateAsync(Prompt.FromChat(new[] { ChatMessage.User("1 + 1") }), options);
                        }
                    }
                }
            })));
        }

        private static long ResidentBytes()
        {
            for (int i = 0; i < 3; ++i)
            {
                GC.Collect();
                GC.WaitForPendingFinalizers();
            }
            return long.Parse(File.ReadAllText("/proc/self/statm").Split(' ')[1]) * 4096;
        }
    }
}
