using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using Inlay.Native;
using static Inlay.Native.InlayNative;

namespace Inlay
{
    /// <summary>What a request produced: a <see cref="TokenEvent"/>, <see cref="LogitsEvent"/>, <see cref="ScoresEvent"/>,
    /// <see cref="EmbeddingEvent"/>, <see cref="ClassificationEvent"/> or, last of all, a <see cref="FinishedEvent"/>. Events are copies, and immutable by convention.</summary>
    public abstract class RequestEvent
    {
        internal RequestEvent() { }
    }

    /// <summary>A token and the natural logarithm of its probability, of the model's own distribution (before bias, penalties and
    /// temperature).</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct TokenLogprob
    {
        private int token;
        private float logprob;

        /// <summary>The token.</summary>
        public int Token { get { return token; } }
        /// <summary>Its log-probability.</summary>
        public float Logprob { get { return logprob; } }

        internal TokenLogprob(int token, float logprob)
        {
            this.token = token;
            this.logprob = logprob;
        }
    }

    /// <summary>The log-probability of a token that was chosen, and those of the likeliest ones.</summary>
    public sealed class ChoiceLogprobs
    {
        internal ChoiceLogprobs(TokenLogprob chosen, TokenLogprob[] likeliest)
        {
            Chosen = chosen;
            Likeliest = likeliest;
        }

        /// <summary>The token that was chosen.</summary>
        public TokenLogprob Chosen { get; private set; }
        /// <summary>As many as <see cref="GenerateOptions.LogprobCount"/> asks for, the likeliest first.</summary>
        public IReadOnlyList<TokenLogprob> Likeliest { get; private set; }
    }

    /// <summary>Tokens of one or several steps, and their text.</summary>
    public sealed class TokenEvent : RequestEvent
    {
        internal TokenEvent(int[] tokens, string text, byte[] bytes, ChoiceLogprobs[] logprobs)
        {
            Tokens = tokens;
            Text = text;
            Bytes = bytes;
            Logprobs = logprobs;
        }

        /// <summary>The tokens.</summary>
        public int[] Tokens { get; private set; }
        /// <summary>The text that became certain: whole code points. It can lag behind the tokens, and either may be empty.</summary>
        public string Text { get; private set; }
        /// <summary>The raw bytes of the tokens.</summary>
        public byte[] Bytes { get; private set; }
        /// <summary>One for each token, when <see cref="GenerateOptions.LogprobCount"/> asks for them; empty otherwise.</summary>
        public IReadOnlyList<ChoiceLogprobs> Logprobs { get; private set; }
    }

    /// <summary>The logits of one position.</summary>
    public sealed class LogitsEvent : RequestEvent
    {
        internal LogitsEvent(long position, float[] logits)
        {
            Position = position;
            Logits = logits;
        }

        /// <summary>The position in the session's log.</summary>
        public long Position { get; private set; }
        /// <summary>One for each token of the vocabulary.</summary>
        public float[] Logits { get; private set; }
    }

    /// <summary>Log-probabilities of prompt tokens given those before them.</summary>
    public sealed class ScoresEvent : RequestEvent
    {
        internal ScoresEvent(long position, float[] scores)
        {
            Position = position;
            Scores = scores;
        }

        /// <summary>The position of the first.</summary>
        public long Position { get; private set; }
        /// <summary>Element i is of position + i.</summary>
        public float[] Scores { get; private set; }
    }

    /// <summary>Of each label, in the order of the model's config.json, what <see cref="GenerateOptions.Classification"/> asked for.</summary>
    public sealed class ClassificationEvent : RequestEvent
    {
        internal ClassificationEvent(float[] logits, float[] scores)
        {
            Logits = logits;
            Scores = scores;
        }

        /// <summary>The head's logits.</summary>
        public float[] Logits { get; private set; }
        /// <summary>What the mode makes of them.</summary>
        public float[] Scores { get; private set; }
    }

    /// <summary>The vector of the whole log that <see cref="GenerateOptions.Embedding"/> asked for.</summary>
    public sealed class EmbeddingEvent : RequestEvent
    {
        internal EmbeddingEvent(float[] vector) { Vector = vector; }

        /// <summary>As long as <see cref="ModelInfo.HiddenSize"/>, or what the last Dense module of the model's files gives.</summary>
        public float[] Vector { get; private set; }
    }

    /// <summary>Why a generation ended.</summary>
    public enum FinishReason
    {
        /// <summary>An end-of-sequence token, stop token or stop string.</summary>
        Stop = INLAY_FINISH_STOP,
        /// <summary>As many tokens as asked for, or the context is full.</summary>
        Length = INLAY_FINISH_LENGTH,
        /// <summary>It was cancelled.</summary>
        Cancelled = INLAY_FINISH_CANCELLED,
        /// <summary>It failed.</summary>
        Error = INLAY_FINISH_ERROR
    }

    /// <summary>The last event of every request.</summary>
    public sealed class FinishedEvent : RequestEvent
    {
        internal FinishedEvent(inlay_event_info native)
        {
            Reason = (FinishReason)native.finish_reason;
            Code = (ErrorCode)native.status;
            Message = Utf8.Copy(native.message);
            if (native.stop_token >= 0) StopToken = native.stop_token;
            if (native.stop_string >= 0) StopString = native.stop_string;
            PromptTokens = Numbers.Long(native.prompt_tokens);
            CachedTokens = Numbers.Long(native.cached_tokens);
            GeneratedTokens = Numbers.Long(native.generated_tokens);
            QueueTime = Numbers.Time(native.queue_us);
            if (native.first_token_us > 0) TimeToFirstToken = Numbers.Time(native.first_token_us);
            TotalTime = Numbers.Time(native.total_us);
        }

        /// <summary>Why it ended.</summary>
        public FinishReason Reason { get; private set; }
        /// <summary><see cref="ErrorCode.Ok"/>, <see cref="ErrorCode.Cancelled"/>, or why it failed.</summary>
        public ErrorCode Code { get; private set; }
        /// <summary>What there is to say about that; may be empty.</summary>
        public string Message { get; private set; }
        /// <summary>The token it stopped at, if it was one.</summary>
        public int? StopToken { get; private set; }
        /// <summary>The index of the stop string it stopped at, if it was one.</summary>
        public int? StopString { get; private set; }
        /// <summary>Tokens of the request's input and the log before it.</summary>
        public long PromptTokens { get; private set; }
        /// <summary>Of these, tokens that were not computed again.</summary>
        public long CachedTokens { get; private set; }
        /// <summary>Tokens chosen, a stop token included.</summary>
        public long GeneratedTokens { get; private set; }
        /// <summary>From submit to the first step.</summary>
        public TimeSpan QueueTime { get; private set; }
        /// <summary>From submit to the first token; null when there was none.</summary>
        public TimeSpan? TimeToFirstToken { get; private set; }
        /// <summary>From submit to the end.</summary>
        public TimeSpan TotalTime { get; private set; }
    }
}

namespace Inlay.Native
{
    // Makes an event of the library's a managed one.
    internal sealed class EventReader
    {
        // One for each thread that reads: new ones for each token would be what costs most.
        [ThreadStatic]
        private static EventReader reader;

        private static readonly ChoiceLogprobs[] noLogprobs = new ChoiceLogprobs[0];

        // What read_event() of typemaps.i writes.
        [StructLayout(LayoutKind.Sequential)]
        private struct View
        {
            internal long Kind, UserData, Tokens, NumTokens, Text, TextBytes, Bytes, NumBytes, Logprobs, NumLogprobs, TopLogprobs;
        }

        private readonly inlay_event_info info = new inlay_event_info();
        private readonly View[] view = new View[1];
        private readonly IntPtr viewAddress;
        private readonly GCHandle pin;

        private EventReader()
        {
            pin = GCHandle.Alloc(view, GCHandleType.Pinned);
            viewAddress = pin.AddrOfPinnedObject();
        }

        ~EventReader() { pin.Free(); }

        // Releases `taken`. Null: of a kind that came after this assembly.
        internal static RequestEvent Take(IntPtr taken, out IntPtr id)
        {
            try
            {
                if (reader == null) reader = new EventReader();
                return reader.Read(taken, out id);
            }
            finally
            {
                inlay_event_release(taken);
            }
        }

        private RequestEvent Read(IntPtr taken, out IntPtr id)
        {
            Errors.Check(read_event(taken, info, viewAddress, out IntPtr error), error);
            id = new IntPtr(view[0].UserData);
            switch (view[0].Kind)
            {
                case INLAY_EVENT_TOKENS: return Tokens(ref view[0]);
                case INLAY_EVENT_LOGITS: return new LogitsEvent(info.position, Values.Floats(info.logits, info.num_logits));
                case INLAY_EVENT_SCORES: return new ScoresEvent(info.position, Values.Floats(info.scores, info.num_scores));
                case INLAY_EVENT_EMBEDDING: return new EmbeddingEvent(Values.Floats(info.embedding, info.num_embedding));
                case INLAY_EVENT_CLASSIFICATION:
                    return new ClassificationEvent(Values.Floats(info.logits, info.num_logits), Values.Floats(info.scores, info.num_scores));
                case INLAY_EVENT_FINISHED: return new FinishedEvent(info);
                default: return null;
            }
        }

        private static TokenEvent Tokens(ref View view)
        {
            return new TokenEvent(Values.Ints(new IntPtr(view.Tokens), (ulong)view.NumTokens),
                                  Utf8.Copy(new IntPtr(view.Text), (ulong)view.TextBytes),
                                  Values.Bytes(new IntPtr(view.Bytes), (ulong)view.NumBytes),
                                  view.NumLogprobs == 0 ? noLogprobs : Logprobs(ref view));
        }

        private static ChoiceLogprobs[] Logprobs(ref View view)
        {
            int each = checked((int)view.TopLogprobs + 1), size = Marshal.SizeOf(typeof(TokenLogprob));
            var at = new IntPtr(view.Logprobs);
            var choices = new ChoiceLogprobs[checked((int)view.NumLogprobs / each)];
            for (int i = 0; i < choices.Length; ++i)
            {
                var all = new TokenLogprob[each];
                for (int j = 0; j < each; ++j, at += size) all[j] = (TokenLogprob)Marshal.PtrToStructure(at, typeof(TokenLogprob));
                var likeliest = new TokenLogprob[each - 1];
                Array.Copy(all, 1, likeliest, 0, likeliest.Length);
                choices[i] = new ChoiceLogprobs(all[0], likeliest);
            }
            return choices;
        }
    }
}
