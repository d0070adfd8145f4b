using System;
using System.Collections.Generic;
using System.Linq;
using System.Text;

namespace Inlay.Tests
{
    public static class GenerateTest
    {
        private const string Story = "Once upon a time,";

        public static void EqualsTheCApi()
        {
            string[] reference = Env.Reference("tokens", Env.Model, Story, "64");
            int[] tokens = reference[0].Split(new[] { ' ' }, StringSplitOptions.RemoveEmptyEntries).Select(int.Parse).ToArray();
            Check.Equal(64, tokens.Length);
            foreach (Drive drive in new[] { Drive.Host, Drive.Thread })
            {
                using (Engine engine = Env.NewEngine(drive))
                using (Model model = engine.LoadModel(Env.Model))
                using (Session session = model.CreateSession())
                {
                    Completion completion = session.Generate(Story, new GenerateOptions { MaxTokens = 64 });
                    Check.Same(tokens, completion.Tokens);
                    Check.Equal(reference[1], string.Concat(Encoding.UTF8.GetBytes(completion.Text).Select(each => each.ToString("x2"))));
                    Check.Equal(FinishReason.Length, completion.Finished.Reason);
                    Check.Equal(64L, completion.Finished.GeneratedTokens);
                    Check.True(completion.Finished.TimeToFirstToken > TimeSpan.Zero);
                    Check.True(completion.Finished.TotalTime >= completion.Finished.TimeToFirstToken);
                }
            }
        }

        public static void PiecesJoinToTheWhole()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            {
                var options = new GenerateOptions { MaxTokens = 50, Temperature = 0.8f, Seed = 3 };
                Completion whole = model.CreateSession().Generate(Story, options);
                var pieces = model.CreateSession().Stream(Story, options).ToList();
                Check.True(pieces.Count > 10);
                Check.Equal(whole.Text, string.Concat(pieces.Select(each => each.Text)));
                Check.Same(whole.Tokens, pieces.SelectMany(each => each.Tokens));
                Check.Equal(whole.Text, Encoding.UTF8.GetString(pieces.SelectMany(each => each.Bytes).ToArray()));
                options.Seed = 4;
                Check.True(model.CreateSession().Generate(Story, options).Text != whole.Text);
            }
        }

        public static void LeavingAStreamCancelsIt()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            using (Session session = model.CreateSession())
            {
                foreach (TokenEvent next in session.Stream(Story, new GenerateOptions { IgnoreEos = true })) break;
                Check.Soon(() => !session.Info.Busy, "the session is free");
                Check.True(session.Info.Tokens < 1000);
            }
        }

        public static void AnswersAChat()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            using (var chat = new Chat(model.CreateSession()))
            {
                Check.True(model.Info.HasChatTemplate);
                Check.True(model.Info.EmbeddingSize == model.Info.HiddenSize && model.Info.HiddenSize > 0);
                Check.Equal("873", chat.Say("946 - 73"));
                Check.Equal("94", string.Concat(chat.Stream("Which number comes next: 58, 67, 76, 85?")));
                Check.Equal(4, chat.Messages.Count);
                // The second turn computed only what was new.
                Check.Soon(() => engine.GetStatistics().HitTokens > 10, "the cache is hit");
                using (Chat fork = chat.Fork()) Check.Equal("3", fork.SayAsync("1 + 2").Result);
                Check.Equal(4, chat.Messages.Count);
                Check.Throws<OperationCanceledException>(() => chat.Say("2 + 2", new System.Threading.CancellationToken(true)));
                Check.Equal(4, chat.Messages.Count);
            }
        }

        public static void Stops()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            {
                var options = new GenerateOptions { MaxTokens = 200 };
                Completion whole = model.CreateSession().Generate(Story, options);
                string word = whole.Text.Split(' ')[4];
                options.StopStrings.Add("never in this text");
                options.StopStrings.Add(word);
                Completion cut = model.CreateSession().Generate(Story, options);
                Check.Equal(FinishReason.Stop, cut.Finished.Reason);
                Check.Equal(1, cut.Finished.StopString.Value);
                Check.Equal(whole.Text.Substring(0, whole.Text.IndexOf(word)), cut.Text);
                options = new GenerateOptions { MaxTokens = 200 };
                options.StopTokens.Add(whole.Tokens[7]);
                Completion atToken = model.CreateSession().Generate(Story, options);
                Check.Equal(whole.Tokens[7], atToken.Finished.StopToken.Value);
                Check.Same(whole.Tokens.TakeWhile(each => each != whole.Tokens[7]), atToken.Tokens);
            }
        }

        public static void LogprobsLogitsAndScores()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            {
                var options = new GenerateOptions { MaxTokens = 5, LogprobCount = 3, Logits = LogitsMode.Generated };
                Completion completion = model.CreateSession().Generate(Story, options);
                Check.Equal(5, completion.Logprobs.Count);
                Check.Equal(5, completion.Logits.Count);
                for (int i = 0; i < 5; ++i)
                {
                    float[] logits = completion.Logits[i].Logits;
                    Check.Equal((int)model.Info.VocabularySize, logits.Length);
                    double sum = logits.Sum(each => Math.Exp(each - logits.Max()));
                    ChoiceLogprobs logprobs = completion.Logprobs[i];
                    Check.Equal(completion.Tokens[i], logprobs.Chosen.Token);
                    Check.Equal(3, logprobs.Likeliest.Count);
                    Check.Equal(logprobs.Chosen.Token, logprobs.Likeliest[0].Token);
                    foreach (TokenLogprob each in logprobs.Likeliest)
                        Check.Near(logits[each.Token] - logits.Max() - Math.Log(sum), each.Logprob, 1e-3);
                    Check.True(logprobs.Likeliest[1].Logprob >= logprobs.Likeliest[2].Logprob);
                }
                int[] prompt = model.Tokenize(Story);
                options = new GenerateOptions { MaxTokens = 0, ScorePrompt = true, Logits = LogitsMode.Positions };
                options.LogitsPositions.Add(2);
                completion = model.CreateSession().Generate(Prompt.FromTokens(prompt), options);
                Check.Equal(prompt.Length - 1, completion.Scores.Sum(each => each.Scores.Length));
                Check.Equal(2L, completion.Logits.Single().Position);
                float[] row = completion.Logits[0].Logits;
                double total = row.Sum(each => Math.Exp(each - row.Max()));
                float score = completion.Scores.Single(each => each.Position <= 3 && each.Position + each.Scores.Length > 3).Scores[
                    3 - completion.Scores[0].Position];
                Check.Near(row[prompt[3]] - row.Max() - Math.Log(total), score, 1e-3);
            }
        }

        public static void BiasesPenaltiesAndRecommendedOptions()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            {
                GenerateOptions options = model.GetRecommendedOptions();
                Check.Equal(0f, options.Temperature);
                Check.Equal(1f, options.TopP);
                options.MaxTokens = 3;
                options.IgnoreEos = true;
                options.LogitBias[70] = 1000;
                Check.Same(new[] { 70, 70, 70 }, model.CreateSession().Generate(Story, options).Tokens);
                options.LogitBias[70] = float.NegativeInfinity;
                Check.True(!model.CreateSession().Generate(Story, options).Tokens.Contains(70));
                options.LogitBias.Clear();
                options.MaxTokens = 60;
                options.FrequencyPenalty = 2;
                int repeated = model.CreateSession().Generate(Story, options).Tokens.GroupBy(each => each).Max(each => each.Count());
                options.FrequencyPenalty = 0;
                Check.True(model.CreateSession().Generate(Story, options).Tokens.GroupBy(each => each).Max(each => each.Count()) > repeated);
            }
        }

        public static void TextCrossesBothWays()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            {
                foreach (string text in new[] { "", "plain", "żółć ñ 漢字", "😀👩‍🚀 and 𝔘𝔫𝔦", "a\0b", "\u0001\"\\\n\u2028" })
                {
                    int[] tokens = model.Tokenize(text, TextFlags.None);
                    Check.Equal(text, model.Detokenize(tokens));
                    Check.Same(Encoding.UTF8.GetBytes(text), model.DetokenizeBytes(tokens));
                }
                // Half of a pair is no text; a token that is part of a character is not either.
                Check.Same(model.Tokenize("x\uFFFDy"), model.Tokenize("x\uD83Dy"));
                int[] face = model.Tokenize("😀", TextFlags.None);
                Check.True(face.Length > 1);
                Check.Contains("\uFFFD", model.Detokenize(new[] { face[0] }));
                Check.True(model.Tokenize("hi")[0] == model.Info.BosToken);
                Check.True(model.Tokenize("hi", TextFlags.None)[0] != model.Info.BosToken);
                Check.Equal("hi", model.Detokenize(model.Tokenize("hi"), TextFlags.SkipSpecial));
                Check.Throws<InlayArgumentException>(() => model.Detokenize(new[] { 1 << 20 }));
                // The model says after us what no Latin alphabet has.
                using (var chat = new Chat(model.CreateSession()))
                {
                    chat.Say("Echo: 😀𝔘");
                    Check.Contains("😀𝔘", model.Detokenize(chat.Session.GetTokens()));
                }
                // Forced to say it, in tokens that cut characters: the bytes are those of the tokens all the same.
                const string forced = "😀𝔘漢";
                Session session = model.CreateSession();
                var bytes = new List<byte>();
                foreach (int token in model.Tokenize(forced, TextFlags.None))
                {
                    var options = new GenerateOptions { MaxTokens = 1, IgnoreEos = true };
                    options.LogitBias[token] = 1e9f;
                    Prompt prompt = session.Info.Tokens > 0 ? Prompt.Empty : Prompt.FromTokens(new[] { model.Info.BosToken.Value });
                    foreach (TokenEvent next in session.Stream(prompt, options))
                    {
                        Check.True(next.Tokens.All(each => each == token));
                        bytes.AddRange(next.Bytes);
                    }
                }
                Check.Same(Encoding.UTF8.GetBytes(forced), bytes);
                Check.Equal(forced, model.Detokenize(session.GetTokens(), TextFlags.SkipSpecial));
            }
        }

        public static void Templates()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model, new ModelOptions { VocabularyOnly = true }))
            {
                string text = model.RenderChat("{\"messages\":[{\"role\":\"user\",\"content\":\"hé 😀\"}],\"add_generation_prompt\":true}");
                Check.Contains("<|user|>hé 😀<|end|><|assistant|>", text);
                using (Model whole = engine.LoadModel(Env.Model))
                using (Session session = whole.CreateSession())
                {
                    ChatMessage[] begun = { ChatMessage.User("946 - 73"), ChatMessage.Assistant("87") };
                    session.Generate(Prompt.FromChat(begun, true), new GenerateOptions { MaxTokens = 1 });
                    Check.Contains("946 - 73<|end|><|assistant|>87", whole.Detokenize(session.GetTokens()));
                    // What programs compiled before the second parameter call; one with a default is no such method.
                    Check.True(typeof(Prompt).GetMethod("FromChat", new[] { typeof(IEnumerable<ChatMessage>) }) != null);
                }
                Check.Equal("hi 7", Model.RenderTemplate("{\"template\":\"hi {{ n }}\",\"n\":7,\"messages\":[]}"));
                Check.Throws<InlayException>(() => model.RenderChat("no json"));
                Check.Throws<InlayException>(() => model.CreateSession());
            }
        }
    }
}
