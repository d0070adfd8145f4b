// What needs IAsyncEnumerable.
#if NET8_0_OR_GREATER
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;

namespace Inlay
{
    public sealed partial class Session
    {
        /// <summary>Generates when enumerated, token by token, and blocks no thread; each enumeration is a generation of its own. Leaving it
        /// early cancels that. A host-driven engine must be stepped by someone.</summary>
        /// <exception cref="System.OperationCanceledException">It was cancelled; what came before is in the log.</exception>
        /// <exception cref="InlayException">As <see cref="Generate"/>.</exception>
        public async IAsyncEnumerable<TokenEvent> StreamAsync(Prompt prompt, GenerateOptions options = null,
                                                              [EnumeratorCancellation] CancellationToken cancellation = default)
        {
            cancellation.ThrowIfCancellationRequested();
            using Request request = Submit(prompt, options);
            using CancellationTokenRegistration registration = cancellation.Register(request.CancelQuietly);
            while (await request.NextAsync().ConfigureAwait(false) is RequestEvent next)
            {
                if (next is TokenEvent tokens) yield return tokens;
            }
            request.ThrowUnlessDone(cancellation);
        }
    }
}
#endif
