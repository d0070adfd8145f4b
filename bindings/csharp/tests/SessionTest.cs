using System;
using System.IO;
using System.Linq;

namespace Inlay.Tests
{
    public static class SessionTest
    {
        private static readonly GenerateOptions ten = new GenerateOptions { MaxTokens = 10, IgnoreEos = true };

        public static void ForkAndRewind()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            using (Session session = model.CreateSession())
            {
                session.Generate("A dog and a cat", ten);
                int[] log = session.GetTokens();
                Check.Equal(session.Info.Tokens, (long)log.Length);
                using (Session fork = session.Fork())
                {
                    Check.Same(log, fork.GetTokens());
                    Completion completion = fork.Generate(" met a fox", ten);
                    Check.True(completion.Finished.CachedTokens >= log.Length - 16);
                    Check.Same(completion.Tokens, session.Generate(" met a fox", ten).Tokens);
                    session.Rewind(log.Length);
                    Check.Same(log, session.GetTokens());
                    Check.True(fork.Info.Tokens > log.Length);
                }
                Check.Throws<InlayArgumentException>(() => session.Rewind(log.Length + 1));
                Check.Throws<ArgumentOutOfRangeException>(() => session.Rewind(-1));
                session.Generate("All new", new GenerateOptions { MaxTokens = 0, InputMode = InputMode.Replace });
                Check.Same(model.Tokenize("All new"), session.GetTokens());
            }
        }

        public static void BusySessionsRefuse()
        {
            using (Engine engine = Env.NewEngine(Drive.Host))
            using (Model model = engine.LoadModel(Env.Model))
            using (Session session = model.CreateSession())
            using (Request request = session.Submit("A dog", ten))
            {
                Check.True(session.Info.Busy);
                Check.Throws<InlayStateException>(() => session.Submit("x"));
                Check.Throws<InlayStateException>(() => session.Fork());
                Check.Throws<InlayStateException>(() => session.Rewind(0));
                Check.Throws<InlayStateException>(() => session.Save());
                Check.Equal("INLAY_INVALID_STATE", Check.Throws<InlayException>(() => session.Save()).Name);
            }
        }

        public static void Quotes()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            using (Session session = model.CreateSession())
            {
                Quote quote = session.GetQuote("A dog", ten, true);
                Check.True(quote.Fits && quote.FitsNow && quote.Reserved);
                Check.Equal((long)model.Tokenize("A dog").Length, quote.PromptTokens);
                Check.True(quote.KvBytes >= quote.PromptTokens * model.Info.KvBytesPerToken);
                Check.Equal(10, session.Generate("A dog", ten).Tokens.Length);
                Check.True(session.GetQuote(" more", ten).CachedTokens > 0);
            }
        }

        public static void SnapshotsGoOnExactly()
        {
            string path = Env.TempFile();
            try
            {
                var options = new GenerateOptions { MaxTokens = 12, Temperature = 1, Seed = 5, IgnoreEos = true };
                byte[] bytes;
                int[] rest;
                using (Engine engine = Env.NewEngine())
                using (Model model = engine.LoadModel(Env.Model))
                using (Session session = model.CreateSession())
                {
                    session.Generate("A dog", options);
                    session.Save(path);
                    bytes = session.Save();
                    rest = session.Generate(Prompt.Empty, Resumed(options)).Tokens;
                }
                using (Engine engine = Env.NewEngine())
                using (Model model = engine.LoadModel(Env.Model))
                {
                    using (Session session = model.Restore(path, out RestoreInfo info))
                    {
                        Check.True(info.RestoredTokens > 0 && info.RestoredTokens <= info.Tokens);
                        Check.Same(rest, session.Generate(Prompt.Empty, Resumed(options)).Tokens);
                    }
                    using (Session session = model.Restore(bytes)) Check.Same(rest, session.Generate(Prompt.Empty, Resumed(options)).Tokens);
                }
                using (Engine engine = Env.NewEngine())
                using (Model model = engine.LoadModel(Env.Model))
                {
                    // Damaged KV is computed again, and the note says so.
                    byte[] damaged = (byte[])bytes.Clone();
                    damaged[damaged.Length / 2] ^= 1;
                    using (Session session = model.Restore(damaged, out RestoreInfo info))
                    {
                        Check.True(info.RestoredTokens < info.Tokens && info.Note.Length > 0);
                        Check.Same(rest, session.Generate(Prompt.Empty, Resumed(options)).Tokens);
                    }
                    Check.Throws<InlayException>(() => model.Restore(new byte[0]));
                    Check.Throws<InlayException>(() => model.Restore(bytes.Take(40).ToArray()));
                    Check.Throws<InlayNotFoundException>(() => model.Restore(path + ".none"));
                    using (Session session = model.CreateSession()) Check.Throws<InlayException>(() => session.Save("/proc/none/x"));
                }
            }
            finally
            {
                File.Delete(path);
            }
        }

        private static GenerateOptions Resumed(GenerateOptions options)
        {
            return new GenerateOptions { MaxTokens = options.MaxTokens, Temperature = 1, Seed = options.Seed, IgnoreEos = true, Resume = true };
        }

        public static void NamedPrefixes()
        {
            using (Engine engine = Env.NewEngine())
            using (Model model = engine.LoadModel(Env.Model))
            {
                string world = string.Concat(Enumerable.Repeat("The village lies by a river. ", 12));
                int[] tokens = model.Tokenize(world);
                using (Prefix prefix = model.CreatePrefix("world", world))
                {
                    Check.Soon(() => prefix.Info.CachedTokens >= tokens.Length - 16, "the prefix is computed");
                    Check.Equal((long)tokens.Length, prefix.Info.Tokens);
                    Check.True(prefix.Info.Pinned && prefix.Info.KvBytes > 0);
                    Check.Throws<InlayStateException>(() => model.CreatePrefix("world", "x"));
                    using (Prefix found = model.FindPrefix("world"))
                    using (Session session = found.Open())
                    {
                        Check.Same(tokens, session.GetTokens());
                        Completion completion = session.Generate("A fox", ten);
                        Check.True(completion.Finished.CachedTokens >= tokens.Length - 16);
                        Prompt whole = Prompt.FromTokens(tokens.Concat(model.Tokenize("A fox", TextFlags.None)));
                        Check.Same(model.CreateSession().Generate(whole, ten).Tokens, completion.Tokens);
                    }
                    prefix.Pin(false);
                    Check.True(!prefix.Info.Pinned);
                    Check.Throws<InlayResourceException>(() => model.CreatePrefix("small", world, true, 16));
                }
                Check.Throws<InlayNotFoundException>(() => model.FindPrefix("world"));
                using (Prefix chat = model.CreatePrefix("chat", Prompt.FromChat(new[] { ChatMessage.System("You are Mira.") }), false))
                    Check.Contains("You are Mira.", model.Detokenize(chat.Open().GetTokens()));
            }
        }
    }
}
