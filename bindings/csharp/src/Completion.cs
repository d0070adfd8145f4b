using System.Collections.Generic;
using System.Text;

namespace Inlay
{
    /// <summary>What a generation came to. Immutable by convention.</summary>
    public sealed class Completion
    {
        private Completion() { }

        /// <summary>The text, without stop tokens and stop strings.</summary>
        public string Text { get; private set; }
        /// <summary>The tokens of that text.</summary>
        public int[] Tokens { get; private set; }
        /// <summary>One for each token, when asked for.</summary>
        public IReadOnlyList<ChoiceLogprobs> Logprobs { get; private set; }
        /// <summary>Logits, when asked for.</summary>
        public IReadOnlyList<LogitsEvent> Logits { get; private set; }
        /// <summary>Scores of the prompt, when asked for.</summary>
        public IReadOnlyList<ScoresEvent> Scores { get; private set; }
        /// <summary>The vector, when asked for; null otherwise.</summary>
        public float[] Embedding { get; private set; }
        /// <summary>Logits and scores of labels, when asked for; null otherwise.</summary>
        public ClassificationEvent Classification { get; private set; }
        /// <summary>Why it ended (stop or length), counts and times.</summary>
        public FinishedEvent Finished { get; private set; }

        /// <summary>The text.</summary>
        public override string ToString() { return Text; }

        // Collects a request's events.
        internal sealed class Builder
        {
            private readonly StringBuilder text = new StringBuilder();
            private readonly List<int> tokens = new List<int>();
            private readonly List<ChoiceLogprobs> logprobs = new List<ChoiceLogprobs>();
            private readonly List<LogitsEvent> logits = new List<LogitsEvent>();
            private readonly List<ScoresEvent> scores = new List<ScoresEvent>();
            private float[] embedding;
            private ClassificationEvent classification;
            private FinishedEvent finished;

            internal void Add(RequestEvent next)
            {
                if (next is TokenEvent token)
                {
                    text.Append(token.Text);
                    tokens.AddRange(token.Tokens);
                    logprobs.AddRange(token.Logprobs);
                }
                else if (next is LogitsEvent one)
                {
                    logits.Add(one);
                }
                else if (next is ScoresEvent several)
                {
                    scores.Add(several);
                }
                else if (next is EmbeddingEvent vector)
                {
                    embedding = vector.Vector;
                }
                else if (next is ClassificationEvent labels)
                {
                    classification = labels;
                }
                else
                {
                    finished = (FinishedEvent)next;
                }
            }

            internal Completion Build()
            {
                return new Completion
                {
                    Text = text.ToString(),
                    Tokens = tokens.ToArray(),
                    Logprobs = logprobs,
                    Logits = logits,
                    Scores = scores,
                    Embedding = embedding,
                    Classification = classification,
                    Finished = finished
                };
            }
        }
    }
}
