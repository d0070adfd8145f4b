using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;
using Inlay.Native;
using static Inlay.Native.InlayNative;

namespace Inlay
{
    /// <summary>What a request would need if it were submitted now.</summary>
    public sealed class Quote
    {
        internal Quote(inlay_quote native)
        {
            Fits = native.fits != 0;
            FitsNow = native.fits_now != 0;
            Reserved = native.reserved != 0;
            PromptTokens = Numbers.Long(native.prompt_tokens);
            CachedTokens = Numbers.Long(native.cached_tokens);
            KvBytes = Numbers.Long(native.kv_bytes);
            NewKvBytes = Numbers.Long(native.new_kv_bytes);
            TimeToFirstToken = Numbers.Time(native.first_token_us);
        }

        /// <summary>Its KV fits the cache if nothing else were there.</summary>
        public bool Fits { get; private set; }
        /// <summary>Also beside what runs now.</summary>
        public bool FitsNow { get; private set; }
        /// <summary>Blocks for all of it were set aside.</summary>
        public bool Reserved { get; private set; }
        /// <summary>Tokens of the input and the log before it.</summary>
        public long PromptTokens { get; private set; }
        /// <summary>Of these, not to be computed again.</summary>
        public long CachedTokens { get; private set; }
        /// <summary>Bytes of KV that it comes to hold at its longest.</summary>
        public long KvBytes { get; private set; }
        /// <summary>Of these, not shared with what is cached.</summary>
        public long NewKvBytes { get; private set; }
        /// <summary>An estimate, behind what is queued now, from the times of past steps.</summary>
        public TimeSpan TimeToFirstToken { get; private set; }
    }

    /// <summary>How a session stands.</summary>
    public struct SessionInfo
    {
        internal SessionInfo(inlay_session_info native)
        {
            Busy = native.busy != 0;
            Tokens = Numbers.Long(native.num_tokens);
            CachedTokens = Numbers.Long(native.num_cached);
        }

        /// <summary>A request runs.</summary>
        public bool Busy { get; }
        /// <summary>Tokens in the log.</summary>
        public long Tokens { get; }
        /// <summary>Of these, tokens whose KV is in memory.</summary>
        public long CachedTokens { get; }
    }

    /// <summary>What came back from a snapshot.</summary>
    public sealed class RestoreInfo
    {
        internal RestoreInfo(inlay_restore_info native)
        {
            Tokens = Numbers.Long(native.num_tokens);
            RestoredTokens = Numbers.Long(native.num_restored);
            Note = Utf8.Copy(native.note);
        }

        /// <summary>Tokens in the log.</summary>
        public long Tokens { get; private set; }
        /// <summary>Of these, tokens whose KV is there again; the others are computed again.</summary>
        public long RestoredTokens { get; private set; }
        /// <summary>Why not all; empty otherwise.</summary>
        public string Note { get; private set; }
    }

    /// <summary>A token log and its KV cache; it grows by requests, one at a time, and can be forked, rewound and saved. Thread-safe.
    /// Disposing or dropping it cancels its request, if one runs.</summary>
    public sealed partial class Session : IDisposable
    {
        internal Session(Model model, SessionHandle handle)
        {
            Model = model;
            Handle = handle;
        }

        internal SessionHandle Handle { get; private set; }

        /// <summary>The model it runs on.</summary>
        public Model Model { get; private set; }

        /// <summary>How it stands.</summary>
        public SessionInfo Info
        {
            get
            {
                using (var native = new inlay_session_info())
                {
                    Errors.Check(inlay_session_get_info(Handle, native, out IntPtr error), error);
                    return new SessionInfo(native);
                }
            }
        }

        /// <summary>Cancels its request, if one runs, and gives the session back.</summary>
        public void Dispose() { Handle.Dispose(); }

        /// <summary>Starts a generation. The prompt and every generated token are added to the log; on failure it is unchanged.</summary>
        /// <param name="prompt">A text, tokens or a conversation.</param>
        /// <param name="options">Null: greedy, until a stop.</param>
        /// <exception cref="InlayStateException">A request runs in the session.</exception>
        /// <exception cref="InlayResourceException">It could never fit the KV cache, or the queue is full.</exception>
        /// <exception cref="InlayArgumentException">The message names the option.</exception>
        public Request Submit(Prompt prompt, GenerateOptions options = null)
        {
            using (var native = new inlay_request_options())
            using (var pins = new Pins())
            {
                Write(native, pins, prompt, options);
                return Request.Submit(this, native);
            }
        }

        /// <summary>Generates, and waits for the end; a host-driven engine is stepped meanwhile.</summary>
        /// <exception cref="OperationCanceledException">It was cancelled; what came before is in the log.</exception>
        /// <exception cref="InlayException">It failed; as <see cref="Submit"/>, and <see cref="InlayTimeoutException"/> past its deadline.</exception>
        public Completion Generate(Prompt prompt, GenerateOptions options = null,
                                   CancellationToken cancellation = default(CancellationToken))
        {
            cancellation.ThrowIfCancellationRequested();
            using (Request request = Submit(prompt, options))
            using (cancellation.Register(request.CancelQuietly))
            {
                var builder = new Completion.Builder();
                foreach (RequestEvent next in request) builder.Add(next);
                request.ThrowUnlessDone(cancellation);
                return builder.Build();
            }
        }

        /// <summary>Generates, and blocks no thread. A host-driven engine must be stepped by someone.</summary>
        /// <exception cref="OperationCanceledException">It was cancelled; what came before is in the log.</exception>
        /// <exception cref="InlayException">As <see cref="Generate"/>.</exception>
        public async Task<Completion> GenerateAsync(Prompt prompt, GenerateOptions options = null,
                                                    CancellationToken cancellation = default(CancellationToken))
        {
            cancellation.ThrowIfCancellationRequested();
            using (Request request = Submit(prompt, options))
            using (cancellation.Register(request.CancelQuietly))
            {
                await request.WhenFinished().ConfigureAwait(false);
                var builder = new Completion.Builder();
                while (request.TryNext(out RequestEvent next)) builder.Add(next);
                request.ThrowUnlessDone(cancellation);
                return builder.Build();
            }
        }

        /// <summary>Generates when enumerated, token by token; each enumeration is a generation of its own. Leaving it early cancels that. A
        /// host-driven engine is stepped meanwhile.</summary>
        /// <exception cref="OperationCanceledException">It was cancelled; what came before is in the log.</exception>
        /// <exception cref="InlayException">As <see cref="Generate"/>.</exception>
        public IEnumerable<TokenEvent> Stream(Prompt prompt, GenerateOptions options = null,
                                              CancellationToken cancellation = default(CancellationToken))
        {
            cancellation.ThrowIfCancellationRequested();
            using (Request request = Submit(prompt, options))
            using (cancellation.Register(request.CancelQuietly))
            {
                foreach (RequestEvent next in request)
                {
                    if (next is TokenEvent tokens) yield return tokens;
                }
                request.ThrowUnlessDone(cancellation);
            }
        }

        /// <summary>What a request would need if it were submitted now.</summary>
        /// <param name="prompt">As for <see cref="Submit"/>.</param>
        /// <param name="options">As for <see cref="Submit"/>.</param>
        /// <param name="reserve">Blocks for all of it are set aside until the session's next request or quote.</param>
        /// <exception cref="InlayResourceException">To be reserved, and they are not to be had.</exception>
        public Quote GetQuote(Prompt prompt, GenerateOptions options = null, bool reserve = false)
        {
            using (var native = new inlay_request_options())
            using (var quote = new inlay_quote())
            using (var pins = new Pins())
            {
                Write(native, pins, prompt, options);
                Errors.Check(inlay_request_quote(Handle, native, reserve ? 1 : 0, quote, out IntPtr error), error);
                return new Quote(quote);
            }
        }

        /// <summary>A new session with the same log; KV is shared, and copied only where the two come to differ.</summary>
        /// <exception cref="InlayStateException">A request runs.</exception>
        public Session Fork()
        {
            Errors.Check(inlay_session_fork(Handle, out SessionHandle fork, out IntPtr error), error);
            return new Session(Model, fork);
        }

        /// <summary>Cuts the log back to its first tokens.</summary>
        /// <exception cref="InlayStateException">A request runs.</exception>
        /// <exception cref="InlayArgumentException">The log is shorter.</exception>
        public void Rewind(long tokens)
        {
            Errors.Check(inlay_session_rewind(Handle, Numbers.ULong(tokens, nameof(tokens)), out IntPtr error), error);
        }

        /// <summary>The log.</summary>
        public int[] GetTokens()
        {
            var tokens = new int[checked((int)Info.Tokens)];
            while (true)
            {
                ulong count;
                using (var pins = new Pins())
                {
                    Errors.Check(inlay_session_tokens(Handle, pins.Array(tokens), (ulong)tokens.Length, out count, out IntPtr error), error);
                }
                // It may have grown since.
                bool all = count <= (ulong)tokens.Length;
                Array.Resize(ref tokens, checked((int)count));
                if (all) return tokens;
            }
        }

        /// <summary>Writes the log, its KV and where random draws stand to a file, which is replaced as a whole or not at all.
        /// <see cref="Model.Restore(string)"/> brings it back.</summary>
        /// <exception cref="InlayStateException">A request runs: cancel it, save, and go on later with <see cref="GenerateOptions.Resume"/>.</exception>
        /// <exception cref="InlayIOException">The system refused.</exception>
        public void Save(string path)
        {
            if (path == null) throw new ArgumentNullException(nameof(path));
            using (var pins = new Pins())
            {
                Errors.Check(inlay_session_save(Handle, pins.CString(path, nameof(path)), out IntPtr error), error);
            }
        }

        /// <summary>The same as bytes.</summary>
        public byte[] Save()
        {
            Errors.Check(inlay_session_save_buffer(Handle, out IntPtr buffer, out IntPtr error), error);
            return Buffers.TakeBytes(buffer);
        }

        private static void Write(inlay_request_options native, Pins pins, Prompt prompt, GenerateOptions options)
        {
            if (prompt == null) throw new ArgumentNullException(nameof(prompt));
            (options ?? new GenerateOptions()).Write(native, pins);
            prompt.Write(native, pins);
        }
    }
}
