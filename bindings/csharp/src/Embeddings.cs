using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;

namespace Inlay
{
    /// <summary>How <see cref="Model.Embed(IReadOnlyList{string}, EmbeddingOptions, CancellationToken)"/> makes vectors. Read during the call
    /// that it is given to. Not thread-safe while it is changed.</summary>
    public sealed class EmbeddingOptions
    {
        /// <summary>Default <see cref="EmbeddingMode.Default"/>; not <see cref="EmbeddingMode.None"/>.</summary>
        public EmbeddingMode Mode { get; set; } = EmbeddingMode.Default;
        /// <summary>To length 1; <see cref="EmbeddingMode.Default"/> does what the model's files say.</summary>
        public bool Normalise { get; set; }
        /// <summary>Higher runs first; default 0.</summary>
        public int Priority { get; set; }
        /// <summary>As <see cref="GenerateOptions.ShareKey"/>.</summary>
        public ulong ShareKey { get; set; }
    }

    public sealed partial class Model
    {
        /// <summary>A vector for each text, in their order, each what it would be alone; they are computed side by side, in sessions of their
        /// own. The first failure ends all of it. A host-driven engine is stepped meanwhile.</summary>
        /// <exception cref="OperationCanceledException">It was cancelled.</exception>
        /// <exception cref="InlayArgumentException">The message names the option, or what is wrong with a text.</exception>
        public float[][] Embed(IReadOnlyList<string> texts, EmbeddingOptions options = null,
                               CancellationToken cancellation = default(CancellationToken))
        {
            return Embed(Prompts(texts), options, cancellation);
        }

        /// <summary>The same of prompts: models without a tokenizer need tokens.</summary>
        /// <exception cref="OperationCanceledException">It was cancelled.</exception>
        /// <exception cref="InlayException">As for texts.</exception>
        public float[][] Embed(IReadOnlyList<Prompt> prompts, EmbeddingOptions options = null,
                               CancellationToken cancellation = default(CancellationToken))
        {
            return Vectors(new EmbeddingWindow(this, prompts, options, cancellation), cancellation);
        }

        /// <summary>The scores of the model's labels for each prompt (a text, <see cref="Prompt.FromPair"/>), in the way of
        /// <see cref="Embed(IReadOnlyList{Prompt}, EmbeddingOptions, CancellationToken)"/>.</summary>
        /// <exception cref="OperationCanceledException">It was cancelled.</exception>
        /// <exception cref="InlayException">As for embeddings; the model has no labels.</exception>
        public float[][] Classify(IReadOnlyList<Prompt> prompts, ClassificationMode mode = ClassificationMode.Default,
                                  CancellationToken cancellation = default(CancellationToken))
        {
            if (mode == ClassificationMode.None) throw new ArgumentException("The mode must not be None.", nameof(mode));
            return Vectors(new EmbeddingWindow(this, prompts, new GenerateOptions { Classification = mode }, cancellation), cancellation);
        }

        /// <summary>The same of pairs: a text with each of others, as a cross-encoder scores a query's documents.</summary>
        /// <exception cref="OperationCanceledException">It was cancelled.</exception>
        /// <exception cref="InlayException">As for prompts.</exception>
        public float[][] ClassifyPairs(string text, IReadOnlyList<string> others, ClassificationMode mode = ClassificationMode.Default,
                                       CancellationToken cancellation = default(CancellationToken))
        {
            if (others == null) throw new ArgumentNullException(nameof(others));
            return Classify(others.Select(each => Prompt.FromPair(text, each)).ToList(), mode, cancellation);
        }

        private static float[][] Vectors(EmbeddingWindow all, CancellationToken cancellation)
        {
            using (EmbeddingWindow window = all)
            {
                for (Request oldest = window.Fill(); oldest != null; oldest = window.Fill())
                {
                    using (cancellation.Register(oldest.CancelQuietly))
                    {
                        foreach (RequestEvent next in oldest) window.Add(next);
                    }
                    window.Finish();
                }
                return window.Vectors;
            }
        }

        /// <summary>The same, and blocks no thread. A host-driven engine must be stepped by someone.</summary>
        /// <exception cref="OperationCanceledException">It was cancelled.</exception>
        /// <exception cref="InlayException">As <see cref="Embed(IReadOnlyList{string}, EmbeddingOptions, CancellationToken)"/>.</exception>
        public Task<float[][]> EmbedAsync(IReadOnlyList<string> texts, EmbeddingOptions options = null,
                                          CancellationToken cancellation = default(CancellationToken))
        {
            return EmbedAsync(Prompts(texts), options, cancellation);
        }

        /// <summary>The same of prompts.</summary>
        /// <exception cref="OperationCanceledException">It was cancelled.</exception>
        /// <exception cref="InlayException">As for texts.</exception>
        public async Task<float[][]> EmbedAsync(IReadOnlyList<Prompt> prompts, EmbeddingOptions options = null,
                                                CancellationToken cancellation = default(CancellationToken))
        {
            using (var window = new EmbeddingWindow(this, prompts, options, cancellation))
            {
                for (Request oldest = window.Fill(); oldest != null; oldest = window.Fill())
                {
                    using (cancellation.Register(oldest.CancelQuietly))
                    {
                        await oldest.WhenFinished().ConfigureAwait(false);
                        while (oldest.TryNext(out RequestEvent next)) window.Add(next);
                    }
                    window.Finish();
                }
                return window.Vectors;
            }
        }

        private static IReadOnlyList<Prompt> Prompts(IReadOnlyList<string> texts)
        {
            if (texts == null) throw new ArgumentNullException(nameof(texts));
            return texts.Select(each => Prompt.FromText(each)).ToList();
        }
    }

    // Requests that move over a list of prompts, many at a time. Not thread-safe.
    internal sealed class EmbeddingWindow : IDisposable
    {
        // Enough to fill any step, and few beside the engine's queue.
        private const int AtOnce = 512;

        private readonly Queue<Request> running = new Queue<Request>();
        private readonly Model model;
        private readonly IReadOnlyList<Prompt> prompts;
        private readonly GenerateOptions options;
        private readonly CancellationToken cancellation;
        private int submitted, finished;

        internal EmbeddingWindow(Model model, IReadOnlyList<Prompt> prompts, EmbeddingOptions options, CancellationToken cancellation)
            : this(model, prompts, ForEmbedding(options ?? new EmbeddingOptions()), cancellation)
        {
        }

        internal EmbeddingWindow(Model model, IReadOnlyList<Prompt> prompts, GenerateOptions options, CancellationToken cancellation)
        {
            this.model = model;
            this.prompts = prompts ?? throw new ArgumentNullException(nameof(prompts));
            this.cancellation = cancellation;
            this.options = options;
            Vectors = new float[prompts.Count][];
        }

        private static GenerateOptions ForEmbedding(EmbeddingOptions options)
        {
            if (options.Mode == EmbeddingMode.None) throw new ArgumentException("Mode must not be None.", nameof(options));
            return new GenerateOptions
            {
                Embedding = options.Mode,
                Normalise = options.Normalise,
                Priority = options.Priority,
                ShareKey = options.ShareKey
            };
        }

        internal float[][] Vectors { get; private set; }

        // Submits what there is room for. The oldest request, which is to be read and finished next; null when all are.
        internal Request Fill()
        {
            cancellation.ThrowIfCancellationRequested();
            while (submitted < Vectors.Length && running.Count < AtOnce)
            {
                Session session = model.CreateSession();
                try
                {
                    running.Enqueue(session.Submit(prompts[submitted], options));
                    ++submitted;
                }
                catch (InlayResourceException) when (running.Count > 0)
                {
                    // A full queue has room again when one of these has ended.
                    session.Dispose();
                    break;
                }
                catch
                {
                    session.Dispose();
                    throw;
                }
            }
            return running.Count > 0 ? running.Peek() : null;
        }

        internal void Add(RequestEvent next)
        {
            if (next is EmbeddingEvent embedding) Vectors[finished] = embedding.Vector;
            if (next is ClassificationEvent labels) Vectors[finished] = labels.Scores;
        }

        internal void Finish()
        {
            running.Peek().ThrowUnlessDone(cancellation);
            Close(running.Dequeue());
            ++finished;
        }

        public void Dispose()
        {
            while (running.Count > 0) Close(running.Dequeue());
        }

        private static void Close(Request request)
        {
            request.Dispose();
            request.Session.Dispose();
        }
    }
}
