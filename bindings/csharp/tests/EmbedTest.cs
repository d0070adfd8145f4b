using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Text.RegularExpressions;
using System.Threading;
using System.Threading.Tasks;

namespace Inlay.Tests
{
    public static class EmbedTest
    {
        private static readonly string[] texts = { "A fox.", "Höher als der Mond 🌙", "A lantern in the woods, and nobody near it." };
        private static readonly EmbeddingOptions mean = new EmbeddingOptions { Mode = EmbeddingMode.Mean, Normalise = true };
        private static readonly string tiny = Path.Combine(Env.Data, "models/llama3");

        private static string[] SomeTexts(int count)
        {
            return Enumerable.Range(0, count).Select(i => "Fox " + i + string.Concat(Enumerable.Repeat(" has a lantern", i % 17))).ToArray();
        }

        private static float[] Floats(string line, char separator)
        {
            return line.Split(new[] { separator }, StringSplitOptions.RemoveEmptyEntries)
                .Select(each => float.Parse(each, CultureInfo.InvariantCulture)).ToArray();
        }

        private static void Same(float[][] expected, float[][] actual)
        {
            Check.Equal(expected.Length, actual.Length);
            for (int i = 0; i < expected.Length; ++i) Check.Same(expected[i], actual[i]);
        }

        public static void EqualsTheCApi()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            {
                foreach (EmbeddingMode mode in new[] { EmbeddingMode.Default, EmbeddingMode.Mean, EmbeddingMode.Cls, EmbeddingMode.Last })
                {
                    bool normalise = mode == EmbeddingMode.Mean;
                    float[][] vectors = model.Embed(texts, new EmbeddingOptions { Mode = mode, Normalise = normalise });
                    for (int i = 0; i < texts.Length; ++i)
                    {
                        float[] expected = Floats(Env.Reference("embed", Env.Model, texts[i], ((int)mode).ToString(), normalise ? "1" : "0")[0], ' ');
                        Check.Equal(model.Info.HiddenSize, (long)expected.Length);
                        Check.Same(expected, vectors[i]);
                    }
                    if (normalise) Check.Near(1, vectors[0].Sum(each => (double)each * each), 1e-6);
                }
                Same(model.Embed(texts), model.Embed(texts, new EmbeddingOptions { Mode = EmbeddingMode.Last }));
            }
        }

        // More than the engine's queue takes, and than are under way at once; by both ways to wait and both to run.
        public static async Task SideBySideIsAsAlone()
        {
            string[] some = SomeTexts(30);
            using (Engine quiet = Env.NewEngine(Drive.Host))
            using (var few = new Engine(new EngineOptions { Backend = Backend.Cpu, MaxRunning = 4, MaxQueue = 8 }))
            using (Model alone = quiet.LoadModel(Env.Model))
            using (Model model = few.LoadModel(Env.Model))
            {
                float[][] expected = some.Select(each => alone.Embed(new[] { each }, mean)[0]).ToArray();
                Same(expected, alone.Embed(some, mean));
                Same(expected, model.Embed(some, mean));
                Same(expected, await model.EmbedAsync(some, mean));
                Check.Equal(60L, few.GetStatistics().FinishedRequests);
                Check.Soon(() => few.GetStatistics().Sessions == 0, "the sessions are closed");
                float[][][] several = await Task.WhenAll(model.EmbedAsync(some.Take(6).ToArray(), mean), model.EmbedAsync(some.Skip(6).Take(2).ToArray(), mean));
                Same(expected.Take(8).ToArray(), several.SelectMany(each => each).ToArray());

                Task<float[][]> stepped = alone.EmbedAsync(some.Take(5).ToArray(), mean);
                Check.Soon(() => { quiet.Step(TimeSpan.FromMilliseconds(1)); return stepped.IsCompleted; }, "it ends");
                Same(expected.Take(5).ToArray(), await stepped);
            }
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(tiny))
            {
                Prompt[] prompts = Enumerable.Range(0, 600).Select(i => Prompt.FromTokens(Enumerable.Range(0, 1 + i % 40).ToArray())).ToArray();
                float[][] vectors = model.Embed(prompts);
                Same(prompts.Select((each, i) => vectors[i % 40]).ToArray(), vectors);
                Same(vectors, await model.EmbedAsync(prompts));
            }
        }

        public static async Task InASession()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            using (Session session = model.CreateSession())
            {
                float[] expected = model.Embed(texts, mean)[0];
                var options = new GenerateOptions { Embedding = EmbeddingMode.Mean, Normalise = true };
                using (Session other = model.CreateSession())
                using (Request request = other.Submit(texts[0], options))
                {
                    List<RequestEvent> events = request.ToList();
                    Check.Equal(2, events.Count);
                    Check.Same(expected, ((EmbeddingEvent)events[0]).Vector);
                    Check.Equal(0L, ((FinishedEvent)events[1]).GeneratedTokens);
                }
                Completion completion = session.Generate(texts[0], options);
                Check.Same(expected, completion.Embedding);
                Check.Equal(0, completion.Tokens.Length);
                // The log goes on, and a decoder still generates.
                completion = await session.GenerateAsync(" It", new GenerateOptions { MaxTokens = 4 });
                Check.Equal(4, completion.Tokens.Length);
                Check.True(completion.Embedding == null);
            }
        }

        private static float[] Member(string json, string name)
        {
            Match match = Regex.Match(json, "\"" + name + "\": ?\\[([^\\[\\]]*)\\]");
            Check.True(match.Success, name);
            return Floats(match.Groups[1].Value, ',');
        }

        private static Prompt Typed(string json)
        {
            return Prompt.FromTokens(Member(json, "input_ids").Select(each => (int)each), Member(json, "token_type_ids").Select(each => (int)each));
        }

        // A cross-encoder: what transformers gives for single texts and for pairs, of text and of tokens.
        public static void Labels()
        {
            string path = Path.Combine(Env.Data, "models/bert_reranker");
            int pairs = 0;
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(path))
            {
                foreach (string one in Regex.Split(File.ReadAllText(Path.Combine(path, "golden.json")), "\"name\":\"(?=single|pair|len)"))
                {
                    if (!one.Contains("\"input_ids\"")) continue;
                    float expected = Member(one, "logits")[0];
                    Check.Near(expected, model.Classify(new[] { Typed(one) }, ClassificationMode.Logits)[0][0], 5e-5);
                    Match text = Regex.Match(one, "\"text\":\"([^\"]*)\"(?:,\"text_pair\":\"([^\"]*)\")?");
                    if (!text.Success) continue;
                    bool isPair = text.Groups[2].Success;
                    Prompt prompt = isPair ? Prompt.FromPair(text.Groups[1].Value, text.Groups[2].Value) : text.Groups[1].Value;
                    using (Session session = model.CreateSession())
                    {
                        Completion completion = session.Generate(prompt, new GenerateOptions { Classification = ClassificationMode.Sigmoid });
                        Check.Near(expected, completion.Classification.Logits[0], 5e-5);
                        Check.Near(1 / (1 + Math.Exp(-expected)), completion.Classification.Scores[0], 5e-5);
                    }
                    if (!isPair) continue;
                    ++pairs;
                    // One label: the sigmoid is the default.
                    Check.Near(1 / (1 + Math.Exp(-expected)), model.ClassifyPairs(text.Groups[1].Value, new[] { text.Groups[2].Value })[0][0], 5e-5);
                }
                Check.Equal(5, pairs);
                Check.Throws<ArgumentException>(() => model.Classify(new Prompt[0], ClassificationMode.None));
                Check.Throws<ArgumentException>(() => Prompt.FromTokens(new[] { 1, 2 }, new[] { 0 }));
                Check.Throws<ArgumentException>(() => model.CreatePrefix("pair", Prompt.FromPair("a", "b")));
            }
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
                Check.Throws<InlayArgumentException>(() => model.ClassifyPairs("A fox.", new[] { "A den." }));
        }

        public static void Encoder()
        {
            string path = Path.Combine(Env.Data, "models/bert");
            int cases = 0;
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(path))
            {
                foreach (string one in Regex.Split(File.ReadAllText(Path.Combine(path, "golden.json")), "\"name\": ?\"len"))
                {
                    if (!one.Contains("\"input_ids\"")) continue;
                    Prompt[] prompt = { Typed(one) };
                    // The model's files ask for the mean, normalised. The goldens' README has the tolerance.
                    var names = new Dictionary<EmbeddingMode, string> { { EmbeddingMode.Mean, "mean_pooled" }, { EmbeddingMode.Cls, "cls" },
                        { EmbeddingMode.Default, "mean_pooled_normalised" } };
                    foreach (KeyValuePair<EmbeddingMode, string> each in names)
                    {
                        float[] expected = Member(one, each.Value);
                        float[] vector = model.Embed(prompt, new EmbeddingOptions { Mode = each.Key })[0];
                        Check.Equal(expected.Length, vector.Length);
                        for (int i = 0; i < vector.Length; ++i) Check.Near(expected[i], vector[i], 1e-4);
                    }
                    ++cases;
                }
                Check.True(cases >= 3, cases + " cases");
                using (Session session = model.CreateSession())
                {
                    Prompt tokens = Prompt.FromTokens(new[] { 1, 2, 3 });
                    Check.Contains("encoder", Check.Throws<InlayArgumentException>(() => session.Generate(tokens)).Message);
                }
                Check.Throws<InlayUnsupportedException>(() => model.Embed(texts));
            }
        }

        public static async Task Errors()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            {
                Check.Equal(0, model.Embed(new string[0]).Length);
                string tooLong = string.Concat(Enumerable.Repeat("A fox. ", 3000));
                Check.Throws<InlayArgumentException>(() => model.Embed(new[] { texts[0], tooLong, texts[0] }));
                await Check.ThrowsAsync<InlayArgumentException>(model.EmbedAsync(new[] { texts[0], tooLong }));
                Check.Throws<InlayArgumentException>(() => model.Embed(texts, new EmbeddingOptions { Mode = (EmbeddingMode)9 }));
                Check.Throws<ArgumentException>(() => model.Embed(texts, new EmbeddingOptions { Mode = EmbeddingMode.None }));
                Check.Throws<ArgumentNullException>(() => model.Embed((string[])null));
                Check.Throws<ArgumentNullException>(() => model.Embed(new[] { texts[0], null }));
                using (Session session = model.CreateSession())
                {
                    var both = new GenerateOptions { Embedding = EmbeddingMode.Mean, MaxTokens = 4 };
                    Check.Contains("max_tokens", Check.Throws<InlayArgumentException>(() => session.Generate(texts[0], both)).Message);
                }
                Check.Throws<OperationCanceledException>(() => model.Embed(texts, null, new CancellationToken(true)));
                // In the middle.
                string[] many = Enumerable.Repeat(string.Concat(Enumerable.Repeat("A fox has a lantern. ", 60)), 2000).ToArray();
                using (var source = new CancellationTokenSource(200))
                    Check.Throws<OperationCanceledException>(() => model.Embed(many, mean, source.Token));
                using (var source = new CancellationTokenSource(200))
                    await Check.ThrowsAsync<OperationCanceledException>(model.EmbedAsync(many, mean, source.Token));
                Check.Soon(() => engine.GetStatistics().Sessions == 0 && engine.GetStatistics().RunningRequests == 0, "nothing is left");
                Task<float[][]> left = model.EmbedAsync(many);
                engine.Dispose();
                await Check.ThrowsAsync<ObjectDisposedException>(left);
                Check.Throws<ObjectDisposedException>(() => model.Embed(texts));
            }
        }
    }
}
