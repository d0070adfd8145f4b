// What needs IAsyncEnumerable. By hand and not as an async iterator, which mono's compiler does not know.
#if NET8_0_OR_GREATER
using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace Inlay
{
    public sealed partial class Session
    {
        /// <summary>Generates when enumerated, token by token, and blocks no thread; each enumeration is a generation of its own. Leaving it
        /// early cancels that. A host-driven engine must be stepped by someone.</summary>
        /// <param name="prompt">A text, tokens or a conversation.</param>
        /// <param name="options">Null: greedy, until a stop.</param>
        /// <param name="cancellation">Cancels every enumeration; <c>WithCancellation</c> cancels its own.</param>
        /// <exception cref="OperationCanceledException">It was cancelled; what came before is in the log.</exception>
        /// <exception cref="InlayException">As <see cref="Generate"/>.</exception>
        public IAsyncEnumerable<TokenEvent> StreamAsync(Prompt prompt, GenerateOptions options = null,
                                                        CancellationToken cancellation = default(CancellationToken))
        {
            return new TokenStream(this, prompt, options, cancellation);
        }

        private sealed class TokenStream : IAsyncEnumerable<TokenEvent>
        {
            private readonly Session session;
            private readonly Prompt prompt;
            private readonly GenerateOptions options;
            private readonly CancellationToken cancellation;

            internal TokenStream(Session session, Prompt prompt, GenerateOptions options, CancellationToken cancellation)
            {
                this.session = session;
                this.prompt = prompt;
                this.options = options;
                this.cancellation = cancellation;
            }

            public IAsyncEnumerator<TokenEvent> GetAsyncEnumerator(CancellationToken own = default(CancellationToken))
            {
                return new Enumerator(this, CancellationTokenSource.CreateLinkedTokenSource(cancellation, own));
            }

            private sealed class Enumerator : IAsyncEnumerator<TokenEvent>
            {
                private readonly TokenStream stream;
                private readonly CancellationTokenSource source;
                private CancellationTokenRegistration registration;
                private Request request;

                internal Enumerator(TokenStream stream, CancellationTokenSource source)
                {
                    this.stream = stream;
                    this.source = source;
                }

                public TokenEvent Current { get; private set; }

                public ValueTask<bool> MoveNextAsync() { return new ValueTask<bool>(MoveAsync()); }

                private async Task<bool> MoveAsync()
                {
                    if (request == null)
                    {
                        source.Token.ThrowIfCancellationRequested();
                        request = stream.session.Submit(stream.prompt, stream.options);
                        registration = source.Token.Register(request.CancelQuietly);
                    }
                    while (await request.NextAsync().ConfigureAwait(false) is RequestEvent next)
                    {
                        if (!(next is TokenEvent tokens)) continue;
                        Current = tokens;
                        return true;
                    }
                    Current = null;
                    request.ThrowUnlessDone(source.Token);
                    return false;
                }

                public ValueTask DisposeAsync()
                {
                    registration.Dispose();
                    if (request != null) request.Dispose();
                    source.Dispose();
                    return default(ValueTask);
                }
            }
        }
    }
}
#endif
