using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Linq;

namespace Inlay.Tests
{
    public static class OverheadTest
    {
        // What taking a token's event costs, beside the same loop in C: medians, and the least of several runs, for the machine may be busy.
        // After a step of a tiny model the code is still in the caches; a real model's leaves none of it there, in C neither.
        public static void OfAStreamedToken()
        {
            Measure("a tiny model", Path.Combine(Env.Data, "models/llama2"), out double inCSharp, out double inC);
            // The target is 5 us; a machine that takes the processor away in between must not fail it.
            Check.True(inCSharp < 4 * inC + 50, "far more than in C");
            Measure("pocket-7m", Env.Model, out inCSharp, out inC);
        }

        private static void Measure(string name, string path, out double inCSharp, out double inC)
        {
            const int tokens = 200;
            inC = Enumerable.Range(0, 5).Min(
                i => double.Parse(Env.Reference("pull", path, tokens.ToString())[0], CultureInfo.InvariantCulture));
            using (Engine engine = Env.NewEngine(Drive.Host))
            using (Model model = engine.LoadModel(path))
            {
                inCSharp = Enumerable.Range(0, 8).Min(i => Pull(engine, model, tokens));
            }
            Console.WriteLine("{0}: a token's event takes {1:0.00} us in C#, {2:0.00} us in C", name, inCSharp, inC);
        }

        private static double Pull(Engine engine, Model model, int tokens)
        {
            using (Session session = model.CreateSession())
            using (Request request = session.Submit(Prompt.FromTokens(new[] { 5, 6, 7 }), new GenerateOptions { MaxTokens = tokens, IgnoreEos = true }))
            {
                var taken = new List<long>(tokens + 1);
                while (request.Finished == null)
                {
                    engine.Step();
                    long begin = Stopwatch.GetTimestamp();
                    while (request.TryNext(out RequestEvent next)) { }
                    taken.Add(Stopwatch.GetTimestamp() - begin);
                }
                taken.Sort();
                return taken[taken.Count / 2] * 1e6 / Stopwatch.Frequency;
            }
        }
    }
}
