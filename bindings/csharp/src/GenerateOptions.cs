using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.InteropServices;
using Inlay.Native;
using static Inlay.Native.InlayNative;

namespace Inlay
{
    /// <summary>Where a request's input goes.</summary>
    public enum InputMode
    {
        /// <summary>After the session's log.</summary>
        Append = INLAY_INPUT_APPEND,
        /// <summary>It is the whole new log; what it shares with the old one from the start stays cached.</summary>
        Replace = INLAY_INPUT_REPLACE
    }

    /// <summary>Which logits a request hands out.</summary>
    public enum LogitsMode
    {
        /// <summary>None.</summary>
        None = INLAY_LOGITS_NONE,
        /// <summary>Those the first token is chosen from.</summary>
        Last = INLAY_LOGITS_LAST,
        /// <summary>Of every prompt token that this request computes.</summary>
        All = INLAY_LOGITS_ALL,
        /// <summary>Of <see cref="GenerateOptions.LogitsPositions"/>.</summary>
        Positions = INLAY_LOGITS_POSITIONS,
        /// <summary>Of every choice: the last, and one for each further token.</summary>
        Generated = INLAY_LOGITS_GENERATED
    }

    /// <summary>How the last hidden states of a log's tokens become its vector.</summary>
    public enum EmbeddingMode
    {
        /// <summary>Not at all: the request generates.</summary>
        None = INLAY_EMBEDDING_NONE,
        /// <summary>As the model's files say; where they do not, <see cref="Mean"/> of an encoder and <see cref="Last"/> of others.</summary>
        Default = INLAY_EMBEDDING_DEFAULT,
        /// <summary>Their mean.</summary>
        Mean = INLAY_EMBEDDING_MEAN,
        /// <summary>The first token's.</summary>
        Cls = INLAY_EMBEDDING_CLS,
        /// <summary>The last token's.</summary>
        Last = INLAY_EMBEDDING_LAST
    }

    /// <summary>What the scores of a model's labels are, of their logits.</summary>
    public enum ClassificationMode
    {
        /// <summary>There are none: the request generates.</summary>
        None = INLAY_CLASSIFICATION_NONE,
        /// <summary>As the model's files say; where they do not, <see cref="Sigmoid"/> of a single label and <see cref="Logits"/> of several.</summary>
        Default = INLAY_CLASSIFICATION_DEFAULT,
        /// <summary>The logits.</summary>
        Logits = INLAY_CLASSIFICATION_LOGITS,
        /// <summary>Of each logit.</summary>
        Sigmoid = INLAY_CLASSIFICATION_SIGMOID,
        /// <summary>Over the labels.</summary>
        Softmax = INLAY_CLASSIFICATION_SOFTMAX
    }

    /// <summary>How to generate. Sampling happens in this order: bias, penalties, temperature, top-k, top-p, min-p. Read during the call that
    /// it is given to. Not thread-safe while it is changed.</summary>
    public sealed class GenerateOptions
    {
        /// <summary>Tokens to generate; null (default): until a stop or the end of the context; 0: only compute the prompt.</summary>
        public int? MaxTokens { get; set; }
        /// <summary>End-of-sequence tokens do not stop; default false.</summary>
        public bool IgnoreEos { get; set; }
        /// <summary>Tokens that stop like end-of-sequence.</summary>
        public List<int> StopTokens { get; } = new List<int>();
        /// <summary>Texts before which generation stops; at most 64 of at most 1024 bytes. No part of one is handed out.</summary>
        public List<string> StopStrings { get; } = new List<string>();
        /// <summary>0 (default): the likeliest token always.</summary>
        public float Temperature { get; set; }
        /// <summary>Choose among so many likeliest; 0 (default): off.</summary>
        public int TopK { get; set; }
        /// <summary>Choose among the likeliest that together have this probability; 1 (default): off.</summary>
        public float TopP { get; set; } = 1;
        /// <summary>Choose among those at least so likely, relative to the likeliest; 0 (default): off.</summary>
        public float MinP { get; set; }
        /// <summary>Over prompt and generated tokens; 1 (default): off.</summary>
        public float RepetitionPenalty { get; set; } = 1;
        /// <summary>Over generated tokens; 0 (default): off.</summary>
        public float FrequencyPenalty { get; set; }
        /// <summary>Over generated tokens; 0 (default): off.</summary>
        public float PresencePenalty { get; set; }
        /// <summary>The same seed, prompt and options give the same tokens.</summary>
        public ulong Seed { get; set; }
        /// <summary>Added to the logits of tokens; <see cref="float.NegativeInfinity"/> forbids one.</summary>
        public Dictionary<int, float> LogitBias { get; } = new Dictionary<int, float>();
        /// <summary>Log-probabilities: null (default): none; 0: of the chosen token; n: of the n likeliest too, at most 128.</summary>
        public int? LogprobCount { get; set; }
        /// <summary>Logits to hand out; default none.</summary>
        public LogitsMode Logits { get; set; }
        /// <summary>Positions in the session's log, for <see cref="LogitsMode.Positions"/>.</summary>
        public List<long> LogitsPositions { get; } = new List<long>();
        /// <summary>Hand out the log-probability of each prompt token given those before it; default false.</summary>
        public bool ScorePrompt { get; set; }
        /// <summary>One vector of the whole log, as <see cref="EmbeddingEvent"/>, instead of a generation; <see cref="MaxTokens"/>, logits,
        /// scores and <see cref="Resume"/> are not for it. Encoders can do nothing else. Default none.</summary>
        public EmbeddingMode Embedding { get; set; }
        /// <summary>The embedding is scaled to length 1; <see cref="EmbeddingMode.Default"/> does what the model's files say.</summary>
        public bool Normalise { get; set; }
        /// <summary>The scores of the labels of a model that has some, as <see cref="ClassificationEvent"/>, instead of a generation; what
        /// <see cref="Embedding"/> says of other options holds here. Default none.</summary>
        public ClassificationMode Classification { get; set; }
        /// <summary>Higher runs first; default 0.</summary>
        public int Priority { get; set; }
        /// <summary>From submit: earlier deadlines run first among equal priorities, and a request still there then ends with
        /// <see cref="InlayTimeoutException"/>; null (default): none.</summary>
        public TimeSpan? Deadline { get; set; }
        /// <summary>Requests of one key count against one share of the engine, such as a user's; 0 (default): the session's own.</summary>
        public ulong ShareKey { get; set; }
        /// <summary>The session's last generation goes on: random draws and the tokens that penalties count continue. The seed must be the
        /// same. Default false.</summary>
        public bool Resume { get; set; }
        /// <summary>Where the input goes; default after the log. A conversation always replaces it.</summary>
        public InputMode InputMode { get; set; } = InputMode.Append;

        [StructLayout(LayoutKind.Sequential)]
        private struct Bias
        {
            internal int Token;
            internal float Value;
        }

        internal void Write(inlay_request_options native, Pins pins)
        {
            native.input_mode = (int)InputMode;
            native.max_tokens = MaxTokens is int max ? (int)Numbers.UInt(max, nameof(MaxTokens)) : -1;
            native.ignore_eos = IgnoreEos ? 1 : 0;
            native.stop_tokens = pins.Array(StopTokens.ToArray());
            native.num_stop_tokens = (ulong)StopTokens.Count;
            native.stop_strings = pins.CStrings(StopStrings, nameof(StopStrings));
            native.num_stop_strings = (ulong)StopStrings.Count;
            native.temperature = Temperature;
            native.top_k = TopK;
            native.top_p = TopP;
            native.min_p = MinP;
            native.repetition_penalty = RepetitionPenalty;
            native.frequency_penalty = FrequencyPenalty;
            native.presence_penalty = PresencePenalty;
            native.seed = Seed;
            native.logit_bias = pins.Array(LogitBias.Select(each => new Bias { Token = each.Key, Value = each.Value }).ToArray());
            native.num_logit_bias = (ulong)LogitBias.Count;
            native.num_logprobs = LogprobCount is int count ? (int)Numbers.UInt(count, nameof(LogprobCount)) : -1;
            native.logits = (int)Logits;
            native.logits_positions = pins.Array(LogitsPositions.ToArray());
            native.num_logits_positions = (ulong)LogitsPositions.Count;
            native.score_prompt = ScorePrompt ? 1 : 0;
            native.embedding = (int)Embedding;
            native.classification = (int)Classification;
            native.normalise = Normalise ? 1u : 0;
            native.priority = Priority;
            native.deadline_us = Deadline is TimeSpan deadline ? Numbers.Microseconds(deadline, nameof(Deadline)) : 0;
            native.share_key = ShareKey;
            native.resume = Resume ? 1u : 0;
        }

        // The sampling settings of `native`.
        internal static GenerateOptions Read(inlay_request_options native)
        {
            return new GenerateOptions
            {
                MaxTokens = native.max_tokens >= 0 ? native.max_tokens : (int?)null,
                Temperature = native.temperature,
                TopK = native.top_k,
                TopP = native.top_p,
                MinP = native.min_p,
                RepetitionPenalty = native.repetition_penalty,
                FrequencyPenalty = native.frequency_penalty,
                PresencePenalty = native.presence_penalty
            };
        }
    }
}
